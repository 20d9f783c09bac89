//! The root file system: an empty tmpfs into which parts of the host are bound read-only, and which then takes the
//! place of the host's root.
//!
//! Trees are made read-only, nosuid and nodev as a whole before they are attached, so nothing is ever seen writable.
//! The host's root is not hidden but detached: there is no path back to it.

use std::ffi::CString;
use std::fs::File;
use std::io::Write;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, OFlag, OpenHow, ResolveFlag, open, openat2};
use nix::mount::{MntFlags, MsFlags, mount as mount_fs, umount2};
use nix::sys::stat::{Mode, SFlag, fstat};
use nix::unistd::{chdir, mkdir, pivot_root};

use super::{Plan, dev, etc, procfs};
use crate::error::{Context, SysError};
use crate::mutation::{Defence, off};
use crate::sys::mount;
use crate::task::spec::BindRo;

/// What of the host's root every task sees, where the host has it.
pub const SYSTEM: [&str; 7] = ["usr", "bin", "sbin", "lib", "lib32", "lib64", "libx32"];

const TARGET_SYMLINK: &str = "a part of the target is a symlink inside the sandbox; name the place it leads to";

/// Cuts the tie through which mounts made here would reach the host, and the host's would appear here.
pub fn make_private() -> Result<(), SysError> {
    let propagation = if off(Defence::PrivateMounts) { MsFlags::MS_SLAVE } else { MsFlags::MS_PRIVATE };
    mount_fs(None::<&str>, "/", None::<&str>, MsFlags::MS_REC | propagation, None::<&str>).on("mount", "/ as private")
}

/// Builds the new root over the assembly directory and makes it the working directory.
pub fn assemble(plan: &Plan<'_>) -> Result<(), SysError> {
    let assembly = plan.assembly.display().to_string();
    // The task's id stands as the mount's source, so that the end can be checked in the host's mountinfo.
    let source = format!("taskman-{}", plan.spec.id);
    mount_tmpfs(&source, &assembly, "mode=755,size=4M,nr_inodes=512", MsFlags::MS_NODEV)?;
    chdir(plan.assembly).on("chdir", &*assembly)?;
    for name in SYSTEM {
        bind_or_link(&format!("/{name}"), name)?;
    }
    etc::populate(plan)?;
    dev::populate(plan)?;
    for (name, mode) in [("task", 0o700), ("tmp", 0o1777)] {
        scratch(plan, name, mode)?;
    }
    for bind in &plan.spec.binds {
        bind_for_user(bind)?;
    }
    procfs::prepare(plan)?;
    seal(".")
}

/// Makes the new root the root, and lets go of the old one.
pub fn pivot() -> Result<(), SysError> {
    if off(Defence::OldRoot) {
        return pivot_root(".", "old").on("pivot_root", "old");
    }
    // Both names are the new root: the old one ends up on top of it, and is the next thing detached.
    pivot_root(".", ".")
        .on("pivot_root", ".")
        .map_err(|e| e.hint("an initramfs as the host's root cannot be pivoted away; switch_root first"))?;
    umount2(".", MntFlags::MNT_DETACH).on("umount2", "the old root")?;
    chdir("/").on("chdir", "/")
}

/// A writable, sized, inode-capped directory of the task's own; its pages are charged to the task's memory.
pub fn scratch(plan: &Plan<'_>, name: &str, mode: u32) -> Result<(), SysError> {
    directory(name)?;
    let (limits, uid) = (&plan.spec.limits, plan.uid);
    let mut options = format!("mode={mode:o},uid={uid},gid={uid}");
    if !off(Defence::Disk) {
        // One inode more than asked: the root directory takes one.
        options += &format!(",size={},nr_inodes={}", limits.disk_bytes, limits.inodes + 1);
    }
    mount_tmpfs("tmpfs", name, &options, MsFlags::MS_NODEV)
}

/// Mounts a tmpfs, always nosuid.
pub fn mount_tmpfs(source: &str, target: &str, options: &str, flags: MsFlags) -> Result<(), SysError> {
    let flags = if off(Defence::NoSuid) { flags } else { flags | MsFlags::MS_NOSUID };
    mount_fs(Some(source), target, Some("tmpfs"), flags, Some(options)).on("mount", format!("tmpfs on {target}"))
}

/// Makes the mount at `path` read-only, itself alone.
pub fn seal(path: &str) -> Result<(), SysError> {
    mount::set_attributes(place(path)?.as_fd(), mount::RDONLY, false).on("mount_setattr", path)
}

/// Makes a directory of the sandbox.
pub fn directory(path: &str) -> Result<(), SysError> {
    mkdir(path, Mode::from_bits_truncate(0o755)).on("mkdir", path)
}

