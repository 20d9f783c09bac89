//! Messages and services generated from `proto/`.

pub mod codec;
pub mod containment;

/// Package `task_manager`: the service of the source design, and what was added to it.
#[allow(missing_docs, clippy::all, rust_2018_idioms)] // generated; documented in proto/
pub mod task_manager {
    tonic::include_proto!("task_manager");
}

/// The same as data, for reflection.
pub const DESCRIPTORS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/descriptors.bin"));
