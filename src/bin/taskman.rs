//! The `taskman` command.

fn main() -> std::process::ExitCode {
    taskman::cli::main()
}
