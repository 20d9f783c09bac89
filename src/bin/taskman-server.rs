//! The `taskman-server` daemon.

fn main() -> std::process::ExitCode {
    taskman::server::main()
}
