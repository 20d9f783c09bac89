//! The machinery of the suite: an observer outside the sandbox that believes the kernel and nobody else.
//!
//! For each case: a ledger of the host; the control arm (the probe works on this kernel without taskman); the attack
//! on the shipped binary, with a canary during and after; the attack on a binary without the defence, which must go
//! red; the ledger again. A case is a [`Case`] with a control and an attack function:
//!
//! ```ignore
//! Case { id: "K99", tier: 1, what: "a call that must fail", defence: &["seccomp"], control, attack }
//!
//! fn control(bench: &Bench) -> Control {
//!     let done = bench.direct().probe("k99", &["arg"]).finish();          // payloads/k99.c, run by root, no taskman
//!     done.and_then(|d| { require!(d.code() == 0, "exit {}", d.code()); Ok(()) }).into()
//! }
//!
//! fn attack(bench: &Bench, arm: Arm) -> Result<(), Fail> {
//!     let mut run = bench.task(arm).opt("--pids", "16").probe("k99", &["arg"]).spawn()?;
//!     run.wait_line("ready")?;                                            // the payload says so on stdout
//!     bench.canary()?;                                                    // every attack runs one while it is on
//!     let payload = run.payload().ok_or_else(|| broken("no payload"))?;   // the host's pid
//!     ensure!(proc::ns_of(payload, "net") != own, "shares the host's network");   // a breach: red is about this
//!     run.signal(Signal::SIGTERM)?;
//!     let done = run.finish()?;
//!     ensure!(done.reason()? == "stopped", "reason {}", done.reason()?);
//!     Ok(())
//! }
//! ```

pub mod answers;
pub mod bench;
pub mod case;
pub mod done;
pub mod launch;
pub mod ledger;
pub mod mutant;
pub mod own_process;
pub mod payload;
pub mod place;
pub mod proc;
pub mod record;
pub mod report;
pub mod run;
pub mod sys;
pub mod view;

pub use bench::Bench;
pub use case::{Arm, Case, Control, Fail, breach, broken};
pub use launch::Launch;
pub use run::Run;
