//! The unit under a real systemd: from its start to its stop, its deaths, and a reboot.
//!
//! The files are put where a package puts them; everything is looked at from outside the unit, as an operator does.

mod limits;

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use libtest_mimic::Trial;

use crate::machine::{Machine, Root, Spec};
use crate::on_one_machine;

pub fn cases() -> Vec<Trial> {
    vec![on_one_machine(
        "unit_under_systemd",
        Host::installed,
        [
            ("unit_serves_when_it_is_active_and_leaves_nothing_when_it_is_stopped", life),
            ("unit_that_dies_or_stands_still_is_started_again_and_nothing_of_it_is_left", deaths),
            ("unit_keeps_records_and_quarantine_over_a_reboot_and_its_timer_audits", reboot),
        ],
    )]
}

const SOURCES: &str = concat!("/host", env!("CARGO_MANIFEST_DIR"));
const PROGRAMS: [(&str, &str); 2] = [
    (env!("CARGO_BIN_EXE_taskman"), "/usr/bin/taskman"),
    (env!("CARGO_BIN_EXE_taskman-server"), "/usr/sbin/taskman-server"),
];
const FILES: [(&str, &str); 8] = [
    ("deploy/systemd/taskman.service", "/usr/lib/systemd/system/taskman.service"),
    ("deploy/systemd/taskman.slice", "/usr/lib/systemd/system/taskman.slice"),
    ("deploy/systemd/taskman-audit.service", "/usr/lib/systemd/system/taskman-audit.service"),
    ("deploy/systemd/taskman-audit.timer", "/usr/lib/systemd/system/taskman-audit.timer"),
    ("deploy/systemd/taskman.sysusers", "/usr/lib/sysusers.d/taskman.conf"),
    ("deploy/systemd/taskman.tmpfiles", "/usr/lib/tmpfiles.d/taskman.conf"),
    ("scripts/audit-containment", "/usr/lib/taskman/audit-containment"),
    ("scripts/cleanup-all", "/usr/lib/taskman/cleanup-all"),
];
const UNITS: &str = "taskman.service taskman.slice taskman-audit.service taskman-audit.timer";

/// Before each script. `mounts` are the host's, as its first process sees them.
const WORDS: &str = r#"
export TASKMAN_CERTS=/etc/taskman/certs TASKMAN_USER_ID=client001
mounts() { cut -d' ' -f4- /proc/1/mountinfo | sort; }
show() { systemctl show --value --property "$1" taskman; }
server() { pgrep -u taskman -x taskman-server; }
begin() { taskman start --output json "$@" | sed 's/.*"task_id":"\([^"]*\)".*/\1/'; }
follow() { taskman start --follow -- "$@" 2>/dev/null; }
marked() { begin -- sh -c "trap '' TERM; : $1; sleep 1000 & wait; wait"; }
left() {
  ps -eo pid=,comm= | grep -E 'taskman|sleep'
  ps -eo pid=,uid=,args= | awk '$2 >= 1899999999 && $2 < 1900065536'
  find /sys/fs/cgroup -name 'taskman-*.*' -o -name taskman-launcher
  mounts | diff /run/mounts -
}
"#;

struct Host(Machine);

impl Host {
    /// With everything in its place, and nothing started.
    fn installed() -> Self {
        let mut host = Self(Machine::boot(Spec { root: Root::Debian, ..Spec::default() }));
        let mut script = String::from("set -e\n");
        for (from, to) in PROGRAMS {
            writeln!(script, "install -D -m 755 /host{from} {to}").unwrap();
        }
        for (from, to) in FILES {
            let mode = if from.starts_with("scripts/") { 755 } else { 644 };
            writeln!(script, "install -D -m {mode} {SOURCES}/{from} {to}").unwrap();
        }
        script.push_str(
            "systemd-sysusers && systemd-tmpfiles --create taskman.conf\n\
             taskman-server --print-config | sed 's|^certs = \"\"|certs = \"/etc/taskman/certs\"|' >/etc/taskman/server.toml\n\
             taskman certs init --certs /etc/taskman/certs >/dev/null\n\
             systemctl daemon-reload\nmounts >/run/mounts\n",
        );
        host.ok(&script);
        host
    }