/// Makes a file of the sandbox that everyone in it can read.
pub fn file(path: &str, text: &str) -> Result<(), SysError> {
    let mut file = File::options().write(true).create_new(true).mode(0o444).open(path).on("create", path)?;
    file.write_all(text.as_bytes()).on("write", path)
}

/// Binds a directory or file of the host, or repeats it if it is a symlink, as `/bin` is on a merged-usr host.
pub fn bind_or_link(source: &str, target: &str) -> Result<(), SysError> {
    match std::fs::symlink_metadata(source) {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(()),
        Err(e) => Err(e).on("lstat", source),
        Ok(meta) if meta.is_symlink() => {
            let link = std::fs::read_link(source).on("readlink", source)?;
            std::os::unix::fs::symlink(link, target).on("symlink", target)
        }
        Ok(meta) => {
            if meta.is_dir() {
                directory(target)?
            } else {
                std::fs::write(target, "").on("create", target)?
            }
            let path = CString::new(source).map_err(|_| SysError::new("open_tree", source, Errno::EINVAL))?;
            bind(AT_FDCWD, &path, source, place(target)?.as_fd())
        }
    }
}

/// Clones the tree at `path`, takes write, setuid and devices from all of it, and attaches it.
fn bind(at: BorrowedFd<'_>, path: &std::ffi::CStr, name: &str, target: BorrowedFd<'_>) -> Result<(), SysError> {
    let tree = mount::clone_tree(at, path).on("open_tree", name)?;
    let mut attributes = mount::NODEV;
    if !off(Defence::ReadOnly) {
        attributes |= mount::RDONLY;
    }
    if !off(Defence::NoSuid) {
        attributes |= mount::NOSUID;
    }
    mount::set_attributes(tree.as_fd(), attributes, true).on("mount_setattr", name)?;
    mount::attach(tree.as_fd(), target).on("move_mount", name)
}

fn place(path: &str) -> Result<OwnedFd, SysError> {
    open(path, OFlag::O_PATH | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC, Mode::empty()).on("open", path)
}

/// Binds what the user asked for. No symlink is followed on either side: neither a prepared one in the source nor one in
/// a tree bound before it can lead anywhere else than what is written.
fn bind_for_user(bind_ro: &BindRo) -> Result<(), SysError> {
    let name = bind_ro.source.display().to_string();
    let source = resolve(&bind_ro.source, ResolveFlag::empty()).on("openat2", &*name).map_err(|e| match e.errno() {
        Errno::ELOOP => {
            e.hint("a part of this path is a symlink; name the place it leads to, if that is what you mean")
        }
        _ => e.hint("--bind-ro takes an existing path of the host"),
    })?;
    let is_dir = fstat(&source).on("fstat", &*name)?.st_mode & SFlag::S_IFMT.bits() == SFlag::S_IFDIR.bits();
    let target = bind_ro.target.strip_prefix("/").unwrap_or(&bind_ro.target);
    make_place(target, is_dir)?;
    let target_fd = resolve(target, ResolveFlag::RESOLVE_BENEATH)
        .on("openat2", format!("{} in the sandbox", target.display()))
        .map_err(|e| e.hint(TARGET_SYMLINK))?;
    bind(source.as_fd(), c"", &name, target_fd.as_fd())
}

/// Makes what is missing of `target` below the new root, one component at a time.
fn make_place(target: &Path, is_dir: bool) -> Result<(), SysError> {
    let ancestors: Vec<&Path> = target.ancestors().filter(|part| !part.as_os_str().is_empty()).collect();
    for part in ancestors.into_iter().rev() {
        let name = part.display().to_string();
        let made = match resolve(part, ResolveFlag::RESOLVE_BENEATH) {
            Ok(_) => continue,
            Err(Errno::ENOENT) if part == target && !is_dir => file(&name, ""),
            Err(Errno::ENOENT) => directory(&name),
            Err(errno) => return Err(SysError::new("openat2", name, errno).hint(TARGET_SYMLINK)),
        };
        made.map_err(|e| {
            e.hint("the target lies in a read-only part of the sandbox; choose one that exists, or another place")
        })?;
    }
    Ok(())
}

fn resolve(path: &Path, more: ResolveFlag) -> Result<OwnedFd, Errno> {
    let strictly = ResolveFlag::RESOLVE_NO_SYMLINKS | ResolveFlag::RESOLVE_NO_MAGICLINKS | more;
    let resolve = if off(Defence::BindSymlinks) { ResolveFlag::empty() } else { strictly };
    let how = OpenHow::new().flags(OFlag::O_PATH | OFlag::O_CLOEXEC).resolve(resolve);
    let path = CString::new(path.as_os_str().as_bytes()).map_err(|_| Errno::EINVAL)?;
    openat2(AT_FDCWD, path.as_c_str(), how)
}
