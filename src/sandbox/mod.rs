//! The sandbox.

pub mod seccomp;
