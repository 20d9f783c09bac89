//! The service in a machine, in a cgroup that was delegated to it, as systemd does.

use crate::TASKMAN;
use crate::machine::Machine;

const SERVER: &str = env!("CARGO_BIN_EXE_taskman-server");
const CLIENT: &str = "export TASKMAN_CERTS=/var/tmp/state/certs TASKMAN_USER_ID=client001";

/// Starts it with so much memory for all, and waits until it answers.
pub fn start(machine: &mut Machine, memory: &str) {
    machine.ok(&format!(
        "mkdir /sys/fs/cgroup/box && cd /sys/fs/cgroup && echo '+memory +cpu +pids +io' >cgroup.subtree_control && \
         echo {memory} >box/memory.max && python3 -c 'import os; os.setxattr(\"box\", \"user.delegate\", b\"1\")'"
    ));
    machine.ok(&format!(
        "(echo $BASHPID >/sys/fs/cgroup/box/cgroup.procs; exec {SERVER} --dev --state-dir /var/tmp/state) >/var/tmp/log 2>&1 &"
    ));
    let answers = client("health --user-id admin >/dev/null 2>&1");
    machine.ok(&format!("for i in $(seq 100); do ({answers}) && exit 0; sleep 0.5; done; cat /var/tmp/log; exit 1"));
}

/// `taskman words…` as client001.
pub fn client(words: &str) -> String {
    format!("{CLIENT}; {TASKMAN} {words}")
}
