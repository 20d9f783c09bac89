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

const OVERFLOW: &str = "echo 'int main(int n, char **v) { volatile int most = 2147483647; most += n; return 0; }' >a.c; \
    gcc -fsanitize=undefined a.c && ./a.out 2>&1 | grep -o 'signed integer overflow'";

const ROWS: [Row; 20] = [
    with_way(
        "`ping`",
        "ping -c 1 127.0.0.1",
        &[],
        "perl -MIO::Socket::INET -e '$l = IO::Socket::INET->new(Listen => 1, LocalAddr => q(127.0.0.1)); \
         print IO::Socket::INET->new(q(127.0.0.1:) . $l->sockport) ? qq(up\\n) : $!'",
        "up\n",
    ),
    row("`curl`", "bash -c '</dev/tcp/192.0.2.1/80'"),
    with_way(
        "`ip`",
        "ip addr",
        &[],
        "perl -MIO::Socket::INET -e 'print IO::Socket::INET->new(Listen => 1, LocalAddr => q(127.0.0.1)) ? qq(up\\n) : $!'",
        "up\n",
    ),
    with_way(
        "`tcpdump`",
        "perl -MSocket -e 'socket(S, AF_INET, SOCK_RAW, 1) or print $!'",
        &[],
        "perl -MIO::Socket::INET -e '$a = IO::Socket::INET->new(Proto => q(udp), LocalAddr => q(127.0.0.1)); \
         IO::Socket::INET->new(Proto => q(udp), PeerAddr => q(127.0.0.1:) . $a->sockport)->send(qq(up\\n)); \
         $a->recv($_, 9); print'",
        "up\n",
    ),
    with_way(
        "a port below 1024",
        "perl -MIO::Socket::INET -e 'IO::Socket::INET->new(Listen => 1, LocalPort => 80) or print $!'",
        &[],
        "perl -MIO::Socket::INET -e 'print IO::Socket::INET->new(Listen => 1, LocalPort => 1024) ? qq(up\\n) : $!'",
        "up\n",
    ),
    with_way("`strace`", "strace true", &[], OVERFLOW, "signed integer overflow\n"),
    with_way(
        "address sanitizers",
        LEAK,
        &["--env", "ASAN_OPTIONS=disable_coredump=0:detect_leaks=0"],
        LEAK, // exits with 0, and says nothing
        "",
    ),
    row("`unshare`", "unshare --user true"),
    with_way("seccomp filters", FILTER, &["--profile", "filters"], FILTER, "Bad address\n"),
    with_way(
        "`sudo`",
        "su -c id",
        &[],
        "touch a /tmp/b /dev/shm/c && find /task /tmp /dev/shm ! -user task -o ! -writable",
        "",
    ),
    with_way(
        "`mount`",
        "mount -t tmpfs none /tmp",
        &["--bind-ro", "/etc/manpath.config:/read"],
        "cp /read /task/a && cmp /read /task/a && cp a /tmp/b && echo written",
        "written\n",
    ),
    with_way(
        "io_uring",
        "perl -e 'syscall(425, 1, 0); print $!'",
        &[],
        "python3 -c 'import select, threading; e = select.epoll(); t = threading.Thread(target=e.close); t.start(); t.join(); print(e.closed)'",
        "True\n",
    ),
    with_way(
        "huge pages",
        "perl -e '$x = q(x); syscall(319, $x, 4); print $!'",
        &[],
        "python3 -c 'import mmap; m = mmap.mmap(-1, 4 << 20); m[1 << 21] = 7; print(m[1 << 21])'",
        "7\n",
    ),
    with_way(
        "`fsync`",
        "perl -MIO::Handle -e 'open F, q(>x); F->sync and print q(synced)'",
        &[],
        "echo kept >x && sync x && cat x",
        "kept\n",
    ),
    with_way(
        "`man`",
        "man true",
        &["--bind-ro", "/etc/manpath.config"],
        "man --path >/dev/null && echo found",
        "found\n",
    ),
    with_way(
        "programs below `/home`",
        "/opt/none/true",
        &["--bind-ro", "/usr/bin:/opt/none"],
        "/opt/none/true && echo ran",
        "ran\n",
    ),
    row("`systemctl`", "dmesg"),
    with_way("`nice -n -5`", "chrt -f 1 true", &["--cpus", "0.5"], "nproc", "1\n"),
    with_way(
        "core dumps",
        "bash -c 'ulimit -c unlimited'",
        &[],
        "python3 -X faulthandler -c 'import os; os.abort()' 2>&1 | head -n 1",
        "Fatal Python error: Aborted\n",
    ),
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
