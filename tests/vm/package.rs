//! The Debian package's life on a Debian with systemd: installed, upgraded, removed, purged, and installed again.
//!
//! The packages are made of the programs that this test run has built, so that no release build is waited for.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use libtest_mimic::Trial;

use crate::case;
use crate::machine::{Machine, Root, Spec};

pub fn cases() -> Vec<Trial> {
    vec![case("package_installs_serves_upgrades_and_goes_without_a_trace", life)]
}

/// As an administrator and as a user of the machine, who are both root there.
const ADMIN: &str = "export TASKMAN_USER_ID=admin;";
const USER: &str = "export TASKMAN_USER_ID=client001;";

/// What of the machine may differ after the package has come and gone: logs, caches, what dpkg, systemd and man-db remember
/// of themselves, and copies of the files that name accounts.
const VOLATILE: &str = "proc sys dev run tmp host root var/log var/cache var/tmp var/lib/dpkg var/lib/systemd \
     etc/.pwd.lock etc/passwd- etc/group- etc/shadow- etc/gshadow-";

fn life() {
    let directory = tempfile::Builder::new().prefix("taskman-package-").tempdir().unwrap();
    let [first, second] = ["0.1.0", "0.2.0"].map(|version| package(directory.path(), version));
    let mut machine = Machine::boot(Spec { root: Root::Debian, ..Spec::default() });
    // The index of man pages is man-db's; a slow machine builds it for half a minute each time.
    machine.ok("rm -f /var/lib/man-db/auto-update");
    note_files(&mut machine, "/run/before");
    install(&mut machine, &first);
    serves(&mut machine);
    pages_and_completions(&mut machine);
    upgrade(&mut machine, &second);
    remove(&mut machine);
    purge(&mut machine);
    install(&mut machine, &first);
    assert!(machine.ok(&format!("{ADMIN} taskman health")).contains("healthy"));
}

/// A package of what is built, with a version of its own.
fn package(directory: &Path, version: &str) -> PathBuf {
    let programs = Path::new(env!("CARGO_BIN_EXE_taskman")).parent().unwrap();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts/package");
    let mut command = Command::new(script);
    let made = command.arg("--programs").arg(programs).args(["--version", version]).arg(directory).output().unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    PathBuf::from(String::from_utf8(made.stdout).unwrap().trim())
}

/// Writes down every name on the machine's disk. There: ten thousand lines take half a minute to come here.
fn note_files(machine: &mut Machine, list: &str) {
    let except = VOLATILE.split(' ').map(|path| format!("-path /{path} -prune -o ")).collect::<String>();
    machine.ok(&format!("find / -xdev {except} -print | sort >{list} && grep -qx /etc/hostname {list}"));
}

fn install(machine: &mut Machine, package: &Path) {
    let told = dpkg(machine, &format!("-i /host{}", package.display()));
    assert!(!told.contains("did not"), "{told}");
    assert_eq!(machine.ok("systemctl is-active taskman.service taskman-audit.timer"), "active\nactive\n", "{told}");
    assert_eq!(machine.ok("systemctl is-enabled taskman.service taskman-audit.timer"), "enabled\nenabled\n");
}

/// The service takes tasks over gRPC, with certificates that nobody but root can read.
fn serves(machine: &mut Machine) {
    assert!(machine.ok(&format!("{ADMIN} taskman health")).contains("healthy"));
    let ran =
        machine.run(&format!("{USER} taskman start --follow -- sh -c 'echo from a task; id -u; exit 7' 2>/dev/null"));
    assert!(ran.0 == 7 && ran.1.starts_with("from a task\n19"), "{ran:?}");
    assert_eq!(machine.ok("stat -c '%a %U:%G' /etc/taskman/certs"), "700 root:root\n");
    assert_eq!(machine.ok("stat -c '%a %U:%G' /etc/taskman/certs/*.key | sort -u"), "600 root:root\n");
    assert_eq!(machine.ok("dpkg --verify taskman"), "", "every file is as the package has it");
}

