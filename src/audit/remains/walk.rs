//! A walk through trees that anybody may have built, as deep, wide and crooked as they liked.
//!
//! It goes one level at a time, by descriptor: no path is ever longer than one name, no link is followed, no mount is crossed. A
//! few levels are open at once; a level above them is opened again as the parent of the one below, if it still is. What one
//! account may cost is bounded, and so is the whole: beyond that, and where it could not look, it says so.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ffi::{CStr, CString, OsStr};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use nix::dir::Dir;
use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag, openat};
use nix::sys::stat::{FileStat, Mode, fstat, fstatat};

use super::file::{File, is_directory, open_below, open_root};
use super::lease::Leases;
use crate::error::SysError;
use crate::mutation::{Defence, off};

/// What a walk may cost.
#[derive(Debug, Clone, Copy)]
pub struct Bounds {
    /// Entries of one root that are looked at.
    pub entries: usize,
    /// Entries that one account's directories may have in all: no more of them are entered. Root is trusted.
    pub of_one: usize,
    /// Bytes of the paths of what is found, and places that could not be looked into.
    pub told: usize,
    pub unseen: usize,
}

impl Default for Bounds {
    fn default() -> Self {
        Self { entries: 10_000_000, of_one: 1_000_000, told: 64 << 20, unseen: 64 }
    }
}

/// Levels that are open at once.
const OPEN: usize = 32;

/// One walk, through one root after another.
pub struct Walk<'a> {
    leases: &'a Leases,
    bounds: Bounds,
    cost: HashMap<u32, usize>,
    told: usize,
    pub found: Vec<File>,
    /// By path: why.
    pub unseen: BTreeMap<PathBuf, String>,
    /// Accounts of which it was said that they have too much.
    spent: BTreeSet<u32>,
}

struct Level {
    name: CString,
    /// None where it was closed for those below it. The first and the last are always open.
    dir: Option<OwnedFd>,
    id: (u64, u64),
    /// Directories that are still to be entered, and whose they are.
    pending: Vec<(CString, u32)>,
}

impl<'a> Walk<'a> {
    pub fn new(leases: &'a Leases, bounds: Bounds) -> Self {
        let (found, unseen, spent) = (Vec::new(), BTreeMap::new(), BTreeSet::new());
        Self { leases, bounds, cost: HashMap::new(), told: 0, found, unseen, spent }
    }

    /// Looks at everything below `root`.
    pub fn below(&mut self, root: &Path) -> Result<(), SysError> {
        let mut left = self.bounds.entries;
        let top = open_root(root).and_then(|top| open_below(&top, OsStr::new("."), OFlag::O_RDONLY));
        let mut levels = Vec::new();
        match top {
            Ok(top) => self.enter(root, &mut levels, c".", top, &mut left)?,
            Err(Errno::ENOENT) => {}
            Err(errno) => self.could_not_look(root.to_owned(), errno.to_string()),
        }
        while let Some(level) = levels.last_mut() {
            let Some((name, owner)) = level.pending.pop() else {
                self.leave(root, &mut levels);
                continue;
            };
            if left == 0 {
                let why = format!("it has more than {} files", self.bounds.entries);
                self.could_not_look(root.to_owned(), why);
                return Ok(());
            }
            if self.is_spent(owner, || path_of(root, &levels, &name)) {
                continue;
            }
            if off(Defence::LevelWalk) && path_of(root, &levels, &name).as_os_str().len() > libc::PATH_MAX as usize {
                self.could_not_look(path_of(root, &levels, &name), Errno::ENAMETOOLONG.to_string());
                continue;
            }
            let dir = levels
                .last()
                .and_then(|level| level.dir.as_ref())
                .map(|dir| open_below(dir, os(&name), OFlag::O_RDONLY));
            match dir {
                Some(Ok(dir)) => self.enter(root, &mut levels, &name, dir, &mut left)?,
                // Gone, or another thing by now; or another file system.
                None | Some(Err(Errno::ENOENT | Errno::ENOTDIR | Errno::ELOOP | Errno::EXDEV)) => {}
                Some(Err(errno)) => self.could_not_look(path_of(root, &levels, &name), errno.to_string()),
            }
        }
        Ok(())
    }

