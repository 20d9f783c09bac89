//! One message per packet, with the descriptors that belong to it and the sender as the kernel names it.
//!
//! ```text
//! byte 0      version
//! byte 1      where the JSON is: 0 in this packet, 1 in a sealed memfd that is the first descriptor
//! bytes 2..6  its length, little endian
//! bytes 6..   the JSON itself, in the first case
//! ```
//!
//! A memfd is read only when its seals say that nobody can change or shorten it any more, so that reading it neither
//! blocks nor fails halfway; a pipe or a file in its place has no such seals and is refused unread.

use std::fs::File;
use std::io::{IoSlice, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, SealFlag, fcntl};
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::socket::{
    AddressFamily, ControlMessage, MsgFlags, SockFlag, SockType, sendmsg, setsockopt, socketpair, sockopt,
};
use nix::sys::stat::fstat;
use nix::sys::uio::pread;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::error::{Context, SysError};
use crate::sys::fd;
use crate::sys::socket::{self, Sender};

/// The only version spoken; both ends come from one binary, so a difference means that something is badly wrong.
pub const VERSION: u8 = 1;
/// The largest message.
pub const MAX_MESSAGE: usize = 4 << 20;
/// The most descriptors that belong to one message.
pub const MAX_FDS: usize = 8;

/// Larger messages travel in a memfd.
const MAX_INLINE: usize = 32 << 10;
const HEADER: usize = 6;
const INLINE: u8 = 0;
const MEMFD: u8 = 1;
/// Room for a few messages of any size, whatever the host's default is.
const SEND_BUFFER: usize = 256 << 10;

/// Why a packet was not sent or not accepted.
#[derive(Debug, thiserror::Error)]
pub enum PacketError {
    /// There is no room, or nothing to receive, just now.
    #[error("the socket is not ready")]
    WouldBlock,
    /// The other end is gone.
    #[error("the other end of the socket is closed")]
    Closed,
    /// The message is larger than [`MAX_MESSAGE`].
    #[error("a message of {0} bytes is larger than {MAX_MESSAGE}")]
    TooLarge(usize),
    /// More descriptors than [`MAX_FDS`].
    #[error("{0} descriptors are more than {MAX_FDS}")]
    TooManyDescriptors(usize),
    /// Another version.
    #[error("version {0} is spoken, {VERSION} is understood")]
    Version(u8),
    /// The bytes are no message.
    #[error("malformed packet: {0}")]
    Malformed(String),
    /// The kernel refused.
    #[error(transparent)]
    Sys(#[from] SysError),
}

/// A message and what came with it.
#[derive(Debug)]
pub struct Packet<T> {
    /// The message.
    pub message: T,
    /// Its descriptors.
    pub fds: Vec<OwnedFd>,
    /// Who sent it.
    pub sender: Sender,
    /// Not all of its descriptors could be received: this process can open no more.
    pub cut: bool,
}

/// Two connected ends. Neither blocks, and each names the sender of what it receives.
pub fn pair() -> Result<(OwnedFd, OwnedFd), SysError> {
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let (one, other) =
        socketpair(AddressFamily::Unix, SockType::SeqPacket, None, flags).on("socketpair", "unix seqpacket")?;
    let prepared = |end: OwnedFd| {
        setsockopt(&end, sockopt::PassCred, &true).on("setsockopt", "SO_PASSCRED")?;
        // A host may allow less; what counts is that one whole packet fits, and the default takes that too.
        let _ = setsockopt(&end, sockopt::SndBuf, &SEND_BUFFER);
        // A child of the launcher assigns low numbers itself.
        fd::lift(end).on("fcntl", "unix seqpacket")
    };
    Ok((prepared(one)?, prepared(other)?))
}

/// Sends one message. Never blocks, never sends half.
pub fn send<T: Serialize>(socket: BorrowedFd<'_>, message: &T, fds: &[BorrowedFd<'_>]) -> Result<(), PacketError> {
    let json = serde_json::to_vec(message).map_err(|error| PacketError::Malformed(error.to_string()))?;
    if json.len() > MAX_MESSAGE {
        return Err(PacketError::TooLarge(json.len()));
    }
    if fds.len() > MAX_FDS {
        return Err(PacketError::TooManyDescriptors(fds.len()));
    }
    let aside = if json.len() > MAX_INLINE { Some(sealed(&json)?) } else { None };
    let kind = if aside.is_some() { MEMFD } else { INLINE };
    let mut header = [VERSION, kind, 0, 0, 0, 0];
    header[2..].copy_from_slice(&(json.len() as u32).to_le_bytes());
    let inline: &[u8] = if aside.is_some() { &[] } else { &json };
    let passed: Vec<_> = aside.iter().map(|fd| fd.as_raw_fd()).chain(fds.iter().map(|fd| fd.as_raw_fd())).collect();
    let rights = [ControlMessage::ScmRights(&passed)];
    let control = if passed.is_empty() { &rights[..0] } else { &rights[..] };
    let flags = MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_NOSIGNAL;
    let bytes = [IoSlice::new(&header), IoSlice::new(inline)];
    match sendmsg::<()>(socket.as_raw_fd(), &bytes, control, flags, None) {
        Ok(_) => Ok(()),
        Err(Errno::EAGAIN | Errno::EINTR) => Err(PacketError::WouldBlock),
        Err(Errno::EPIPE | Errno::ECONNRESET) => Err(PacketError::Closed),
        Err(errno) => Err(SysError::new("sendmsg", "unix seqpacket", errno).into()),
    }
}

