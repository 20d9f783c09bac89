//! Who else writes to this group: systemd's delegation, and the rule that a version 2 group with controllers for its
//! children holds no processes itself.
//!
//! Both matter on version 2 alone. In a hybrid layout the version 2 tree carries no limits, and version 1 has neither rule.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use nix::errno::Errno;

use super::directory;
use super::layout::{Controller, Hierarchy, Layout, LayoutError, read};
use crate::error::{Context, SysError};
use crate::sys::xattr;

/// The leaf into which the launcher moves itself. It has one name, so that a second [`Layout`] finds its parent again, and
/// so that a unit file can place the launcher there at once with `DelegateSubgroup=taskman-launcher`.
const LEAF: &str = "taskman-launcher";

/// The leaf's share of the processor, beside 100 for each task: the most that there is. However many tasks spin, whoever must end
/// them, and whoever watches, is not the one that waits.
const SHARE: &str = "10000";

/// A process in the launcher's leaf makes its tasks beside the leaf, not in it.
pub(super) fn strip_leaf(own: &mut Hierarchy) {
    if let (Some(parent), Some(dir)) =
        (own.cgroup.strip_suffix(LEAF).and_then(|p| p.strip_suffix('/')), own.dir.parent())
    {
        own.dir = dir.to_owned();
        own.cgroup = if parent.is_empty() { "/".to_owned() } else { parent.to_owned() };
    }
}

/// What the version 2 group that is to hold the tasks' groups says of itself.
struct Seen {
    /// Of all groups only the real root has no `cgroup.events`; the root of a namespace has.
    real_root: bool,
    delegated: bool,
    controllers: String,
    subtree_control: String,
    procs: String,
    me: u32,
}

/// Looks, without changing anything, which version 2 controllers can be had and what that takes; and whether swap counts.
pub(super) fn examine(layout: &mut Layout) -> Result<(), LayoutError> {
    if swap_uncounted(layout)? {
        layout.missing.insert(Controller::Swap);
    }
    if wanted(layout).is_empty() {
        return Ok(());
    }
    let dir = &layout.v2.dir;
    let seen = Seen {
        real_root: !dir.join("cgroup.events").exists(),
        delegated: is_delegated(dir)?,
        controllers: read(&dir.join("cgroup.controllers"))?,
        subtree_control: read(&dir.join("cgroup.subtree_control"))?,
        procs: read(&dir.join("cgroup.procs"))?,
        me: std::process::id(),
    };
    decide(layout, &seen)
}

/// Version 2 controllers that have to be enabled for the tasks' groups.
fn wanted(layout: &Layout) -> Vec<Controller> {
    let enabled_by_name = |c: &Controller| *c != Controller::Swap;
    layout.v2.controllers.iter().copied().filter(enabled_by_name).collect()
}

fn decide(layout: &mut Layout, seen: &Seen) -> Result<(), LayoutError> {
    let wanted = wanted(layout);
    let listed = |text: &str, c: &Controller| text.split_whitespace().any(|name| name == c.v2_name());
    let (available, absent): (Vec<_>, Vec<_>) = wanted.into_iter().partition(|c| listed(&seen.controllers, c));
    // The root, of the host or of this namespace, is whose we are; anything below it is somebody's to give.
    if layout.v2.cgroup != "/" && !seen.delegated && !available.is_empty() {
        return Err(LayoutError::NotDelegated(layout.v2.cgroup.clone()));
    }
    if absent.contains(&Controller::Memory) {
        layout.missing.insert(Controller::Swap);
    }
    layout.missing.extend(absent);
    layout.to_enable = available.into_iter().filter(|c| !listed(&seen.subtree_control, c)).collect();
    if !layout.to_enable.is_empty() && !seen.real_root {
        let me = seen.me.to_string();
        let others = seen.procs.lines().filter(|pid| *pid != me).count();
        if others > 0 {
            return Err(LayoutError::Shared { cgroup: layout.v2.cgroup.clone(), others });
        }
        layout.must_leave = seen.procs.lines().any(|pid| pid == me);
    }
    Ok(())
}

/// Switches the controllers on for the groups to come; the first task of a process pays this, if at all.
pub(super) fn enable(layout: &Layout) -> Result<(), SysError> {
    if !layout.to_enable.is_empty() {
        enable_controllers(layout)?;
    }
    prefer_leaf(layout);
    Ok(())
}

/// Gives the leaf its share, where there is a leaf: whoever made it. Without the file there is no processor controller, and that
/// was told as missing. A share is no limit: nothing is left unenforced without it, so it holds up no start.
fn prefer_leaf(layout: &Layout) {
    if wanted(layout).contains(&Controller::Cpu) {
        let file = File::options().write(true).open(layout.v2.dir.join(LEAF).join("cpu.weight"));
        let _ = file.and_then(|mut file| file.write_all(SHARE.as_bytes()));
    }
}

fn enable_controllers(layout: &Layout) -> Result<(), SysError> {
    if layout.must_leave {
        let leaf = layout.v2.dir.join(LEAF);
        match directory::make(&leaf) {
            Err(error) if error.errno() != Errno::EEXIST => return Err(error),
            _ => {}
        }
        // Itself, and nobody else.
        write(&leaf.join("cgroup.procs"), "0")?;
    }
    let names: Vec<_> = layout.to_enable.iter().map(|c| format!("+{}", c.v2_name())).collect();
    write(&layout.v2.dir.join("cgroup.subtree_control"), &names.join(" "))
}

