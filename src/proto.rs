//! Messages and services, generated from `proto/`: `UPDATE_PROTO=1 cargo test --test proto` after a change there.

pub mod codec;
pub mod containment;
pub mod limits;

/// Package `task_manager`: the service of the source design, and what was added to it.
#[allow(missing_docs, clippy::all, rust_2018_idioms)] // documented in proto/
#[rustfmt::skip]
pub mod task_manager;

/// The same as data, for reflection.
#[cfg(feature = "server")]
pub const DESCRIPTORS: &[u8] = include_bytes!("proto/descriptors.bin");
