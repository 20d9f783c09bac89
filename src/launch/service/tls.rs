//! The TLS files, which only root can read: opened here, checked on the open descriptor, and handed to the server.
//!
//! Names may be symlinks, as tools that replace certificates atomically make them; what counts is the file that was opened.
//! A file that others can write, or a key that others can read, is refused: it is nobody's secret.

use std::collections::BTreeSet;
use std::fs::{File, Metadata};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify};

use crate::config::Tls;
use crate::error::{Context, SysError};

/// No certificate chain, key or revocation list is larger.
const MOST: u64 = 16 << 20;

/// The opened files in the order of the message: CA, certificate, key and, if there is one, the revocation list.
pub struct Files {
    fds: Vec<OwnedFd>,
    /// Device, inode, size and time of each: equal means unchanged.
    marks: Vec<[i64; 5]>,
}

impl Files {
    /// Opens all of them, or says which one is wrong and what to do.
    pub fn open(tls: &Tls) -> Result<Self, SysError> {
        let paths = [(&tls.ca_cert, 0o022), (&tls.server_cert, 0o022), (&tls.server_key, 0o077)];
        let list = revocation_list(tls);
        let (mut fds, mut marks) = (Vec::new(), Vec::new());
        for (path, forbidden) in paths.into_iter().chain(list.as_ref().map(|path| (path, 0o022))) {
            let (file, meta) = checked(path, forbidden)?;
            fds.push(file.into());
            marks.push([meta.dev() as i64, meta.ino() as i64, meta.size() as i64, meta.mtime(), meta.mtime_nsec()]);
        }
        Ok(Self { fds, marks })
    }

    /// Whether these are the same files with the same contents as before.
    pub fn is_same(&self, before: &[[i64; 5]]) -> bool {
        self.marks == before
    }

    /// The descriptors to hand over, and what to compare the next ones with.
    pub fn into_parts(self) -> (Vec<OwnedFd>, Vec<[i64; 5]>) {
        (self.fds, self.marks)
    }
}

/// The configured list; or the one in a directory as `taskman certs` makes it. Where its index lies the list belongs to it, and
/// one that is lost is no reason to let everyone in again.
fn revocation_list(tls: &Tls) -> Option<PathBuf> {
    if tls.crl.is_some() {
        return tls.crl.clone();
    }
    let directory = tls.ca_cert.parent()?;
    let usual = ["ca.crt", "server.crt", "server.key"].map(|name| directory.join(name));
    let list = directory.join("crl.pem");
    let has_list = || list.exists() || directory.join("index.json").exists();
    (usual == [&*tls.ca_cert, &*tls.server_cert, &*tls.server_key] && has_list()).then_some(list)
}

fn checked(path: &Path, forbidden: u32) -> Result<(File, Metadata), SysError> {
    let name = path.display().to_string();
    // Not to be held up by a pipe that stands where a file should.
    let flags = libc::O_NONBLOCK | libc::O_NOCTTY;
    let file =
        File::options().read(true).custom_flags(flags).open(path).on("open", &*name).map_err(|error| {
            match error.errno() {
                Errno::ENOENT if path.ends_with("crl.pem") => {
                    error.hint("without it nobody is revoked; `taskman certs renew` makes it anew")
                }
                Errno::ENOENT => error.hint("make certificates with `taskman certs init`, or start with --dev"),
                _ => error,
            }
        })?;
    let meta = file.metadata().on("fstat", &*name)?;
    let refused = |why: String| Err(SysError::new("use", name.clone(), Errno::EPERM).hint(why));
    if !meta.is_file() || meta.size() > MOST {
        return refused("it is not a regular file of a sane size".to_owned());
    }
    if meta.uid() != 0 && meta.uid() != nix::unistd::geteuid().as_raw() {
        return refused(format!("it belongs to uid {}; chown it to root", meta.uid()));
    }
    if meta.mode() & forbidden != 0 {
        let (can, mode) = if forbidden == 0o077 { ("read", "600") } else { ("write to", "644") };
        return refused(format!("others than its owner can {can} it; chmod {mode} {name}"));
    }
    Ok((file, meta))
}

/// News from the directories that hold the files.
pub struct Changes(Inotify);

