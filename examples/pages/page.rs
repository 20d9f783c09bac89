//! One man page out of one command's definition. Synopsis and options are clap_mangen's; description, exit codes and
//! examples are those of the help text, so that they stand once; environment and files follow from the options.

use std::io;

use clap::Command;
use clap_mangen::Man;
use clap_mangen::roff::{Roff, bold, roman};

/// Each part that clap_mangen renders begins with these; a page needs them once.
const PREAMBLE: &str = ".ie \\n(.g .ds Aq \\(aq\n.el .ds Aq '\n";

/// What a command says of itself when its help text has no exit codes of its own.
const EXIT_CODES: &str = "0 when it did what was asked; 125 when taskman failed, or the command line is wrong";

/// An option of the commands that begin with these words, and a file that stands behind it.
const FILES: [(&str, &str, &str, &str); 7] = [
    ("taskman", "user_id", "~/.config/taskman/certs/", "ca.crt, USER.crt and USER.key, if the directory exists"),
    ("taskman", "user_id", "/etc/taskman/certs/", "the same for the machine; root's alone where a server runs"),
    ("taskman", "state_dir", "/var/lib/taskman/", "the state directory of the packaged service"),
    ("taskman certs", "certs", "/etc/taskman/certs/", "the authority and certificates of the packaged service"),
    ("taskman-server", "config", "/etc/taskman/server.toml", "the configuration of the packaged service"),
    ("taskman-server", "config", "/etc/taskman/certs/", "its certificates, made when the package was installed"),
    ("taskman-server", "config", "/var/lib/taskman/", "its records, output, incidents and audit log"),
];

/// `taskman-certs-init`, as its page is called.
pub fn name(command: &Command) -> &str {
    command.get_display_name().unwrap_or_else(|| command.get_name())
}

/// The page of `command`, which is built and stands below `above`.
pub fn render(command: &Command, above: &[&Command], section: &str, date: &str) -> io::Result<String> {
    let help = Help::of(command);
    // The usage of the help text: clap_mangen's own names every option, without its value.
    let usage = command.clone().render_usage().to_string();
    let command = command.clone().override_usage(usage.trim_start_matches("Usage:").trim().to_owned());
    let man = Man::new(command.clone())
        .section(section)
        .title(name(&command))
        .date(date)
        .source(format!("taskman {}", env!("CARGO_PKG_VERSION")))
        .manual(if section == "8" { "System Administration" } else { "User Commands" });
    let mut page = Vec::new();
    man.render_title(&mut page)?;
    man.render_name_section(&mut page)?;
    man.render_synopsis_section(&mut page)?;
    let mut roff = Roff::new();
    roff.control("SH", ["DESCRIPTION"]);
    paragraphs(&mut roff, &help.description);
    roff.to_writer(&mut page)?;
    man.render_options_section(&mut page)?;
    if command.has_subcommands() {
        man.render_subcommands_section(&mut page)?;
    }
    let mut roff = Roff::new();
    rest(&mut roff, &command, above, &help);
    roff.to_writer(&mut page)?;
    let page = String::from_utf8(page).map_err(io::Error::other)?;
    Ok(format!("{PREAMBLE}{}", page.replace(PREAMBLE, "")))
}

/// Everything after the options.
fn rest(roff: &mut Roff, command: &Command, above: &[&Command], help: &Help) {
    for (heading, lines) in help.sections.iter().filter(|(heading, _)| !is_example(heading) && !is_exit(heading)) {
        roff.control("SH", [heading.to_uppercase().as_str()]);
        literal(roff, lines);
    }
    roff.control("SH", ["EXIT STATUS"]);
    let mut exits = help.sections.iter().filter(|(heading, _)| is_exit(heading)).peekable();
    if exits.peek().is_none() {
        roff.text([roman(EXIT_CODES)]);
    }
    for (heading, lines) in exits {
        if heading != "Exit codes" {
            roff.control("SS", [heading.as_str()]);
        }
        let text = lines.join(" ");
        for code in text.split("; ") {
            roff.control("PP", []);
            roff.text([roman(code)]);
        }
    }
    definitions(roff, "ENVIRONMENT", &environment(command));
    definitions(roff, "FILES", &files(command, above));
    for (_, lines) in help.sections.iter().filter(|(heading, _)| is_example(heading)) {
        roff.control("SH", ["EXAMPLES"]);
        literal(roff, lines);
    }
    roff.control("SH", ["SEE ALSO"]);
    let mut others: Vec<String> = above.iter().map(|command| format!("{}(1)", name(command))).collect();
    others.extend(command.get_subcommands().map(|command| format!("{}(1)", name(command))));
    others.push(if name(command) == "taskman-server" { "taskman(1)".into() } else { "taskman-server(8)".into() });
    roff.text([roman(others.join(", "))]);
    roff.control("PP", []);
    roff.text([roman("/usr/share/doc/taskman has the documentation, and runbooks for operators.")]);
}

