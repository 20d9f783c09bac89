//! The auditor: a process of its own that trusts nobody's bookkeeping and asks the kernel alone.
//!
//! ```text
//!  kernel ── exec, uid change ──▶ events ──▶ look ──▶ judge ── fault ──▶ look again, by pidfd ──▶ act ──▶ incident, journal,
//!         ── write to a group ──▶              ▲                                                          quarantine
//!  clock  ── every so often ────▶ scan ────────┘
//! ```
//!
//! It uses nothing of `launch/` or `sandbox/`: what they got wrong, it must not get wrong in the same way. What lies below
//! both, it shares: `cgroup/`, `sys/`, `place`. A bug in the layout of cgroups can blind it as well.

mod act;
mod auditor;
mod bounds;
pub mod clean;
pub mod desk;
mod errand;
mod events;
mod facts;
mod judge;
mod process;
pub mod recover;
mod remains;
mod report;
mod run;
mod scan;
mod tasks;

pub use run::run;
