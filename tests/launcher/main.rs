//! The launcher's loop against servers that are honest, slow, broken or hostile. The sandboxes are real; only the server is
//! played, by a process that the launcher forked as it would the true one, and in some cases the auditor.
//!
//! Needs root. One case at a time and no threads: whoever forks here has one thread.
#![allow(clippy::unwrap_used, missing_docs)]
#![allow(clippy::disallowed_methods)] // a launcher beside the one under test is started as anyone would

mod auditor;
mod confinement;
mod ends;
mod hostile;
mod played;
mod requests;
mod stage;
mod starts;
#[path = "../support/throttled.rs"]
mod throttled;
mod warm;

fn main() -> std::process::ExitCode {
    if played::is_asked_for() {
        // As the launcher under test sees it, both are the program that it is itself.
        return if played::is_meant() { played::play() } else { taskman::server::main() };
    }
    let mut args = libtest_mimic::Arguments::from_args();
    args.test_threads = Some(1);
    let trials = [
        starts::cases(),
        requests::cases(),
        hostile::cases(),
        ends::cases(),
        auditor::cases(),
        confinement::cases(),
        warm::cases(),
    ]
    .concat();
    let trials = trials.into_iter().map(|(name, case)| {
        libtest_mimic::Trial::test(name, move || {
            case();
            Ok(())
        })
    });
    libtest_mimic::run(&args, trials.collect()).exit_code()
}
