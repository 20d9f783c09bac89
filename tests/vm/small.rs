//! Where memory is used up, tasks die, and the daemon lives.

use libtest_mimic::Trial;

use crate::machine::{Machine, Spec};
use crate::{TASKMAN, case};

const SERVER: &str = env!("CARGO_BIN_EXE_taskman-server");
const CLIENT: &str = "export TASKMAN_CERTS=/var/tmp/state/certs TASKMAN_USER_ID=client001";

pub fn cases() -> Vec<Trial> {
    vec![case("small_when_memory_is_used_up_tasks_die_and_the_daemon_lives", used_up)]
}

/// The daemon's own group has little memory, as a slice or a container gives it, and then the whole machine: there the kernel is
/// asked for its choice, because a machine that emulates one takes minutes to run out of the last page.
fn used_up() {
    let mut machine = Machine::boot(Spec { memory_mib: 1024, ..Spec::default() });
    let client = |words: &str| format!("{CLIENT}; {TASKMAN} {words}");
    let delegated = "mkdir /sys/fs/cgroup/box && cd /sys/fs/cgroup && echo '+memory +cpu +pids +io' >cgroup.subtree_control && \
        echo 300M >box/memory.max && python3 -c 'import os; os.setxattr(\"box\", \"user.delegate\", b\"1\")'";
    machine.ok(delegated);
    machine.ok(&format!(
        "(echo $BASHPID >/sys/fs/cgroup/box/cgroup.procs; exec {SERVER} --dev --state-dir /var/tmp/state) >/var/tmp/log 2>&1 &"
    ));
    let answers = client("health --user-id admin >/dev/null 2>&1");
    machine.ok(&format!("for i in $(seq 100); do ({answers}) && exit 0; sleep 0.5; done; cat /var/tmp/log; exit 1"));
    // Launcher and server. The auditor may have been slow, and replaced.
    let daemon = "pgrep -f '^[^ ]*taskman-server' | sort -n | head -2 | xargs";
    let before = machine.ok(daemon);

    // Within its own limit of 512 MiB, which is more than there is.
    let of_size =
        |mib: u32| format!("python3 -c 'import time; x = b\"x\" * ({mib} << 20); print(flush=True); time.sleep(600)'");
    let (code, said) = machine.run(&client(&format!("start --follow -- {}", of_size(480))));
    assert!(code == 137 && said.contains("memory"), "{code}: {said}");
    machine.ok("echo max >/sys/fs/cgroup/box/memory.max");
    let (code, said) = machine.run(&client(&format!(
        "start --follow -- {} | (read -r; echo f >/proc/sysrq-trigger; cat); exit ${{PIPESTATUS[0]}}",
        of_size(200)
    )));
    assert!(code == 137 && said.contains("memory"), "{code}: {said}");

    assert_eq!(machine.ok(daemon), before, "the same processes");
    // The kernel says whom it has killed.
    let killed = machine.ok("dmesg | grep -o 'Killed process .*UID:[0-9]*' | sed 's/.*UID://'");
    let of_task = |uid: &str| uid.parse::<u32>().is_ok_and(|uid| uid >= 1_900_000_000);
    assert!(killed.lines().count() >= 2 && killed.lines().all(of_task), "{killed}");
    assert_eq!(machine.ok(&client("start --follow -- echo still here 2>/dev/null")), "still here\n");
}