/// systemd sets the attribute on what it hands over; root may read the one, users the other. What it handed over to a user is
/// that user's, who may move and end whatever is in it.
fn is_delegated(dir: &Path) -> Result<bool, SysError> {
    let group = File::open(dir).on("open", dir.display().to_string())?;
    if group.metadata().on("fstat", dir.display().to_string())?.uid() != 0 {
        return Ok(false);
    }
    Ok([c"trusted.delegate", c"user.delegate"].iter().any(|name| xattr::get(&group, name).is_ok_and(|v| v == b"1")))
}

/// Whether the host has swap that the memory limit does not cover. The root group of version 2 has no swap file to look
/// at: there the first group's limit is written or fails.
fn swap_uncounted(layout: &Layout) -> Result<bool, SysError> {
    let Some(own) = layout.hierarchy(Controller::Swap) else { return Ok(false) };
    let counted = match layout.is_v1(Controller::Swap) {
        true => own.dir.join("memory.memsw.limit_in_bytes").exists(),
        false => own.dir.join("memory.swap.max").exists() || !own.dir.join("memory.max").exists(),
    };
    Ok(!counted && host_has_swap()?)
}

/// Whether any swap is in use on the host.
pub(super) fn host_has_swap() -> Result<bool, SysError> {
    Ok(read(Path::new("/proc/swaps"))?.lines().count() > 1)
}

fn write(path: &Path, value: &str) -> Result<(), SysError> {
    fs::write(path, value).on("write", format!("{value:?} to {}", path.display())).map_err(|error| {
        match error.errno() {
            Errno::EBUSY => {
                error.hint("other processes are in the group; run under: systemd-run --scope -p Delegate=yes")
            }
            _ => error.hint("the controller is not delegated; see taskman doctor"),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const V2: &str = "29 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw";
    const ALL: &str = "cpuset cpu io memory hugetlb pids";

    fn layout(cgroup: &str) -> Layout {
        Layout::parse(V2, &format!("0::{cgroup}\n")).unwrap()
    }

    fn seen() -> Seen {
        let (controllers, subtree_control, procs) = (ALL.to_owned(), String::new(), "7\n".to_owned());
        Seen { real_root: false, delegated: true, controllers, subtree_control, procs, me: 7 }
    }

    #[test]
    fn a_delegated_group_is_left_for_a_leaf_when_nobody_else_is_in_it() {
        let mut alone = layout("/x.scope");
        decide(&mut alone, &seen()).unwrap();
        assert_eq!(alone.to_enable, [Controller::Memory, Controller::Cpu, Controller::Pids, Controller::Io]);
        assert!(alone.must_leave && alone.missing().is_empty());
        // The second launcher in the same group finds the work done.
        let mut done = layout("/x.scope/taskman-launcher");
        decide(&mut done, &Seen { subtree_control: ALL.into(), procs: String::new(), ..seen() }).unwrap();
        assert!(done.to_enable.is_empty() && !done.must_leave);
    }

    #[test]
    fn what_is_not_ours_alone_is_refused_with_the_command() {
        let error = decide(&mut layout("/session-1.scope"), &Seen { delegated: false, ..seen() }).unwrap_err();
        assert!(matches!(error, LayoutError::NotDelegated(_)) && error.to_string().contains("Delegate=yes"), "{error}");
        let error = decide(&mut layout("/x.scope"), &Seen { procs: "6\n7\n8\n".into(), ..seen() }).unwrap_err();
        assert!(
            matches!(error, LayoutError::Shared { others: 2, .. }) && error.to_string().contains("fix:"),
            "{error}"
        );
        // The root of a namespace is ours, but the rule holds there; at the real root it does not.
        let crowded = || Seen { delegated: false, procs: "1\n7\n".into(), ..seen() };
        assert!(matches!(decide(&mut layout("/"), &crowded()), Err(LayoutError::Shared { others: 1, .. })));
        let mut root = layout("/");
        decide(&mut root, &Seen { real_root: true, ..crowded() }).unwrap();
        assert!(root.to_enable.len() == 4 && !root.must_leave);
    }

    #[test]
    fn controllers_that_were_not_handed_down_are_missing() {
        let mut poor = layout("/");
        decide(&mut poor, &Seen { controllers: "cpu pids".into(), real_root: true, ..seen() }).unwrap();
        assert_eq!(poor.missing(), [Controller::Memory, Controller::Swap, Controller::Io]);
        assert_eq!(poor.to_enable, [Controller::Cpu, Controller::Pids]);
        assert!(poor.hierarchy(Controller::Memory).is_none());
    }

    #[test]
    fn enabling_moves_this_process_alone_and_names_each_controller() {
        let tree = tempfile::tempdir().unwrap();
        let mut layout = layout("/x.scope");
        decide(&mut layout, &seen()).unwrap();
        layout.v2.dir = tree.path().to_owned();
        enable(&layout).unwrap();
        let written = |file: &str| fs::read_to_string(tree.path().join(file)).unwrap();
        assert_eq!(written("taskman-launcher/cgroup.procs"), "0");
        assert_eq!(written("cgroup.subtree_control"), "+memory +cpu +pids +io");
        // A leaf that a unit file or an entrypoint has made, in a group where all is switched on, has its share too.
        fs::write(tree.path().join("taskman-launcher/cpu.weight"), "100").unwrap();
        layout.to_enable.clear();
        enable(&layout).unwrap();
        assert_eq!(written("taskman-launcher/cpu.weight"), "10000");
    }

    #[test]
    fn what_systemd_handed_to_a_user_is_not_ours() {
        let tree = tempfile::tempdir().unwrap();
        let is_ours = || is_delegated(tree.path()).unwrap();
        assert!(!is_ours());
        xattr::set(File::open(tree.path()).unwrap(), c"trusted.delegate", b"1").unwrap();
        assert!(is_ours());
        nix::unistd::chown(tree.path(), Some(12345.into()), None).unwrap();
        assert!(!is_ours());
    }
}
