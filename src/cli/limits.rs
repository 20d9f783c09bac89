//! The flags that `run` and `start` share, so that they stand once.
//!
//! An absent flag means the default of `run`, or the profile's value at a server. [`shown_for_run`] puts the defaults into
//! the help of `run`, where they are known.

use std::str::FromStr;

use crate::client::StartTaskRequest;
use crate::proto::limits::LimitFields;
use crate::task::limits::{AskedLimits, LIMITS, Limit, Limits, Unit};
use crate::task::spec::{BindRo, SpecError};

/// What a task may use: a flag for each row of [`LIMITS`].
#[derive(Debug, Default, Clone, PartialEq)]
pub struct LimitFlags(AskedLimits);

impl clap::Args for LimitFlags {
    fn augment_args(command: clap::Command) -> clap::Command {
        command.args(LIMITS.iter().map(|limit| {
            // A value with a hyphen is taken, so that a negative limit is told what is wrong with it.
            clap::Arg::new(limit.name)
                .long(limit.flag)
                .help(limit.help)
                .value_name(placeholder(limit.unit))
                .value_parser(|text: &str| limit.unit.parse(text))
                .help_heading("Limits")
                .allow_hyphen_values(true)
        }))
    }

    fn augment_args_for_update(command: clap::Command) -> clap::Command {
        Self::augment_args(command)
    }
}

impl clap::FromArgMatches for LimitFlags {
    fn from_arg_matches(matches: &clap::ArgMatches) -> Result<Self, clap::Error> {
        AskedLimits::from_each(|limit| Ok(matches.get_one(limit.name).copied())).map(Self)
    }

    fn update_from_arg_matches(&mut self, matches: &clap::ArgMatches) -> Result<(), clap::Error> {
        Self::from_arg_matches(matches).map(|flags| *self = flags)
    }
}

/// What stands for a value in the help.
fn placeholder(unit: Unit) -> &'static str {
    match unit {
        Unit::Bytes => "SIZE",
        Unit::Time => "TIME",
        Unit::Cpus | Unit::Count => "N",
    }
}

/// What `run` uses where a flag of the shape is absent.
const SHAPE_DEFAULTS: [(&str, &str); 2] = [("workdir", "/task"), ("hostname", "taskman")];

/// Gives the flags their defaults in the command line of `run`. Those of io are the help's alone, because they follow the memory
/// ([`AskedLimits::over`]).
pub fn shown_for_run(command: clap::Command) -> clap::Command {
    command.mut_args(|arg| {
        let name = arg.get_id().as_str();
        if let Some((_, value)) = SHAPE_DEFAULTS.iter().find(|(flag, _)| *flag == name) {
            return arg.default_value(*value);
        }
        let Some(limit) = Limit::named(name) else { return arg };
        let default = limit.get(&Limits::default());
        match name {
            "io_read_bps" | "io_write_bps" => arg.help(format!("{} [default: {default}, or that quarter]", limit.help)),
            _ => arg.default_value(default.to_string()),
        }
    })
}

/// What follows the options in the help: the words of [`units::SIZES`] and [`units::TIMES`], on lines of a terminal.
pub const UNITS: &str = "\
Sizes are bytes, or a number with b, k, kb, kib, m, mb, mib, g, gb, gib, t, tb or tib,
in any case, all powers of 1024 (100, 64k, 512M, 1.5GiB).
Times are seconds, or a number with ms, s, m, h or d, in lower case, from 1ms to 36500d
(1.5, 500ms, 90s, 5m, 7d).";

/// Reads a value that names its field in errors: clap names the option itself, and once is enough.
pub fn named_by_clap<T: FromStr<Err = SpecError>>(text: &str) -> Result<T, String> {
    text.parse().map_err(|error: SpecError| error.message)
}

