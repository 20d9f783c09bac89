//! Where the processes of sandboxes are from their first moment on, as the host sees it: looked at again and again while tasks are started.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::time::Duration;

/// What was seen.
#[derive(Debug, Default)]
pub struct Seen {
    looks: u64,
    /// Of the looks, those before the sandbox has executed anything: it is still the launcher's program.
    early: u64,
    /// By their groups.
    tasks: BTreeSet<String>,
    outside: Vec<String>,
}

impl Seen {
    /// Looks at every child that a launcher makes from now on, with a pause after each look, until `done`. With one processor
    /// whoever looks without a pause keeps tasks from starting.
    pub fn watch(launcher: i32, pause: Duration, done: impl Fn() -> bool) -> Self {
        let own = program(launcher).expect("the launcher runs");
        let (before, mut seen) = (children(launcher), Self::default());
        while !done() {
            std::thread::sleep(pause);
            children(launcher).difference(&before).for_each(|pid| seen.look(*pid, own));
        }
        seen
    }

    fn look(&mut self, pid: i32, launchers: (u64, u64)) {
        let program = program(pid);
        let Ok(place) = fs::read_to_string(format!("/proc/{pid}/cgroup")) else { return };
        // Read last: one that is still there and alive was so when its place was read.
        if !fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| !stat.contains(") Z ")) {
            return;
        }
        self.looks += 1;
        match of_a_task(&place) {
            Some(group) => {
                self.early += u64::from(program == Some(launchers));
                self.tasks.insert(group.to_owned());
            }
            None if is_outside(pid) => self.outside.push(format!("{pid} in {place:?}")),
            None => {}
        }
    }

    /// At least so many tasks were seen, some before they had executed anything, and none was ever outside of its group.
    pub fn is_inside(&self, tasks: usize) -> bool {
        self.outside.is_empty() && self.early > 0 && self.tasks.len() >= tasks
    }
}

impl std::fmt::Display for Seen {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { looks, early, tasks, outside } = self;
        write!(
            f,
            "{looks} looks at processes of {} tasks, {early} of them before exec: {} outside",
            tasks.len(),
            outside.len()
        )?;
        outside.iter().take(5).try_for_each(|line| write!(f, "\n{line}"))
    }
}

/// The version 2 group among those of a process, if it is a task's.
fn of_a_task(place: &str) -> Option<&str> {
    let group = place.lines().find_map(|line| line.strip_prefix("0::"))?;
    ["/taskman-run-", "/taskman-srv-"].iter().any(|name| group.contains(name)).then_some(group)
}

/// A second look: for a moment of its making a process can be seen that is not in its group yet, and has not run. And the auditor
/// may be a new one.
fn is_outside(pid: i32) -> bool {
    std::thread::sleep(Duration::from_millis(2));
    let place = fs::read_to_string(format!("/proc/{pid}/cgroup"));
    let auditor = fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|words| words.ends_with(b"\0auditor\0"));
    !auditor && place.is_ok_and(|place| of_a_task(&place).is_none())
}

fn program(pid: i32) -> Option<(u64, u64)> {
    fs::metadata(format!("/proc/{pid}/exe")).ok().map(|meta| (meta.dev(), meta.ino()))
}

/// But for this process.
fn children(launcher: i32) -> BTreeSet<i32> {
    let me = std::process::id() as i32;
    let children = fs::read_to_string(format!("/proc/{launcher}/task/{launcher}/children")).unwrap_or_default();
    children.split_whitespace().filter_map(|pid| pid.parse().ok()).filter(|pid| *pid != me).collect()
}