fn is_example(heading: &str) -> bool {
    heading.starts_with("Example")
}

fn is_exit(heading: &str) -> bool {
    heading.starts_with("Exit codes")
}

/// The variables that stand for options.
fn environment(command: &Command) -> Vec<(String, String)> {
    let named = command.get_arguments().filter_map(|option| Some((option.get_env()?, option.get_long()?)));
    named
        .map(|(name, long)| (name.to_string_lossy().into_owned(), format!("used where --{long} is not given")))
        .collect()
}

fn files(command: &Command, above: &[&Command]) -> Vec<(String, String)> {
    let parts = above.iter().map(|command| command.get_name()).chain([command.get_name()]);
    let words = parts.collect::<Vec<_>>().join(" ") + " ";
    let behind = FILES.iter().filter(|(place, option, ..)| {
        words.starts_with(&format!("{place} ")) && command.get_arguments().any(|argument| argument.get_id() == option)
    });
    behind.map(|(_, _, path, what)| ((*path).into(), (*what).into())).collect()
}

fn definitions(roff: &mut Roff, heading: &str, items: &[(String, String)]) {
    if items.is_empty() {
        return;
    }
    roff.control("SH", [heading]);
    for (name, text) in items {
        roff.control("TP", []);
        roff.text([bold(name.as_str())]);
        roff.text([roman(text.as_str())]);
    }
}

fn paragraphs(roff: &mut Roff, lines: &[String]) {
    for line in lines {
        match line.trim() {
            "" => roff.control("PP", []),
            text => roff.text([roman(text)]),
        };
    }
}

/// As it stands: commands are to be copied.
fn literal(roff: &mut Roff, lines: &[String]) {
    roff.control("EX", []);
    for line in lines {
        roff.text([roman(line.as_str())]);
    }
    roff.control("EE", []);
}

/// The parts of a help text that clap_mangen does not know apart: `Heading:` and indented lines below it.
struct Help {
    description: Vec<String>,
    sections: Vec<(String, Vec<String>)>,
}

impl Help {
    fn of(command: &Command) -> Self {
        let told = command.get_after_long_help().or_else(|| command.get_after_help());
        let (intro, sections) = split(&told.map(ToString::to_string).unwrap_or_default());
        // A description of several lines is part of a command's own template of its help.
        let (_, whole) = split(&command.clone().term_width(0).render_long_help().to_string());
        let mut description = match whole.into_iter().find(|(heading, _)| heading == "Description") {
            Some((_, lines)) => lines,
            None => {
                let about = command.get_long_about().or_else(|| command.get_about());
                about.map(ToString::to_string).unwrap_or_default().lines().map(str::to_owned).collect()
            }
        };
        if !intro.is_empty() {
            description.push(String::new());
            description.extend(intro);
        }
        Self { description, sections }
    }
}

/// What stands before the first heading, and each heading with its lines, without their indent.
fn split(text: &str) -> (Vec<String>, Vec<(String, Vec<String>)>) {
    let (mut intro, mut sections) = (Vec::new(), Vec::<(String, Vec<String>)>::new());
    for line in text.lines() {
        let heading = line.strip_suffix(':').filter(|_| !line.starts_with(' '));
        match (heading, sections.last_mut()) {
            (Some(heading), _) => sections.push((heading.to_owned(), Vec::new())),
            (None, Some((_, lines))) => lines.push(line.strip_prefix("  ").unwrap_or(line).to_owned()),
            (None, None) => intro.push(line.to_owned()),
        }
    }
    let all = sections.iter_mut().map(|(_, lines)| lines).chain([&mut intro]);
    for lines in all {
        while lines.last().is_some_and(|line| line.trim().is_empty()) {
            lines.pop();
        }
    }
    (intro, sections)
}
