//! A machine with little memory: when it is used up, tasks die, and the daemon lives.

use libtest_mimic::Trial;
use serde_json::Value;

use crate::case;
use crate::machine::{Machine, Spec};

const TASKMAN: &str = env!("CARGO_BIN_EXE_taskman");
const SERVER: &str = env!("CARGO_BIN_EXE_taskman-server");
const CLIENT: &str = "export TASKMAN_CERTS=/var/tmp/state/certs TASKMAN_USER_ID=client001";

pub fn cases() -> Vec<Trial> {
    vec![case("small_when_memory_is_used_up_tasks_die_and_the_daemon_lives", used_up)]
}

fn used_up() {
    let mut machine = Machine::boot(Spec { memory_mib: 768, ..Spec::default() });
    machine.ok(&format!("({SERVER} --dev --state-dir /var/tmp/state >/var/tmp/log 2>&1 &)"));
    let client = |words: &str| format!("{CLIENT}; {TASKMAN} {words}");
    let answers = client("list >/dev/null 2>&1");
    machine.ok(&format!("for i in $(seq 100); do ({answers}) && exit 0; sleep 0.5; done; cat /var/tmp/log; exit 1"));
    let daemon = "pgrep -f '^[^ ]*taskman-server' | sort -n | xargs";
    let before = machine.ok(daemon);
    assert_eq!(before.split(' ').count(), 3, "launcher, server, auditor: {before}");

    // Each is within its limit of 512 MiB; together they want what the machine does not have.
    let hog = "python3 -c 'import time; x = [b\"x\" * (i + (1 << 20)) for i in range(480)]; time.sleep(600)'";
    let ids: Vec<String> = (0..2)
        .map(|_| machine.ok(&client(&format!("start --output json -- {hog}"))))
        .map(|text| serde_json::from_str::<Value>(&text).expect(&text)["task_id"].as_str().unwrap().to_owned())
        .collect();
    let ended = (0..60).find_map(|_| {
        let both = ids.iter().map(|id| machine.run(&client(&format!("get-status {id} --output json; sleep 1"))).1);
        let both: Vec<Value> = both.filter_map(|text| serde_json::from_str(&text).ok()).collect();
        both.into_iter().find(|status| !status["outcome"].is_null())
    });
    let ended = ended.expect("one of them dies");
    assert_eq!(ended["outcome"]["reason"], "oom", "{ended:#}");
    assert_eq!(ended["containment"]["verdict"], "proven", "{ended:#}");
    assert_eq!(machine.ok(daemon), before, "the same processes");
    // The kernel says whom it has killed.
    let killed = machine.ok("dmesg | grep -o 'Killed process .*UID:[0-9]*' | sed 's/.*UID://'");
    let of_task = |uid: &str| uid.parse::<u32>().is_ok_and(|uid| uid >= 1_900_000_000);
    assert!(!killed.is_empty() && killed.lines().all(of_task), "{killed}");
    ids.iter().for_each(|id| drop(machine.run(&client(&format!("stop {id} --grace 1s")))));
    assert_eq!(machine.ok(&client("start --follow -- echo still here")), "still here\n");
}
