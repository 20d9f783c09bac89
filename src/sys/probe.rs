//! Whether the kernel, and whatever filter this process already runs under, lets a system call through.
//!
//! Each call is made with arguments it must refuse, so that the answer is all it gives: `ENOSYS` or `EPERM` means that it
//! is not to be had, any other error that it was looked at.

use nix::errno::Errno;

/// Calls that starting a sandbox needs, the first kernel that has each, and arguments that no kernel accepts.
const CALLS: [(&str, libc::c_long, [libc::c_long; 5]); 14] = [
    ("clone3", libc::SYS_clone3, [0; 5]),                     // a structure of no bytes
    ("pidfd_open", libc::SYS_pidfd_open, [-1, 0, 0, 0, 0]),   // no such process id
    ("close_range", libc::SYS_close_range, [1, 0, 0, 0, 0]),  // first above last
    ("open_tree", libc::SYS_open_tree, [-1, 0, -1, 0, 0]),    // flags that do not exist
    ("move_mount", libc::SYS_move_mount, [-1, 0, -1, 0, -1]), // flags that do not exist
    ("mount_setattr", libc::SYS_mount_setattr, [-1, 0, 0, 0, 0]), // a structure of no bytes
    ("pivot_root", libc::SYS_pivot_root, [0; 5]),             // no paths
    ("seccomp", libc::SYS_seccomp, [-1, 0, 0, 0, 0]),         // no such operation
    ("mount", libc::SYS_mount, [0; 5]),                       // no path
    ("umount2", libc::SYS_umount2, [0, -1, 0, 0, 0]),         // flags that do not exist
    ("unshare", libc::SYS_unshare, [-1, 0, 0, 0, 0]),         // flags that do not exist
    ("sethostname", libc::SYS_sethostname, [0, -1, 0, 0, 0]), // a name of less than no bytes
    ("setdomainname", libc::SYS_setdomainname, [0, -1, 0, 0, 0]), // the same
    ("keyctl", libc::SYS_keyctl, [1, -1, 0, 0, 0]),           // a name at no address
];

/// The calls that are refused, with the answer.
pub fn refused_calls() -> Vec<(&'static str, Errno)> {
    let refused = |(name, number, [a, b, c, d, e]): (&'static str, libc::c_long, [libc::c_long; 5])| {
        // SAFETY: every pointer among the arguments is null or at no address, and the sizes and flags beside them make each call return
        // before it reads memory or changes anything.
        let answer = unsafe { libc::syscall(number, a, b, c, d, e) };
        match Errno::result(answer) {
            Err(errno @ (Errno::ENOSYS | Errno::EPERM)) => Some((name, errno)),
            _ => None,
        }
    };
    CALLS.into_iter().filter_map(refused).collect()
}

#[cfg(test)]
mod tests {
    use nix::mount::{MsFlags, mount};
    use nix::sched::{CloneFlags, unshare};

    #[test]
    fn probing_changes_nothing_and_finds_every_call_here() {
        let probe = || {
            // In a mount namespace of this thread's own: in the host's, others mount too.
            unshare(CloneFlags::CLONE_NEWNS).unwrap();
            let nothing = None::<&str>;
            mount(nothing, "/", nothing, MsFlags::MS_REC | MsFlags::MS_PRIVATE, nothing).unwrap();
            let mounts = || std::fs::read_to_string("/proc/thread-self/mountinfo").unwrap();
            let before = mounts();
            assert_eq!(super::refused_calls(), []);
            assert_eq!(mounts(), before);
        };
        std::thread::scope(|scope| scope.spawn(probe).join().unwrap());
    }
}
