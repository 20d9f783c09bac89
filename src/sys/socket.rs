//! What travels over a unix socket beside the bytes: descriptors, and who the kernel says has sent them.

use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use nix::errno::Errno;

/// The most descriptors the kernel puts into one message (SCM_MAX_FD).
const MAX_FDS: usize = 253;

/// The sender, as the kernel saw it; the pid is the receiver's number for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sender {
    /// Its process.
    pub pid: i32,
    /// Its uid.
    pub uid: u32,
}

/// One receipt.
#[derive(Debug)]
pub struct Received {
    /// Bytes stored in the buffer.
    pub bytes: usize,
    /// Descriptors, all close-on-exec.
    pub fds: Vec<OwnedFd>,
    /// Known when the socket has SO_PASSCRED.
    pub sender: Option<Sender>,
    /// Bytes were lost for want of room.
    pub truncated: bool,
    /// Descriptors were lost: there was no room, or this process can open no more.
    pub cut: bool,
}

/// Receives without blocking. Whatever descriptors came are owned by the answer.
pub fn receive(socket: BorrowedFd<'_>, buffer: &mut [u8]) -> Result<Received, Errno> {
    // SAFETY: CMSG_SPACE only computes.
    const ROOM: usize = unsafe {
        libc::CMSG_SPACE((MAX_FDS * size_of::<libc::c_int>()) as u32) as usize
            + libc::CMSG_SPACE(size_of::<libc::ucred>() as u32) as usize
    };
    // Words, because control messages are aligned to them.
    let mut control = [0u64; ROOM.div_ceil(8)];
    let mut piece = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
    // SAFETY: all-zero is a valid msghdr.
    let mut header: libc::msghdr = unsafe { std::mem::zeroed() };
    header.msg_iov = &raw mut piece;
    header.msg_iovlen = 1;
    header.msg_control = control.as_mut_ptr().cast();
    header.msg_controllen = ROOM;
    let flags = libc::MSG_DONTWAIT | libc::MSG_CMSG_CLOEXEC;
    // SAFETY: the header points to `buffer` and `control`, which live here, with their true lengths.
    let bytes = Errno::result(unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut header, flags) })? as usize;
    let [truncated, cut] = [libc::MSG_TRUNC, libc::MSG_CTRUNC].map(|flag| header.msg_flags & flag != 0);
    let mut received = Received { bytes, fds: Vec::new(), sender: None, truncated, cut };
    // SAFETY: the kernel has set msg_controllen to what it wrote; the macros stay within it.
    let mut message = unsafe { libc::CMSG_FIRSTHDR(&raw const header) };
    while !message.is_null() {
        // SAFETY: not null, so a whole header stands there.
        let (level, kind, length) = unsafe { ((*message).cmsg_level, (*message).cmsg_type, (*message).cmsg_len) };
        // SAFETY: CMSG_LEN only computes; CMSG_DATA stays within the message.
        let (head, data) = unsafe { (libc::CMSG_LEN(0) as usize, libc::CMSG_DATA(message)) };
        let size = length.saturating_sub(head);
        match (level, kind) {
            (libc::SOL_SOCKET, libc::SCM_RIGHTS) => {
                for at in 0..size / size_of::<libc::c_int>() {
                    // SAFETY: `size` bytes of descriptors stand at `data`; each is new and owned by nobody else.
                    received
                        .fds
                        .push(unsafe { OwnedFd::from_raw_fd(data.cast::<libc::c_int>().add(at).read_unaligned()) });
                }
            }
            (libc::SOL_SOCKET, libc::SCM_CREDENTIALS) if size >= size_of::<libc::ucred>() => {
                // SAFETY: a whole ucred stands at `data`.
                let from = unsafe { data.cast::<libc::ucred>().read_unaligned() };
                received.sender = Some(Sender { pid: from.pid, uid: from.uid });
            }
            _ => {}
        }
        // SAFETY: both come from this very receipt.
        message = unsafe { libc::CMSG_NXTHDR(&raw const header, message) };
    }
    Ok(received)
}