fn pages_and_completions(machine: &mut Machine) {
    let commands =
        machine.ok("taskman --help | sed -n '/^Commands:/,/^$/s/^  \\([a-z-]\\+\\) .*/\\1/p' | grep -v '^help$'");
    assert!(commands.lines().count() >= 13, "{commands}");
    let pages: Vec<String> = commands.lines().map(|command| format!("taskman-{command}")).collect();
    machine.ok(&format!("man -w taskman taskman-server taskman-certs-init {}", pages.join(" ")));
    let completed = machine.ok("for file in bash-completion/completions/taskman zsh/vendor-completions/_taskman \
         fish/vendor_completions.d/taskman.fish; do test -s /usr/share/$file || exit 1; done
         source /usr/share/bash-completion/completions/taskman
         COMP_WORDS=(taskman get-s) COMP_CWORD=1; _taskman taskman get-s taskman; echo ${COMPREPLY[@]}");
    assert_eq!(completed, "get-status\n");
    machine.ok("ls /usr/share/doc/taskman/runbooks/orphan-process.md /usr/share/doc/taskman/copyright");
}

/// Starts a task and answers its id.
fn start(machine: &mut Machine, command: &str) -> String {
    let told = machine.ok(&format!("{USER} taskman start -- {command}"));
    told.lines().last().unwrap().to_owned()
}

fn output_of(machine: &mut Machine, task: &str) -> String {
    machine.ok(&format!("{USER} taskman stream --no-follow {task}"))
}

/// An upgrade restarts the service and keeps what is the administrator's and the users'.
fn upgrade(machine: &mut Machine, package: &Path) {
    let ended = start(machine, "echo kept");
    machine.ok(&format!("{USER} taskman wait {ended}"));
    let running = start(machine, "sleep 1000");
    machine.ok("sed -i 's/^admins = .*/admins = [\"admin\", \"ann\"]/' /etc/taskman/server.toml");
    machine.ok("systemctl disable --now taskman-audit.timer 2>&1");
    let facts = "sha256sum /etc/taskman/certs/* /etc/taskman/server.toml";
    let (pid, configured) = (main_pid(machine), machine.ok(facts));
    let told = dpkg(machine, &format!("-i /host{}", package.display()));
    assert!(machine.ok("dpkg-query -W taskman").contains("0.2.0-1"), "{told}");
    assert_eq!(machine.ok("systemctl is-active taskman.service"), "active\n", "{told}");
    assert_ne!(main_pid(machine), pid, "the new programs run");
    assert_eq!(machine.ok(facts), configured, "certificates and changed configuration are kept");
    let timer = machine.run("systemctl is-enabled taskman-audit.timer; systemctl is-active taskman-audit.timer");
    assert_eq!(timer.1, "disabled\ninactive\n", "what was disabled stays so");
    assert!(output_of(machine, &ended).contains("kept"));
    let status = machine.ok(&format!("{USER} taskman get-status {running} --output json"));
    assert!(status.contains("server_shutdown") && status.contains("\"verdict\":\"proven\""), "{status}");
}

fn main_pid(machine: &mut Machine) -> String {
    machine.ok("systemctl show --property MainPID taskman.service")
}

/// A removal ends every task, also those that do not want to, and keeps configuration, certificates and state; and what an
/// administrator runs in the same slice.
fn remove(machine: &mut Machine) {
    machine.ok("systemd-run --quiet --slice taskman.slice --unit neighbour tail -f /dev/null");
    start(machine, "sh -c 'trap \"\" TERM; setsid sleep 1001 & sleep 1002'");
    machine.ok("until pgrep -x sleep; do sleep 0.1; done");
    let told = dpkg(machine, "-r taskman");
    assert_eq!(machine.run("pgrep -x sleep; pgrep -x taskman-server").1, "", "{told}");
    assert_eq!(machine.ok("systemctl is-active neighbour"), "active\n", "{told}");
    machine.ok("systemctl stop neighbour taskman.slice");
    nothing_runs(machine);
    machine.ok(
        "grep -q ann /etc/taskman/server.toml && test -s /etc/taskman/certs/ca.key && test -d /var/lib/taskman/server",
    );
    assert_eq!(machine.ok("ls /usr/bin/taskman* /usr/sbin/taskman* /usr/lib/taskman 2>/dev/null | wc -l"), "0\n");
}

/// A purge leaves nothing but the account, which Debian never gives to somebody else.
fn purge(machine: &mut Machine) {
    let told = dpkg(machine, "-P taskman");
    assert!(!told.contains("warning"), "{told}");
    nothing_runs(machine);
    note_files(machine, "/run/after");
    assert_eq!(machine.ok("comm -13 /run/before /run/after"), "", "left by the package");
    let named = "find / -xdev -path /run/udev -prune -o -path /tmp -prune -o -name '*taskman*' -print";
    assert_eq!(machine.ok(named), "", "left by the package, with its name");
    assert_eq!(machine.ok("ls -d /run/taskman* 2>/dev/null | wc -l"), "0\n");
    assert_eq!(machine.run("systemctl list-units --all --plain --no-legend 'taskman*'").1, "");
    assert!(machine.ok("getent passwd taskman").trim().ends_with("/usr/sbin/nologin"));
}

fn dpkg(machine: &mut Machine, what: &str) -> String {
    // Its waits for the disk are not what is tested.
    let (code, told) = machine.run_within(&format!("dpkg --force-unsafe-io {what} 2>&1"), Duration::from_secs(600));
    assert_eq!(code, 0, "dpkg {what}\n{told}");
    told
}

/// Neither a unit nor a control group of the package, nor a process of a task's or the server's uid.
fn nothing_runs(machine: &mut Machine) {
    assert_eq!(machine.run("systemctl list-units --state=active,failed --plain --no-legend 'taskman*'").1, "");
    assert_eq!(machine.run("systemctl list-unit-files --no-legend 'taskman*'").1, "");
    assert_eq!(machine.ok("find /sys/fs/cgroup -name '*taskman*'"), "");
    assert_eq!(machine.ok("ps -eo uid= | awk '$1 >= 1899999999' | wc -l"), "0\n");
}
