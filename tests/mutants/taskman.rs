//! `taskman` whose defences can be switched off and whose steps can be made to wait (`src/mutation.rs`, `src/fault.rs`).

fn main() -> std::process::ExitCode {
    taskman::cli::main()
}
