//! One file per kernel object, and the only place with `unsafe`.
//!
//! What `nix` wraps safely is used from there; here stands what it does not wrap. Functions return `Errno` or a
//! [`SysError`](crate::SysError); their callers name the object.

#![allow(unsafe_code)]

pub mod bytelock;
pub mod caps;
pub mod clone;
pub mod connector;
pub mod env;
pub mod epoll;
pub mod fd;
pub mod file;
pub mod ipc;
pub mod keyring;
pub mod memory;
pub mod mount;
pub mod names;
pub mod net;
#[cfg(feature = "mutation")]
pub mod page;
pub mod pidfd;
pub mod probe;
pub mod scheduling;
pub mod seccomp;
pub mod signal;
pub mod socket;
pub mod spawn;
pub mod user;
pub mod uts;
pub mod xattr;

/// Sandbox-init, built by `build.rs` from `src/sys/reaper/main.rs`.
pub const SANDBOX_INIT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/sandbox-init"));
