//! # taskman: run any Linux command, contained, and prove it
//!
//! ```text
//!  taskman run ──▶ Launcher::start ──clone3: into cgroup + six namespaces──▶ sandbox-init (pid 1) ──fork──▶ payload (pid 2)
//!  (root, one thread)     │                                                        │ reaps, forwards           │ stdin, stdout, stderr
//!        ▲                └──▶ cgroup (limits), uid (pool)                         │                           │
//!        └── Task::wait ◀── exit status over a pipe ◀──────────────────────────────┘     pipes ◀───────────────┘
//!               │
//!               └──▶ end: cgroup.kill, wait until empty, remove ──▶ prove: ask the kernel what is left ──▶ Report
//! ```
//!
//! The folders stand in the order the data flows:
//!
//! | module | why it exists |
//! |---|---|
//! | [`task`] | pure data: what to run, its limits, what came of it |
//! | [`cli`] | the `taskman` command; uses nothing but this library's public API |
//! | [`client`] | the way to a server: mutual TLS, one method per verb, errors that say what to do |
//! | [`doctor`] | what this host can enforce, in words that `taskman run` repeats when it refuses |
//! | [`output`] | what tasks write: from pipes to disk, from disk to any number of readers; never in memory |
//! | [`store`] | what the server remembers of every task, on disk before anybody is told |
//! | [`server`] | the network-facing process: identity, ownership, records, streams, and no privilege |
//! | [`audit`] | the auditor: what escapes is found by the kernel's word alone, killed and written down |
//! | [`containment`] | findings, the journal, and whether this worker takes tasks |
//! | [`wire`] | what server and launcher say to each other; neither trusts it unchecked |
//! | [`launch`] | the privileged parent: place, create, watch, end, prove; one task ([`Launcher::start`]) or many ([`launch::service`]) |
//! | [`cgroup`] | control groups of either layout behind one table |
//! | [`sandbox`] | the child's side: the ordered list of confinement steps |
//! | [`sys`] | one file per kernel object; the only place with `unsafe` |
//!
//! # Example
//!
//! ```no_run
//! use taskman::{Launcher, TaskSpec};
//!
//! let launcher = Launcher::open()?;
//! let spec = TaskSpec::new("sh", ["-c", "echo hello; exit 3"])?;
//! let task = launcher.start(spec)?;
//! let report = task.wait(|_stream, bytes| print!("{}", String::from_utf8_lossy(bytes)))?;
//! assert_eq!(report.outcome.status.code(), Some(3));
//! assert!(report.containment.is_proven());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#[cfg(not(all(target_os = "linux", target_arch = "x86_64")))]
compile_error!("taskman's system call table and sandbox-init are written for x86_64 Linux");

pub mod audit;
#[cfg(feature = "server")]
pub mod certs;
pub mod cgroup;
pub mod cli;
pub mod client;
pub mod config;
pub mod containment;
pub mod doctor;
pub mod error;
pub mod fault;
pub mod launch;
pub mod log;
pub mod mutation;
#[cfg(feature = "server")]
pub mod output;
pub mod place;
pub mod proto;
pub mod sandbox;
#[cfg(feature = "server")]
pub mod server;
mod stderr;
#[cfg(feature = "server")]
pub mod store;
pub mod sys;
pub mod task;
pub mod usage;
pub mod wire;

pub use error::{StartError, SysError};
pub use launch::{Launcher, Task};
pub use task::{
    limits::Limits,
    outcome::{ExitStatus, Outcome, Reason},
    report::Report,
    spec::TaskSpec,
};