/// An error about a field of a request, with the field named as its flag was typed: `--io-read-bps: …`.
pub fn as_typed(error: &str) -> String {
    const OTHERS: [&str; 6] = ["env", "bind_ro", "label", "profile", "workdir", "hostname"];
    let is_flag = |name: &str| OTHERS.contains(&name) || Limit::named(name).is_some();
    match error.split_once(": ") {
        // Those that the API calls otherwise.
        Some(("labels", rest)) => format!("--label: {rest}"),
        Some(("status", rest)) => format!("--state: {rest}"),
        Some(("source", rest)) => format!("--stdout, --stderr: {}", rest.replace("split_output", "--split-output")),
        Some((name, rest)) if is_flag(name) => format!("--{}: {rest}", name.replace('_', "-")),
        _ => error.to_owned(),
    }
}

impl LimitFlags {
    /// The limits of a task that `run` starts.
    pub fn over_defaults(&self) -> Limits {
        self.0.over(&Limits::default())
    }

    /// Puts what was asked for into a request; the parsers let no zero through, which would mean "absent" there.
    pub fn request(&self, request: &mut StartTaskRequest) {
        let LimitFields { limits, timeout } = LimitFields::from(&self.0);
        request.limits = Some(limits);
        request.timeout = timeout;
    }
}

// What a task finds inside.
#[derive(Debug, Default, Clone, PartialEq, Eq, clap::Args)]
pub struct ShapeFlags {
    /// Set an environment variable; nothing is inherited
    #[arg(long, value_name = "NAME=VALUE", help_heading = "Shape")]
    env: Vec<String>,
    /// Working directory inside
    #[arg(long, value_name = "DIR", help_heading = "Shape")]
    pub workdir: Option<String>,
    /// Host name inside
    #[arg(long, value_name = "NAME", help_heading = "Shape")]
    pub hostname: Option<String>,
    /// Show a file or directory of the host read-only inside
    #[arg(long, value_name = "SRC[:DST]", value_parser = named_by_clap::<BindRo>, help_heading = "Shape")]
    pub bind_ro: Vec<BindRo>,
}

impl ShapeFlags {
    /// The environment, name by name.
    pub fn variables(&self) -> Result<Vec<(&str, &str)>, SpecError> {
        pairs("env", &self.env)
    }
}

