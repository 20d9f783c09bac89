//! End-to-end tests: the real binary on the real kernel, one file per topic. A missing privilege or tool fails; nothing
//! is skipped.
#![allow(clippy::unwrap_used)] // a test that cannot go on fails
#![allow(clippy::disallowed_methods)] // the tests stand outside taskman: they start it, in threads, and wait for it

mod above;
mod api;
mod audit;
mod auditor;
mod binds;
mod cancelled;
mod certs;
mod deaths;
mod doctor;
mod evasion;
mod exhaustion;
mod files;
mod first_hour;
mod foreign;
mod get_status;
mod health;
mod held;
mod identity;
mod inside;
mod journal;
mod library;
mod limits;
mod list;
mod metrics;
mod not_inside;
mod notify;
mod outcomes;
mod payloads;
mod powerless;
mod procview;
mod quarantine;
mod readme;
mod restarts;
mod retention;
mod rootfs;
mod run;
mod runbooks;
mod runtimes;
mod shutdown;
mod signal;
mod soak;
mod start;
mod start_errors;
mod stop;
mod stream;
mod streams;
mod stuck_output;
#[path = "../support/mod.rs"]
mod support;
mod wait;
mod warm;
