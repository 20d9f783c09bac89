//! What root can plant on a host for `taskman health` and `taskman audit` to find: a control group of a dead launcher with a
//! process in it, and a process of a task's uid that no task has.

use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use super::cgroups;
use super::host::host_text;
use super::proc::Process;

/// A group of an instance whose lock nobody holds, in version 2 and in one version 1 hierarchy, where no other launcher sweeps.
pub struct DeadGroup {
    /// The task's id in its name.
    pub task: String,
    /// Its directories.
    pub directories: Vec<PathBuf>,
    bases: Vec<PathBuf>,
}

impl DeadGroup {
    /// With a process of `uid` in it, which the host's first process reaps.
    #[track_caller]
    pub fn plant(instance: &str, uid: u32) -> Self {
        let task = host_text(&["cat", "/proc/sys/kernel/random/uuid"]).trim().to_owned();
        let roots = ["", "memory"].map(|controller| cgroups::directory(Process::own(), controller));
        let mut bases: Vec<PathBuf> = roots.iter().map(|root| root.join(format!("tmtest-{task}"))).collect();
        bases.dedup();
        let directories: Vec<_> = bases.iter().map(|base| base.join(format!("taskman-{instance}.{task}"))).collect();
        for directory in &directories {
            fs::create_dir_all(directory).expect("needs root and control groups");
        }
        waiting(uid, &directories[0]);
        Self { task, directories, bases }
    }

    /// Whether anything of it is there.
    pub fn exists(&self) -> bool {
        self.directories.iter().any(|directory| directory.exists())
    }
}

impl Drop for DeadGroup {
    fn drop(&mut self) {
        for (directory, base) in self.directories.iter().zip(&self.bases) {
            let _ = fs::write(directory.join("cgroup.kill"), "1");
            remove(directory);
            remove(base);
        }
    }
}

/// Waits for what was killed to leave it.
fn remove(directory: &Path) {
    super::wait_until(&format!("{} is gone", directory.display()), || {
        let _ = fs::remove_dir(directory);
        (!directory.exists()).then_some(())
    });
}

/// Starts a process of `uid` in the caller's own groups; killed, whoever does it. It ends by itself after ten minutes.
#[track_caller]
pub fn stray(uid: u32) -> Child {
    Command::new("sleep").arg("600").uid(uid).gid(uid).current_dir("/").stdin(Stdio::null()).spawn().expect("sleep")
}

/// A process of `uid` in this group, whose parent has left it to the host's first process. It is in the group before it has its
/// uid: an auditor that watches has nothing to object to.
#[track_caller]
fn waiting(uid: u32, group: &Path) {
    let join = format!("echo 0 >'{}/cgroup.procs'", group.display());
    let becoming = format!("setpriv --reuid {uid} --regid {uid} --clear-groups");
    let script = format!("{join} && exec {becoming} sh -c 'sleep 600 >/dev/null 2>&1 </dev/null &'");
    let output = Command::new("sh").args(["-c", &script]).current_dir("/").stdin(Stdio::null()).output().expect("sh");
    assert!(output.status.success(), "{output:?}");
}

/// A control group for an operator's shell, which is never in the server's.
pub struct Elsewhere(PathBuf);

impl Elsewhere {
    pub fn new() -> Self {
        let name = host_text(&["cat", "/proc/sys/kernel/random/uuid"]);
        let directory = cgroups::directory(Process::own(), "").join(format!("tmtest-{}", name.trim()));
        fs::create_dir(&directory).expect("needs root and control groups");
        Self(directory)
    }

    /// A line of shell by which it goes there.
    pub fn join(&self) -> String {
        format!("echo 0 >'{}/cgroup.procs'", self.0.display())
    }
}

impl Drop for Elsewhere {
    fn drop(&mut self) {
        remove(&self.0);
    }
}
