//! The group of whoever starts a task: a container, a slice, or an operator's own. What it may use is all that its tasks may.

use std::process::{Command, Stdio};

use crate::support::hierarchies::Hierarchies;
use crate::support::run::TASKMAN;
use crate::support::{GUARD, HostDir, Started};

/// A group in every hierarchy, as long as this lives.
struct Group {
    hierarchies: Hierarchies,
    name: String,
}

impl Group {
    fn of_memory(bytes: u64) -> Self {
        let (hierarchies, name) = (Hierarchies::detect(), format!("taskman-test-above-{}", std::process::id()));
        hierarchies.make(&name, Some(bytes));
        Self { hierarchies, name }
    }

    /// `taskman run words…`, by a process that is in the group.
    fn run(&self, words: &[&str]) -> Started {
        let dir = HostDir::new();
        let directories = self.hierarchies.directories(&self.name);
        let join = "while [ \"$1\" != -- ]; do echo 0 >\"$1/cgroup.procs\" || exit; shift; done; shift; exec \"$@\"";
        let mut command = Command::new("sh");
        command.args(["-c", join, "sh"]).args(directories).args(["--", TASKMAN, "run", "--report"]);
        command.arg(dir.path("report.json")).args(words).stdin(Stdio::piped());
        let mut started = Started::spawn(command, dir, GUARD);
        started.take_stdin();
        started
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.hierarchies.remove(&self.name);
    }
}

#[test]
fn a_task_is_below_the_group_of_whoever_starts_it_and_has_no_more_memory() {
    let group = Group::of_memory(128 << 20);
    // More than the group has, less than the task may.
    let take = "echo ready; read -r line; exec perl -e '$x = q(x) x (400 << 20)'";
    let mut task = group.run(&["--memory", "512M", "--", "sh", "-c", take]);
    assert_eq!(task.line(), "ready");
    Hierarchies::assert_holds(&group.name, task.payload());
    task.send(b"on\n");
    let ended = task.end();
    ended.assert_outcome(137, "signaled", "SIGKILL", "oom");
    let peak = ended.number("/usage/memory_peak_bytes");
    // The kernel counts what it is about to give before it asks the groups above.
    assert!(peak <= 129 << 20, "{peak}");
    assert!(ended.report()["outcome"]["detail"].as_str().unwrap().contains("a group above it"), "{ended:?}");
}