impl Changes {
    /// Begins to watch.
    pub fn watch(tls: &Tls) -> Result<Self, SysError> {
        let inotify = Inotify::init(InitFlags::IN_CLOEXEC | InitFlags::IN_NONBLOCK).on("inotify_init1", "TLS files")?;
        let files = [Some(&tls.ca_cert), Some(&tls.server_cert), Some(&tls.server_key), tls.crl.as_ref()];
        let directories: BTreeSet<&Path> = files.into_iter().flatten().filter_map(|path| path.parent()).collect();
        let news = AddWatchFlags::IN_CLOSE_WRITE
            | AddWatchFlags::IN_MOVED_TO
            | AddWatchFlags::IN_CREATE
            | AddWatchFlags::IN_DELETE
            | AddWatchFlags::IN_ATTRIB;
        for directory in directories {
            let directory = if directory.as_os_str().is_empty() { Path::new(".") } else { directory };
            inotify
                .add_watch(directory, news | AddWatchFlags::IN_ONLYDIR)
                .on("inotify_add_watch", directory.display().to_string())?;
        }
        Ok(Self(inotify))
    }

    /// Readable when there is news.
    pub fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }

    /// Takes the news. Whether it matters, the files themselves tell.
    pub fn clear(&self) {
        while self.0.read_events().is_ok_and(|events| !events.is_empty()) {}
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;
    use std::time::Duration;

    use super::*;

    fn make(directory: &Path) -> Tls {
        for (name, mode) in [("ca.crt", 0o644), ("server.crt", 0o644), ("server.key", 0o600)] {
            std::fs::write(directory.join(name), name).unwrap();
            std::fs::set_permissions(directory.join(name), std::fs::Permissions::from_mode(mode)).unwrap();
        }
        Tls {
            ca_cert: directory.join("ca.crt"),
            server_cert: directory.join("server.crt"),
            server_key: directory.join("server.key"),
            crl: None,
            handshake_timeout: Duration::from_secs(1),
        }
    }

    fn hint(tls: &Tls) -> String {
        Files::open(tls).map(|_| ()).unwrap_err().to_string()
    }

    #[test]
    fn what_others_can_read_or_write_is_refused_by_name() {
        let directory = tempfile::tempdir().unwrap();
        let tls = make(directory.path());
        let mode = |name: &str, mode| {
            std::fs::set_permissions(directory.path().join(name), std::fs::Permissions::from_mode(mode)).unwrap()
        };
        assert_eq!(Files::open(&tls).unwrap().into_parts().0.len(), 3);
        mode("server.key", 0o640);
        assert!(hint(&tls).contains("server.key") && hint(&tls).contains("chmod 600"), "{}", hint(&tls));
        mode("server.key", 0o400);
        mode("ca.crt", 0o664);
        assert!(hint(&tls).contains("ca.crt") && hint(&tls).contains("write"), "{}", hint(&tls));
        mode("ca.crt", 0o644);
        nix::unistd::chown(&tls.server_cert, Some(12345.into()), None).unwrap();
        assert!(hint(&tls).contains("12345"), "{}", hint(&tls));
        std::fs::remove_file(&tls.server_cert).unwrap();
        assert!(hint(&tls).contains("taskman certs init"), "{}", hint(&tls));
        // A pipe without a writer would hold up whoever opens it.
        nix::unistd::mkfifo(&tls.server_cert, nix::sys::stat::Mode::S_IRUSR).unwrap();
        assert!(hint(&tls).contains("not a regular file"), "{}", hint(&tls));
    }

    #[test]
    fn a_replaced_file_and_a_first_revocation_list_are_news() {
        let directory = tempfile::tempdir().unwrap();
        let tls = make(directory.path());
        let changes = Changes::watch(&tls).unwrap();
        let (fds, marks) = Files::open(&tls).unwrap().into_parts();
        assert_eq!(fds.len(), 3);
        assert!(Files::open(&tls).unwrap().is_same(&marks));
        std::fs::write(directory.path().join("index.json"), "index").unwrap();
        assert!(hint(&tls).contains("taskman certs renew"), "without its list: {}", hint(&tls));
        std::fs::write(directory.path().join("crl.pem"), "list").unwrap();
        assert!(changes.0.read_events().is_ok_and(|events| !events.is_empty()));
        let (fds, marks) = Files::open(&tls).unwrap().into_parts();
        assert_eq!(fds.len(), 4);
        changes.clear();
        std::fs::write(directory.path().join("new"), "other").unwrap();
        std::fs::rename(directory.path().join("new"), &tls.server_cert).unwrap();
        assert!(changes.0.read_events().is_ok_and(|events| !events.is_empty()));
        assert!(!Files::open(&tls).unwrap().is_same(&marks));
    }
}