/// `NAME=VALUE`, many times.
pub fn pairs<'a>(field: &'static str, texts: &'a [String]) -> Result<Vec<(&'a str, &'a str)>, SpecError> {
    let split = |text: &'a String| {
        let pair = text.split_once('=').filter(|(name, _)| !name.is_empty());
        pair.ok_or_else(|| SpecError::new(field, format!("{text:?} is not NAME=VALUE")))
    };
    texts.iter().map(split).collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use clap::{Args, FromArgMatches};

    use super::*;
    use crate::client;
    use crate::task::units::{SIZES, TIMES, bytes, duration, grace};

    fn parsed(command: clap::Command, flags: &[&str]) -> LimitFlags {
        let words = std::iter::once("x").chain(flags.iter().copied());
        LimitFlags::from_arg_matches(&command.try_get_matches_from(words).unwrap()).unwrap()
    }

    #[test]
    fn the_defaults_in_the_help_are_the_limits_in_force() {
        let command = shown_for_run(ShapeFlags::augment_args(LimitFlags::augment_args(clap::Command::new("x"))));
        let flags = parsed(command, &[]);
        assert_eq!(flags.over_defaults(), Limits::default());
        // All but those of io, which follow the memory.
        assert_eq!(flags.0.iter().count(), LIMITS.len() - 2);
    }

    #[test]
    fn every_limit_stands_on_its_page() {
        let page = include_str!("../../docs/run.md");
        for limit in &LIMITS {
            let row = format!("| `--{} {}` | {}", limit.flag, placeholder(limit.unit), limit.get(&Limits::default()));
            assert!(page.contains(&row), "docs/run.md lacks {row}");
        }
    }

    #[test]
    fn every_documented_form_is_read_and_every_page_has_the_same_words() {
        let examples = |words: &str| {
            let (_, rest) = words.split_once('(').unwrap();
            rest.trim_end_matches(").").split(", ").map(str::to_owned).collect::<Vec<_>>()
        };
        let units = |words: &str| {
            let (_, rest) = words.split_once("a number with ").unwrap();
            let (list, _) = rest.split_once(", in ").unwrap();
            list.replace(" or ", ", ").split(", ").map(str::to_owned).collect::<Vec<_>>()
        };
        assert_eq!((units(SIZES).len(), units(TIMES).len()), (13, 5));
        for unit in units(SIZES) {
            let size = bytes(&format!("2{unit}")).unwrap();
            assert_eq!(Ok(size), bytes(&format!("2{}", unit.to_uppercase())), "{unit}");
            assert_eq!(Ok(size), bytes(&format!("2{}", &unit[..1])), "{unit}");
        }
        for unit in units(TIMES) {
            assert!(
                duration(&format!("2{unit}")).is_ok() && grace(&format!("0{unit}")) == Ok(Duration::ZERO),
                "{unit}"
            );
        }
        examples(SIZES).iter().for_each(|example| assert!(bytes(example).is_ok(), "{example}"));
        examples(TIMES).iter().for_each(|example| assert!(duration(example).is_ok(), "{example}"));
        assert!(duration("1ms").is_ok() && duration("36500d").is_ok() && duration("36501d").is_err());
        let pages = [include_str!("../../docs/run.md"), include_str!("../config/default.toml"), UNITS];
        for page in pages {
            let plain = page.split_whitespace().filter(|word| *word != "#").collect::<Vec<_>>().join(" ");
            for words in [SIZES, TIMES] {
                assert!(plain.contains(words), "{words}\nis not in\n{plain}");
            }
        }
    }

    #[test]
    fn an_io_limit_that_nobody_asked_for_follows_the_memory() {
        let command = shown_for_run(LimitFlags::augment_args(clap::Command::new("x")));
        let of = |flags: &[&str]| parsed(command.clone(), flags).over_defaults();
        assert_eq!(of(&["--memory", "4G"]).io_read_bps, 1 << 30);
        assert_eq!(of(&["--memory", "4G"]).validate(), Ok(()));
        assert_eq!(of(&["--memory", "8M"]).io_write_bps, 256 << 20);
        let asked = of(&["--memory", "4G", "--io-read-bps", "1M"]);
        assert_eq!(
            as_typed(&asked.validate().unwrap_err().to_string()).split(" with").next(),
            Some("--io-read-bps: must be at least 1G")
        );
    }

    #[test]
    fn a_field_is_named_as_its_flag() {
        assert_eq!(as_typed("io_read_bps: 2G is more"), "--io-read-bps: 2G is more");
        assert_eq!(as_typed("labels: at most 64 can be set"), "--label: at most 64 can be set");
        assert_eq!(as_typed("status: at most 8 can be asked for"), "--state: at most 8 can be asked for");
        assert_eq!(as_typed("source: start it with split_output"), "--stdout, --stderr: start it with --split-output");
        assert_eq!(as_typed("task_id: x is not"), "task_id: x is not");
        assert_eq!(as_typed("the task has ended"), "the task has ended");
    }

    #[test]
    fn what_was_not_asked_for_is_left_to_the_server() {
        let command = LimitFlags::augment_args(clap::Command::new("x"));
        let flags = parsed(command.clone(), &[]);
        assert_eq!(flags, LimitFlags::default());
        let mut request = StartTaskRequest::default();
        flags.request(&mut request);
        assert_eq!((request.limits, request.timeout), (Some(client::Limits::default()), None));
        let flags = parsed(command, &["--memory", "64M", "--timeout", "1.5s", "--cpu-time", "2s"]);
        flags.request(&mut request);
        let limits = request.limits.unwrap();
        assert_eq!((limits.memory_bytes, limits.cpu_time.unwrap().seconds, limits.pids), (64 << 20, 2, 0));
        assert_eq!((request.timeout.unwrap().seconds, request.timeout.unwrap().nanos), (1, 500_000_000));
    }
}