/// Receives one message, or None when the other end is closed. Never blocks.
pub fn receive<T: DeserializeOwned>(socket: BorrowedFd<'_>) -> Result<Option<Packet<T>>, PacketError> {
    let mut refused = Vec::new();
    let received = receive_or_refuse(socket, &mut refused);
    abandon(refused);
    received
}

/// Leaves the descriptors of a packet that is not accepted in `refused`.
fn receive_or_refuse<T: DeserializeOwned>(
    socket: BorrowedFd<'_>,
    refused: &mut Vec<OwnedFd>,
) -> Result<Option<Packet<T>>, PacketError> {
    let mut buffer = vec![0; HEADER + MAX_INLINE];
    let received = match socket::receive(socket, &mut buffer) {
        // It closed its end without having read all that was sent to it. The kernel says so once, ahead of its last words.
        Err(Errno::ECONNRESET) => socket::receive(socket, &mut buffer),
        received => received,
    };
    let received = match received {
        Ok(received) => received,
        Err(Errno::EAGAIN | Errno::EINTR) => return Err(PacketError::WouldBlock),
        Err(Errno::ECONNRESET) => return Ok(None),
        Err(errno) => return Err(SysError::new("recvmsg", "unix seqpacket", errno).into()),
    };
    let Some(sender) = received.sender else {
        // Even an empty packet names its sender; the end of the connection does not.
        return if received.bytes == 0 { Ok(None) } else { Err(malformed("it does not name its sender")) };
    };
    let mut fds = received.fds;
    let message = if received.truncated {
        Err(malformed("it did not fit"))
    } else {
        understand(&buffer[..received.bytes], &mut fds)
    };
    match message {
        Ok(message) => Ok(Some(Packet { message, fds, sender, cut: received.cut })),
        Err(error) => {
            *refused = fds;
            Err(error)
        }
    }
}

/// Descriptors from a peer that breaks the rules are left open. The close of the last copy can wait for as long as the peer
/// likes (a socket that lingers), and whoever has such a peer ends soon: then the kernel closes without waiting.
pub fn abandon(fds: Vec<OwnedFd>) {
    fds.into_iter().for_each(std::mem::forget);
}

/// The message in a packet, and in its first descriptor if that is where it is.
fn understand<T: DeserializeOwned>(packet: &[u8], fds: &mut Vec<OwnedFd>) -> Result<T, PacketError> {
    let (header, inline) = packet.split_at_checked(HEADER).ok_or_else(|| malformed("no header"))?;
    if header[0] != VERSION {
        return Err(PacketError::Version(header[0]));
    }
    let length = u32::from_le_bytes([header[2], header[3], header[4], header[5]]) as usize;
    let aside = usize::from(header[1] == MEMFD);
    if fds.len() > MAX_FDS + aside {
        return Err(PacketError::TooManyDescriptors(fds.len() - aside));
    }
    match header[1] {
        INLINE if inline.len() == length => parse(inline),
        MEMFD if inline.is_empty() && !fds.is_empty() => {
            let json = unsealed(fds[0].as_fd(), length)?;
            // Sealed memory: nothing to wait for.
            drop(fds.remove(0));
            parse(&json)
        }
        INLINE | MEMFD => Err(malformed("its length is not the one it states")),
        _ => Err(malformed("of unknown kind")),
    }
}

fn malformed(what: &str) -> PacketError {
    PacketError::Malformed(what.to_owned())
}

fn parse<T: DeserializeOwned>(json: &[u8]) -> Result<T, PacketError> {
    serde_json::from_slice(json).map_err(|error| PacketError::Malformed(error.to_string()))
}

/// What nobody can change between the look and the use.
fn seals() -> SealFlag {
    SealFlag::F_SEAL_WRITE | SealFlag::F_SEAL_SHRINK | SealFlag::F_SEAL_GROW
}

fn sealed(json: &[u8]) -> Result<OwnedFd, SysError> {
    let memory = memfd_create(c"taskman-message", MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING)
        .on("memfd_create", "taskman-message")?;
    let mut file = File::from(memory);
    file.write_all(json).on("write", "taskman-message")?;
    fcntl(&file, FcntlArg::F_ADD_SEALS(seals())).on("fcntl", "seals of taskman-message")?;
    Ok(file.into())
}

fn unsealed(memory: BorrowedFd<'_>, length: usize) -> Result<Vec<u8>, PacketError> {
    if length > MAX_MESSAGE {
        return Err(PacketError::TooLarge(length));
    }
    let found = fcntl(memory, FcntlArg::F_GET_SEALS).map(SealFlag::from_bits_retain);
    if !found.is_ok_and(|found| found.contains(seals())) {
        return Err(malformed("its first descriptor is not a sealed memfd"));
    }
    if fstat(memory).on("fstat", "taskman-message")?.st_size != length as i64 {
        return Err(malformed("its memfd has not the length it states"));
    }
    let mut json = vec![0; length];
    let mut done = 0;
    while done < length {
        match pread(memory, &mut json[done..], done as i64).on("pread", "taskman-message")? {
            0 => return Err(malformed("its memfd has not the length it states")),
            read => done += read,
        }
    }
    Ok(json)
}

#[cfg(test)]
#[path = "packet_tests.rs"]
mod tests;
