//! End-to-end tests: the real binary on the real kernel, one file per topic. A missing privilege or tool fails; nothing
//! is skipped.
#![allow(clippy::unwrap_used)] // a test that cannot go on fails
#![allow(clippy::disallowed_methods)] // the tests stand outside taskman: they start it, in threads, and wait for it

mod binds;
mod doctor;
mod identity;
mod inside;
mod library;
mod limits;
mod outcomes;
mod procview;
mod rootfs;
mod run;
mod runtimes;
mod start_errors;
mod streams;
#[path = "../support/mod.rs"]
mod support;
