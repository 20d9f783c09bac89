//! Signals by name, as reports and requests have them.

/// Those with a name of their own, from 1 on.
const NAMES: [&str; 31] = [
    "SIGHUP",
    "SIGINT",
    "SIGQUIT",
    "SIGILL",
    "SIGTRAP",
    "SIGABRT",
    "SIGBUS",
    "SIGFPE",
    "SIGKILL",
    "SIGUSR1",
    "SIGSEGV",
    "SIGUSR2",
    "SIGPIPE",
    "SIGALRM",
    "SIGTERM",
    "SIGSTKFLT",
    "SIGCHLD",
    "SIGCONT",
    "SIGSTOP",
    "SIGTSTP",
    "SIGTTIN",
    "SIGTTOU",
    "SIGURG",
    "SIGXCPU",
    "SIGXFSZ",
    "SIGVTALRM",
    "SIGPROF",
    "SIGWINCH",
    "SIGIO",
    "SIGPWR",
    "SIGSYS",
];
/// The C library keeps the two below for itself.
const FIRST_REAL_TIME: i32 = 34;

/// A signal's name: `SIGKILL`, `SIGRTMIN+3`.
pub fn name(signal: i32) -> String {
    let known = usize::try_from(signal).ok().and_then(|signal| NAMES.get(signal.wrapping_sub(1)));
    match (known, signal - FIRST_REAL_TIME) {
        (Some(name), _) => (*name).to_owned(),
        (None, 0) => "SIGRTMIN".to_owned(),
        (None, further @ 1..) => format!("SIGRTMIN+{further}"),
        (None, _) => format!("SIG{signal}"),
    }
}

/// The number of a signal's [name].
pub fn number(name: &str) -> Option<i32> {
    (1..=64).find(|signal| self::name(*signal) == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_numbers_are_each_others_inverse() {
        for signal in 1..=64 {
            assert_eq!(number(&name(signal)), Some(signal));
        }
        assert_eq!(
            [number("SIGKILL"), number("SIGRTMIN"), number("KILL"), number("")],
            [Some(9), Some(34), None, None]
        );
    }
}
