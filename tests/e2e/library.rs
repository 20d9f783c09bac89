//! The crate's API from another program's point of view.

use std::process::Command;

use crate::support::{GUARD, HostDir, Started};

#[test]
fn a_process_with_threads_is_refused_with_the_reason() {
    // The test harness has threads of its own, and PR_SET_PDEATHSIG would belong to one of them.
    let error = match taskman::Launcher::open() {
        Ok(_) => panic!("a launcher in a process with threads"),
        Err(error) => error.to_string(),
    };
    assert!(error.contains("thread"), "{error}");
}

#[test]
fn the_example_starts_watches_signals_stops_and_waits() {
    // Cargo builds the examples of the package together with its tests.
    let example = std::path::Path::new(env!("CARGO_BIN_EXE_taskman")).parent().unwrap().join("examples/library");
    assert!(example.exists(), "{} is not built: run `cargo build --examples`", example.display());
    let ended = Started::spawn(Command::new(example), HostDir::new(), GUARD).end();
    assert_eq!(ended.status.code(), Some(0), "{ended:?}");
    let wanted = "out: hello\nerr: world\nexit code Some(3), containment proven: true\n\
        running: true\nended by Some(\"SIGUSR1\"), reason Signal\nended by Some(\"SIGTERM\"), reason Stopped\n\
        still running: false\nrefused: memory\n";
    assert_eq!(ended.text(), wanted, "{}", ended.stderr);
}