    /// As it was installed: nothing runs, nothing is stored, changed or logged.
    fn afresh(&mut self) {
        self.ok("systemctl stop taskman; systemctl reset-failed; rm -rf /etc/systemd/system/taskman*.d; systemctl daemon-reload
             find /var/lib/taskman -mindepth 1 -delete; journalctl --quiet --rotate --vacuum-time 1s; mounts >/run/mounts");
        assert_eq!(self.ok("journalctl --unit taskman --quiet --no-pager"), "");
    }

    #[track_caller]
    fn ok(&mut self, script: &str) -> String {
        self.0.ok(&format!("{WORDS}{script}"))
    }

    fn run(&mut self, script: &str) -> (i32, String) {
        self.0.run(&format!("{WORDS}{script}"))
    }

    /// Runs it until it ends well.
    #[track_caller]
    fn until(&mut self, limit: Duration, script: &str) -> String {
        let deadline = Instant::now() + limit;
        loop {
            let (code, text) = self.run(script);
            if code == 0 {
                return text;
            }
            let log = || "journalctl -n 40 --no-pager -o cat".to_owned();
            assert!(Instant::now() < deadline, "after {limit:?}: {script}\n{text}\n{}", self.run(&log()).1);
            std::thread::sleep(Duration::from_millis(500));
        }
    }

    /// Neither processes nor groups nor mounts, as anybody can see, and as taskman itself sees it.
    #[track_caller]
    fn assert_nothing_left(&mut self) {
        assert_eq!(self.run("left").1, "");
        self.ok("taskman health --verify-clean --state-dir /var/lib/taskman --config /etc/taskman/server.toml");
    }

    /// A field of a task's status.
    #[track_caller]
    fn status(&mut self, task: &str) -> serde_json::Value {
        let text = self.ok(&format!("TASKMAN_USER_ID=admin taskman get-status {task} --output json"));
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"))
    }

    /// A deaf task that carries a word, and runs.
    #[track_caller]
    fn task(&mut self, word: &str) -> String {
        self.ok(&format!("marked {word}")).trim().to_owned()
    }

    /// What the journal holds of the unit with this in it: priority and message.
    #[track_caller]
    fn logged(&mut self, unit: &str, part: &str) -> Vec<(String, String)> {
        let text = self.ok(&format!("journalctl --sync; journalctl --unit {unit} --output json --no-pager"));
        let lines = text.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
        let field = |line: &serde_json::Value, name: &str| line[name].as_str().unwrap_or_default().to_owned();
        let lines = lines.map(|line| (field(&line, "PRIORITY"), field(&line, "MESSAGE")));
        lines.filter(|(_, message)| message.contains(part)).collect()
    }
}

fn life(host: &mut Host) {
    assert_eq!(host.ok(&format!("systemd-analyze verify --man=no {UNITS} 2>&1")), "", "the units are not sound");
    assert_eq!(host.ok("getent passwd taskman | cut -d: -f3,7"), "1899999999:/usr/sbin/nologin\n");
    // Active means that a client is served: at once, and at the first attempt.
    assert_eq!(host.ok("systemctl start taskman && follow echo hello"), "hello\n");
    assert_eq!(host.ok("show StatusText; show SubState; show NRestarts"), "serving\nrunning\n0\n");

    let task = host.task("first");
    let status = host.status(&task);
    let pid = status["process_id"].as_i64().unwrap();
    let group = host.ok(&format!("sed -n 's/^0:://p' /proc/{pid}/cgroup")).trim().to_owned();
    assert!(group.starts_with("/taskman.slice/taskman.service/taskman-srv-") && group.ends_with(&task), "{group}");
    let limits = host.ok(&format!(
        "cd /sys/fs/cgroup{group}; cat cgroup.controllers memory.max pids.max cpu.max; cat memory.oom.group"
    ));
    for part in ["cpu", "io", "memory", "pids", "536870912\n", "129\n", "100000 100000\n"] {
        assert!(limits.contains(part), "{part:?} is not in {limits}");
    }
    let own = "/taskman.slice/taskman.service/taskman-launcher\n";
    assert_eq!(
        host.ok("sed -n 's/^0:://p' /proc/$(show MainPID)/cgroup /proc/$(server)/cgroup"),
        format!("{own}{own}")
    );
    let adjusted =
        format!("cat /proc/$(show MainPID)/oom_score_adj /proc/$(server)/oom_score_adj /proc/{pid}/oom_score_adj");
    // The launcher goes last and the tasks first; what faces the network is as any other service.
    assert_eq!(host.ok(&adjusted), "-900\n0\n1000\n");
    assert_eq!(host.ok("cat /sys/fs/cgroup/taskman.slice/taskman.service/taskman-launcher/cpu.weight"), "10000\n");
    assert_eq!(host.ok("mounts | diff /run/mounts -"), "", "a mount of the unit or of a task is seen by the host");
    limits::confined(host, pid, &group);

    limits::hold(host);
    limits::end_with_the_units(host);
    limits::never_outside(host);
    // A task that runs out of memory is not the unit's end.
    assert_eq!(host.ok("show ActiveState; show NRestarts; show Result"), "active\n0\nsuccess\n");

    host.ok("systemctl reload taskman");
    host.until(Duration::from_secs(20), "[[ $(show StatusText) == serving ]]");
    let reloaded = "journalctl --sync; journalctl --unit taskman --no-pager | grep -q 'certificates were reloaded'";
    host.until(Duration::from_secs(30), reloaded);

    let before = host.ok("show MainPID");
    host.ok("systemctl restart taskman");
    assert_ne!(host.ok("show MainPID"), before);
    let ended = host.status(&task);
    assert_eq!(ended["outcome"]["reason"], "server_shutdown", "{ended:#}");
    assert_eq!(ended["containment"]["verdict"], "proven", "{ended:#}");

    let task = host.task("second");
    let began = Instant::now();
    host.ok("systemctl stop taskman");
    assert!(began.elapsed() < Duration::from_secs(50), "it took {:?}", began.elapsed());
    assert_eq!(host.ok("show ActiveState; show Result"), "inactive\nsuccess\n");
    host.assert_nothing_left();
    // The slice has nothing in it any more, and goes too.
    host.until(Duration::from_secs(20), "[[ ! -e /sys/fs/cgroup/taskman.slice ]]");
    let priority = |host: &mut Host, part: &str| host.logged("taskman", part).pop().unwrap_or_default();
    let (level, line) = priority(host, "told to stop");
    assert!(level == "5" && line.starts_with("taskman-launcher: told to stop; 1 tasks"), "{level}: {line}");
    let (level, line) = priority(host, "listening on");
    assert!(level == "6" && line.starts_with("taskman-server: listening on 127.0.0.1:50051"), "{level}: {line}");

    // A line's sender is the kernel's word: what the server writes is never among root's.
    let of =
        |host: &mut Host, uid: &str| host.ok(&format!("journalctl --unit taskman _UID={uid} --output cat --no-pager"));
    let (server, root) = (of(host, "1899999999"), of(host, "0"));
    assert!(server.contains("listening on") && !root.contains("listening on"), "{server}\n{root}");
    assert!(root.contains("told to stop") && !server.contains("told to stop"), "{server}\n{root}");

    // What cannot serve is not active, and says why.
    host.ok("mv /etc/taskman/certs/server.crt /etc/taskman/certs/kept; install -m 644 /etc/hostname /etc/taskman/certs/server.crt");
    assert_eq!(host.run("systemctl start taskman").0, 1);
    let (level, line) = priority(host, "the certificate file /etc/taskman/certs/server.crt");
    assert_eq!(level, "3", "{line}");
    // One that was stopped while it waited to be started again has not failed.
    host.run("systemctl stop taskman; systemctl reset-failed taskman");
    host.ok("mv /etc/taskman/certs/kept /etc/taskman/certs/server.crt; systemctl start taskman");
    let ended = host.status(&task);
    assert_eq!(ended["outcome"]["reason"], "server_shutdown", "{ended:#}");

    // The kernel tells the unit's auditor of a process with a task's uid, which is its end.
    host.ok("setpriv --reuid 1900000005 --regid 1900000005 --clear-groups sleep 1001 >/dev/null 2>&1 &");
    let found = host.until(Duration::from_secs(60), "! pgrep -x sleep && cat /var/lib/taskman/incidents/*");
    let by = ["\"exec\"", "\"uid change\""];
    assert!(found.contains("post_cleanup_leak") && by.iter().any(|by| found.contains(by)), "{found}");
}

fn deaths(host: &mut Host) {
    host.afresh();
    // So many deaths within so short a time are more than the unit's bounds for restarts let through.
    host.ok("mkdir -p /etc/systemd/system/taskman.service.d\n\
         printf '[Unit]\\nStartLimitIntervalSec=0\\n[Service]\\nWatchdogSec=8s\\n' >/etc/systemd/system/taskman.service.d/test.conf\n\
         systemctl daemon-reload; systemctl start taskman");
    let deaths = [
        ("kill -KILL $(show MainPID)", "code=killed, status=9/KILL"),
        ("kill -KILL $(server)", "Failed with result 'exit-code'"),
        ("kill -STOP $(server)", "Watchdog timeout"),
        ("kill -STOP $(show MainPID)", "Watchdog timeout"),
    ];
    for (number, (death, told)) in deaths.into_iter().enumerate() {
        let task = host.task("doomed");
        let before = host.ok("show MainPID; server; until pgrep -x sleep; do sleep 0.1; done");
        let heard = host.logged("taskman", told).len();
        host.ok(death);
        host.until(
            Duration::from_secs(90),
            &format!("[[ $(show NRestarts) -gt {number} && $(show ActiveState) == active ]]"),
        );
        assert!(host.logged("taskman", told).len() > heard, "{death}: nothing says {told}");
        for pid in before.lines() {
            assert_eq!(host.run(&format!("cat /proc/{pid}/comm 2>/dev/null")).1, "", "{death}: {pid} lives");
        }
        assert_eq!(host.run("find /sys/fs/cgroup -name 'taskman-*.*'").1, "", "{death}");
        let ended = host.status(&task);
        assert_eq!(ended["outcome"]["reason"], "server_lost", "{death}: {ended:#}");
        assert_eq!(host.ok("follow echo again"), "again\n", "{death}");
    }
    // The last death, with nobody to clean up after it.
    host.task("last");
    host.ok("systemctl kill --kill-whom all --signal STOP taskman; systemctl kill --kill-whom main --signal KILL taskman; systemctl stop taskman");
    host.assert_nothing_left();
}

fn reboot(host: &mut Host) {
    host.afresh();
    host.ok("systemctl enable --now taskman.service taskman-audit.timer 2>/dev/null");
    let done = host.ok("begin -- echo kept").trim().to_owned();
    host.ok(&format!("taskman wait {done}"));
    let running = host.task("running");
    host.ok("TASKMAN_USER_ID=admin taskman health --quarantine --reason 'a drill'");
    assert!(host.logged("taskman", "no tasks are taken").iter().all(|(level, _)| level == "4"));
    let boot = "ps -o comm= 1; cat /proc/sys/kernel/random/boot_id";
    let before = host.ok(boot);
    host.0.reboot();
    let after = host.ok(boot);
    assert!(before.starts_with("systemd\n") && after.starts_with("systemd\n") && before != after, "{before}{after}");
    host.ok("mounts >/run/mounts");
    host.until(Duration::from_secs(60), "[[ $(show ActiveState) == active ]]");
    assert_eq!(host.ok(&format!("taskman stream {done}")), "kept\n");
    let ended = host.status(&running);
    assert_eq!(ended["outcome"]["reason"], "server_shutdown", "{ended:#}");
    let status = host.ok("show StatusText");
    assert!(status.contains("quarantined (manual): a drill"), "{status}");
    let (code, text) = host.run("taskman start -- true");
    assert!(code != 0 && text.contains("quarantined (manual)"), "{code}: {text}");
    host.ok("TASKMAN_USER_ID=admin taskman health --unquarantine --reason 'it is over'");
    assert_eq!(host.ok("follow echo again"), "again\n");

    // The timer, every few seconds.
    host.ok("mkdir -p /etc/systemd/system/taskman-audit.timer.d\n\
         printf '[Timer]\\nOnCalendar=\\nOnCalendar=*:*:0/5\\nRandomizedDelaySec=0\\nAccuracySec=1s\\n' \
         >/etc/systemd/system/taskman-audit.timer.d/test.conf\n\
         systemctl daemon-reload; systemctl restart taskman-audit.timer");
    host.until(Duration::from_secs(60), "journalctl --unit taskman-audit --no-pager | grep -q Finished");
    assert_eq!(host.logged("taskman-audit", "containment audit").len(), 0, "it is not silent");
    host.ok("systemctl stop taskman-audit.timer taskman-audit.service");
    // With nobody to watch, a process with a task's uid is found by it.
    host.ok("systemctl stop taskman; systemctl reset-failed");
    host.ok("setpriv --reuid 1900000005 --regid 1900000005 --clear-groups sleep 1001 >/dev/null 2>&1 & until pgrep -u 1900000005 -x sleep; do sleep 0.1; done");
    assert_eq!(host.run("systemctl start taskman-audit").0, 1);
    assert_eq!(host.run("pgrep -x sleep").1, "", "it lives");
    let found = host.logged("taskman-audit", "found something");
    assert_eq!(found.first().map(|(level, _)| level.as_str()), Some("2"), "{found:?}");
}