    /// Lists a directory, and makes it the last level.
    fn enter(
        &mut self,
        root: &Path,
        levels: &mut Vec<Level>,
        name: &CStr,
        fd: OwnedFd,
        left: &mut usize,
    ) -> Result<(), SysError> {
        let here = fstat(&fd).and_then(|meta| Ok((meta, Dir::from_fd(fd.try_clone().map_err(|_| Errno::EMFILE)?)?)));
        let (meta, mut entries) = match here {
            Ok(here) => here,
            Err(errno) => {
                self.could_not_look(path_of(root, levels, name), errno.to_string());
                return Ok(());
            }
        };
        let (id, owner) = ((meta.st_dev, meta.st_ino), meta.st_uid);
        levels.push(Level { name: name.to_owned(), dir: Some(fd), id, pending: Vec::new() });
        for entry in entries.iter() {
            let name = match entry {
                Ok(entry) => entry.file_name().to_owned(),
                Err(errno) => {
                    self.could_not_look(path_of(root, levels, c""), errno.to_string());
                    break;
                }
            };
            if [c".", c".."].contains(&name.as_c_str()) {
                continue;
            }
            *left = left.saturating_sub(1);
            // Whoever owns the directory has let them be made; in one of root's, such as /tmp, everybody pays for what is theirs.
            let Some(level) = levels.last() else { break };
            let Some(Ok(meta)) = level.dir.as_ref().map(|dir| stat(dir, &name)) else { continue };
            let payer = if owner == 0 { meta.st_uid } else { owner };
            *self.cost.entry(payer).or_default() += 1;
            if *left == 0 || (owner != 0 && self.is_spent(owner, || path_of(root, levels, c""))) {
                break;
            }
            self.look_at(root, levels, name, &meta)?;
        }
        // All but the first and the last few.
        if let Some(above) = levels.len().checked_sub(OPEN + 1).filter(|above| *above > 0) {
            levels[above].dir = None;
        }
        Ok(())
    }

    fn look_at(&mut self, root: &Path, levels: &mut [Level], name: CString, meta: &FileStat) -> Result<(), SysError> {
        let directory = is_directory(meta.st_mode);
        if self.leases.is_nobodys(meta.st_uid)? {
            let below = path_of(Path::new(""), levels, &name);
            self.told += below.as_os_str().len();
            match self.told <= self.bounds.told {
                true => self.found.push(File::new(root, below, meta.st_uid, directory)),
                false => self.could_not_look(root.to_owned(), "it has more files of tasks than can be told".to_owned()),
            }
        }
        if directory && let Some(level) = levels.last_mut() {
            level.pending.push((name, meta.st_uid));
        }
        Ok(())
    }

    /// Goes back up.
    fn leave(&mut self, root: &Path, levels: &mut Vec<Level>) {
        let Some(done) = levels.pop() else { return };
        let Some(above) = levels.last_mut().filter(|above| above.dir.is_none()) else { return };
        above.dir = done.dir.as_ref().and_then(|dir| parent(dir, above.id));
        // It was moved meanwhile. What is open further up is gone on with.
        while let Some(level) = levels.last().filter(|level| level.dir.is_none()) {
            if !level.pending.is_empty() {
                self.could_not_look(path_of(root, levels, c""), "it was moved while it was looked at".to_owned());
            }
            levels.pop();
        }
    }

    /// Whether an account has more than may be looked at; it is said once.
    fn is_spent(&mut self, owner: u32, path: impl Fn() -> PathBuf) -> bool {
        let spent = owner != 0 && self.cost.get(&owner).is_some_and(|cost| *cost > self.bounds.of_one);
        if spent && self.spent.insert(owner) {
            let why = format!("uid {owner} has more than {} files; no more of its directories are", self.bounds.of_one);
            self.could_not_look(path(), why);
        }
        spent
    }

    fn could_not_look(&mut self, path: PathBuf, why: String) {
        if self.unseen.len() < self.bounds.unseen {
            self.unseen.entry(path).or_insert(why);
        }
    }
}

/// Only if it is that directory still.
fn parent(dir: &OwnedFd, id: (u64, u64)) -> Option<OwnedFd> {
    let parent = openat(dir, "..", OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC, Mode::empty()).ok()?;
    let meta = fstat(&parent).ok()?;
    ((meta.st_dev, meta.st_ino) == id).then_some(parent)
}

fn stat(dir: &OwnedFd, name: &CStr) -> Result<FileStat, Errno> {
    fstatat(dir, name, AtFlags::AT_SYMLINK_NOFOLLOW | AtFlags::AT_NO_AUTOMOUNT)
}

fn os(name: &CStr) -> &OsStr {
    OsStr::from_bytes(name.to_bytes())
}

/// Below the first level, which is the root itself.
fn path_of(root: &Path, levels: &[Level], name: &CStr) -> PathBuf {
    let names = levels.iter().skip(1).map(|level| os(&level.name)).chain([os(name)]);
    names.filter(|name| !name.is_empty()).fold(root.to_owned(), |path, name| path.join(name))
}
