//! Each limit of a task, asked for by one command line and told by its outcome: for hosts on which tasks are started in different ways.
//!
//! In shell and Perl alone, which are on the smallest of them.

/// Options and command, and how it ends: exit code of taskman's, and reason.
const LIMITS: [(&str, &str); 9] = [
    ("--timeout 500ms -- sleep 60", "124 wall_time"),
    ("--cpu-time 300ms -- sh -c 'while :; do :; done'", "124 cpu_time"),
    ("--output-limit 64K -- head -c 1M /dev/zero", "137 output_limit"),
    // The shell would sleep until its time is over, if only the one that asks for too much died.
    (r#"--memory 32M --timeout 20s -- sh -c 'perl -e "\$x = q(x) x (100 << 20)"; sleep 60'"#, "137 oom"),
    ("--pids 4 -- sh -c 'sleep 9 & sleep 9 & sleep 9 & sleep 9 & wait'", "2 exit"),
    ("--nofile 16 -- perl -e 'open($f[$_], q(<), q(/dev/null)) or exit 1 for 0..15'", "1 exit"),
    ("--fsize 64K -- sh -c 'exec head -c 1M /dev/zero >/task/f'", "153 signal"),
    ("--disk 1M -- sh -c 'head -c 2M /dev/zero >/task/f'", "1 exit"),
    (SHARE, "124 wall_time"),
];

/// Half of a processor, for seconds: what a start takes of it is not much then.
const SHARE: &str = "--cpus 0.5 --timeout 5s -- sh -c 'while :; do :; done'";

/// A script that asks for each in turn, by the shell function `probe`, which ends with `told CODE FILE`: the file holds a report or a status.
pub fn script(probe: &str) -> String {
    let told = r#"
told() {
  field() { grep -o "\"$1\":\"\?[a-z0-9_]*" "$2" | head -n 1 | sed 's/.*[":]//'; }
  echo "$1 $(field reason "$2") $(field verdict "$2")" $(field cpu_user_ms "$2") $(field cpu_system_ms "$2") $(field wall_ms "$2")
}
"#;
    let asked: String = LIMITS.iter().map(|(words, _)| format!("probe {words}\n")).collect();
    format!("{told}{probe}\n{asked}")
}

/// What such a script has printed is what must be.
#[track_caller]
pub fn assert_held(text: &str) {
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), LIMITS.len(), "{text}");
    for (line, (words, wanted)) in lines.iter().zip(LIMITS) {
        assert!(line.starts_with(&format!("{wanted} proven ")), "{words}: {line}, wanted {wanted}\n{text}");
        if words == SHARE {
            let numbers: Vec<f64> = line.split(' ').filter_map(|word| word.parse().ok()).collect();
            let [_, user, system, wall] = numbers[..] else { panic!("{words}: {line}") };
            let share = (user + system) / wall;
            // A busy host may give less than the share, never more.
            assert!((0.1..0.65).contains(&share), "{words}: {share:.2} of a processor; {line}");
        }
    }
}
