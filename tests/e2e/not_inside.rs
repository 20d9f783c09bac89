//! What does not work in a sandbox says what the table of `docs/inside.md` says, and the way around works.

use std::path::Path;
use std::time::Duration;

use crate::support::Run;

/// Compilers start slowly on a busy machine.
const PATIENCE: Duration = Duration::from_secs(120);

/// A row by a word of its first cell, what shows it, and the way around: options, a command, and what it prints.
struct Row {
    what: &'static str,
    shows: &'static str,
    way: Option<(&'static [&'static str], &'static str, &'static str)>,
}

const fn row(what: &'static str, shows: &'static str) -> Row {
    Row { what, shows, way: None }
}

const fn with_way(
    what: &'static str,
    shows: &'static str,
    options: &'static [&'static str],
    command: &'static str,
    prints: &'static str,
) -> Row {
    Row { what, shows, way: Some((options, command, prints)) }
}

const FILTER: &str = "perl -e '$! = 0; syscall(317, 1, 0, 0); print qq($!\\n)'";
const LEAK: &str =
    "echo '#include <stdlib.h>\nint main(void) { return !malloc(8); }' >a.c; gcc -fsanitize=address a.c; ./a.out";

const ROWS: [Row; 20] = [
    row("`ping`", "ping -c 1 127.0.0.1"),
    row("`curl`", "bash -c '</dev/tcp/192.0.2.1/80'"),
    with_way(
        "`ip`",
        "ip addr",
        &[],
        "perl -MIO::Socket::INET -e 'print IO::Socket::INET->new(Listen => 1, LocalAddr => q(127.0.0.1)) ? qq(up\\n) : $!'",
        "up\n",
    ),
    row("`tcpdump`", "perl -MSocket -e 'socket(S, AF_INET, SOCK_RAW, 1) or print $!'"),
    with_way(
        "a port below 1024",
        "perl -MIO::Socket::INET -e 'IO::Socket::INET->new(Listen => 1, LocalPort => 80) or print $!'",
        &[],
        "perl -MIO::Socket::INET -e 'print IO::Socket::INET->new(Listen => 1, LocalPort => 1024) ? qq(up\\n) : $!'",
        "up\n",
    ),
    row("`strace`", "strace true"),
    with_way(
        "address sanitizers",
        LEAK,
        &["--env", "ASAN_OPTIONS=disable_coredump=0:detect_leaks=0"],
        LEAK, // exits with 0, and says nothing
        "",
    ),
    row("`unshare`", "unshare --user true"),
    with_way("seccomp filters", FILTER, &["--profile", "filters"], FILTER, "Bad address\n"),
    row("`sudo`", "su -c id"),
    row("`mount`", "mount -t tmpfs none /tmp"),
    row("io_uring", "perl -e 'syscall(425, 1, 0); print $!'"),
    row("huge pages", "perl -e '$x = q(x); syscall(319, $x, 4); print $!'"),
    row("`fsync`", "perl -MIO::Handle -e 'open F, q(>x); F->sync and print q(synced)'"),
    with_way(
        "`man`",
        "man true",
        &["--bind-ro", "/etc/manpath.config"],
        "man --path >/dev/null && echo found",
        "found\n",
    ),
    row("programs below `/home`", "/opt/none"),
    row("`systemctl`", "dmesg"),
    row("`nice -n -5`", "chrt -f 1 true"),
    row("core dumps", "bash -c 'ulimit -c unlimited'"),
    with_way("a terminal", "tty", &[], "script -qc 'tty | cut -c1-9' /dev/null", "/dev/pts/\r\n"),
];

/// The rows of the page: the first cell, and the quoted text of the second.
fn page() -> Vec<(String, String)> {
    let page = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/inside.md")).unwrap();
    let table = page.split("| what | says |").nth(1).expect("the table").lines().skip(2);
    let rows = table.take_while(|line| line.starts_with('|')).map(|line| {
        let cells: Vec<_> = line.split('|').map(str::trim).collect();
        assert_eq!(cells.len(), 6, "{line}");
        (cells[1].to_owned(), cells[2].trim_matches('`').to_owned())
    });
    rows.collect()
}

#[test]
fn what_does_not_work_says_what_the_page_says_and_the_way_around_works() {
    let page = page();
    assert_eq!(page.len(), ROWS.len(), "each row has its test");
    for (Row { what, shows, way }, (cell, says)) in ROWS.iter().zip(&page) {
        assert!(cell.starts_with(what), "{cell} is not about {what}");
        // A program itself, where taskman says what is wrong with it.
        let run = if shows.starts_with('/') { Run::command(&[shows]) } else { Run::sh(shows) };
        let ended = run.guard(PATIENCE).end();
        let said = format!("{}{}", ended.text(), ended.stderr);
        assert!(said.contains(says.as_str()), "{cell}: the page has {says:?}, but it says {said:?}");
        if let Some((options, command, prints)) = way {
            let ended = Run::sh(command).with(options).guard(PATIENCE).end();
            assert_eq!((ended.status.code(), ended.text().as_str()), (Some(0), *prints), "{cell}: {ended:?}");
        }
    }
}
