//! Where memory is used up, tasks die, and the daemon lives.

use libtest_mimic::Trial;

use crate::machine::{Machine, Spec};
use crate::service::client;
use crate::{case, service};

pub fn cases() -> Vec<Trial> {
    vec![case("small_when_memory_is_used_up_tasks_die_and_the_daemon_lives", used_up)]
}

/// The daemon's own group has little memory, as a slice or a container gives it, and then the whole machine: there the kernel is
/// asked for its choice, because a machine that emulates one takes minutes to run out of the last page.
fn used_up() {
    let mut machine = Machine::boot(Spec { memory_mib: 1024, ..Spec::default() });
    service::start(&mut machine, "300M");
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
