//! # taskman: run any Linux command, contained, and prove it

pub mod cgroup;
pub mod error;
pub mod mutation;
pub mod sandbox;
pub mod sys;
pub mod task;

pub use error::{StartError, SysError};
