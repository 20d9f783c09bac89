//! taskman inside a container that is not privileged, made by the runtimes that Docker, Podman and Kubernetes use, from the
//! files in `deploy/containers/` that people are given.
//!
//! Needs root, crun and runc, on either layout of control groups. Every case is run with both runtimes.
#![allow(clippy::unwrap_used, missing_docs)]
#![allow(clippy::disallowed_methods)] // a runtime is started as anyone would

#[path = "../support/mod.rs"]
#[allow(dead_code, unused_imports)] // what the end-to-end tests share, of which this takes a part
mod support;

mod cases {
    mod contained;
    mod refused;
    mod server;
}
mod container;
mod findings;
#[path = "../support/placement.rs"]
mod placement;
#[path = "../support/probes.rs"]
mod probes;
