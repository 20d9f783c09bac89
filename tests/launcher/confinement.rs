//! What the server's process is once it has split off: nobody, with nothing to hold on to.

use std::os::fd::AsFd;

use nix::errno::Errno;
use nix::sched::{CloneFlags, unshare};
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::{Pid, pipe};
use taskman::server::split::become_server;
use taskman::sys::clone::{InChild, Side, split};

use crate::stage::Case;

const UID: u32 = 1_899_999_999;

pub fn cases() -> Vec<Case> {
    vec![("the_server_is_powerless_and_still_works", the_server_is_powerless_and_still_works)]
}

fn the_server_is_powerless_and_still_works() {
    let secret = std::fs::File::open("/etc/shadow").unwrap();
    let (end, other) = pipe().unwrap();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let _client = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    match split().unwrap() {
        Side::Child(child) => {
            std::mem::forget(secret);
            let code = std::panic::catch_unwind(|| server_side(child, &end, &listener)).map_or(1, |()| 0);
            std::process::exit(code)
        }
        Side::Parent(pid, _) => {
            drop(other);
            let status = waitpid(Pid::from_raw(pid), None).unwrap();
            assert_eq!(status, WaitStatus::Exited(Pid::from_raw(pid), 0), "see its message above");
        }
    }
}

fn server_side(child: InChild, kept: &std::os::fd::OwnedFd, listener: &std::net::TcpListener) {
    // Not dropped: they are closed by number.
    become_server(child, nix::unistd::getppid(), UID, &[kept.as_fd(), listener.as_fd()]).unwrap();
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    for line in ["NoNewPrivs:\t1", "Seccomp:\t2", "CapBnd:\t0000000000000000", "CapEff:\t0000000000000000"] {
        assert!(status.contains(line), "{line} is not in {status}");
    }
    assert!(std::fs::File::open("/etc/shadow").is_err());
    assert!(nix::unistd::setuid(0.into()).is_err());
    assert_eq!(nix::unistd::execve(c"/bin/true", &[c"true"], &[c""]), Err(Errno::ENOSYS));
    assert_eq!(unshare(CloneFlags::CLONE_NEWUSER), Err(Errno::ENOSYS));
    let none: Option<&str> = None;
    assert_eq!(nix::mount::mount(none, "/", none, nix::mount::MsFlags::MS_BIND, none), Err(Errno::ENOSYS));
    assert_eq!(nix::sys::prctl::get_dumpable(), Ok(false));
    // The kept two and the standard streams are open, and nothing else.
    let open: Vec<i32> = (0..1024).filter(|number| is_open(*number)).collect();
    assert_eq!(open.len(), 5, "{open:?}");
    // What a server does.
    let thread = std::thread::Builder::new().spawn(|| 7).unwrap();
    assert_eq!(thread.join().unwrap(), 7);
    taskman::wire::pair().unwrap();
    let listener = std::net::TcpListener::from(listener.as_fd().try_clone_to_owned().unwrap());
    let (accepted, _) = listener.accept().unwrap();
    accepted.set_nonblocking(true).unwrap();
    accepted.set_nodelay(true).unwrap();
    // What would outlive it, reach out, or hold up the launcher. (What it may ask of a terminal is tested with the filter.)
    assert_eq!(split().map(|_| ()), Err(Errno::ENOSYS), "a process of its own");
    assert_eq!(std::net::TcpStream::connect("127.0.0.1:1").unwrap_err().raw_os_error(), Some(libc::ENOSYS));
    assert_eq!(std::net::UdpSocket::bind("127.0.0.1:0").unwrap_err().raw_os_error(), Some(libc::ENOSYS));
    let linger = libc::linger { l_onoff: 1, l_linger: 3600 };
    assert_eq!(nix::sys::socket::setsockopt(&accepted, nix::sys::socket::sockopt::Linger, &linger), Err(Errno::ENOSYS));
}

fn is_open(number: i32) -> bool {
    std::path::Path::new(&format!("/proc/self/fd/{number}")).symlink_metadata().is_ok()
}
