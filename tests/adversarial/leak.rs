//! Information: a task learns nothing of the host, of its caller, or of another task, but for what docs/proc.md lists.

mod counters;

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use crate::harness::answers::{Answers, EVERYWHERE, watch};
use crate::harness::{Arm, Bench, Case, Control, Fail, broken, view};
use crate::{ensure, require};

pub fn cases() -> Vec<Case> {
    let mut cases = vec![
        Case {
            id: "L01",
            tier: 1,
            what: "looks for the caller's environment and arguments in every process, file and name it can see",
            defence: &["env", "pid-namespace,proc-mask,uid,caps"],
            control: |bench| match caller_secrets(bench, None) {
                Ok(found) if found.iter().all(|found| *found) => Control::Works,
                Ok(found) => Control::Broken(format!("environment and arguments found: {found:?}")),
                Err(fail) => Control::Broken(fail.to_string()),
            },
            attack: |bench, arm| {
                let found = caller_secrets(bench, Some(arm))?;
                ensure!(found == [false; 2], "the caller's environment, arguments are visible inside: {found:?}");
                Ok(())
            },
        },
        Case {
            id: "L02",
            tier: 1,
            what: "the files of /proc that tell of the host are those that docs/proc.md lists, and no other",
            defence: &["proc-mask"],
            control: |bench| {
                let launch = bench.direct().with_uid(bench.uid_range().start).probe("l_dump", &["proc"]);
                match watch(bench, None, launch, |_| Ok(())) {
                    Ok((answers, _)) if answers.with_prefix("readable").len() > 100 => Control::Works,
                    Ok((answers, _)) => {
                        Control::Broken(format!("outside too only {:?} can be read", answers.with_prefix("readable")))
                    }
                    Err(fail) => Control::Broken(fail.to_string()),
                }
            },
            attack: allow_list,
        },
        Case {
            id: "L04",
            tier: 2,
            what: "the mounts that a task sees name no place of the host but those that were asked to be bound",
            defence: &["old-root"],
            control: |_| {
                let own = view::mounts_of(std::process::id() as i32);
                if own.is_empty() { Control::Broken("no mounts".to_owned()) } else { Control::Works }
            },
            attack: mount_names,
        },
        Case {
            id: "L05",
            tier: 1,
            what: "looks for another task's existence, output, arguments and files",
            defence: &["pid-namespace", "net-namespace"],
            control: |bench| match other_task(bench, None) {
                Ok((true, _)) => Control::Works,
                Ok((false, text)) => Control::Broken(format!("the other is not found outside either: {text}")),
                Err(fail) => Control::Broken(fail.to_string()),
            },
            attack: |bench, arm| {
                let (found, lines) = other_task(bench, Some(arm))?;
                ensure!(!found, "the other task is visible: {lines}");
                Ok(())
            },
        },
        Case {
            id: "L21",
            tier: 1,
            what: "has itself told what others open in a directory of the host, by inotify and dnotify",
            defence: &["seccomp"],
            control: |bench| match told(bench, None) {
                Ok((answers, told)) if told.iter().all(|count| *count > 0) => {
                    answers.works(&EVERYWHERE, &TOLD.map(|(name, _)| (name, "ok")))
                }
                Ok((answers, told)) => Control::Broken(format!("told {told:?}: {answers:?}")),
                Err(fail) => Control::Broken(fail.to_string()),
            },
            attack: |bench, arm| {
                let (answers, told) = told(bench, Some(arm))?;
                ensure!(told == [0, 0], "the task was told of what the host opened: {told:?}");
                answers.all(&EVERYWHERE, &TOLD)
            },
        },
        Case {
            id: "L20",
            tier: 1,
            what: "init's memory, read by the host, holds nothing of the caller's environment, arguments or the launcher",
            defence: &["init-image"],
            control: |bench| match memory(bench, None) {
                Ok(true) => Control::Works,
                Ok(false) => Control::Broken("a program's own environment is not found in its memory".to_owned()),
                Err(fail) => Control::Broken(fail.to_string()),
            },
            attack: |bench, arm| {
                ensure!(!memory(bench, Some(arm))?, "init's memory holds the caller's environment or arguments");
                Ok(())
            },
        },
    ];
    cases.extend(counters::cases());
    cases
}

/// Starts with a secret in the environment and one as the program's own name, as a caller might have.
fn secretive<'a>(environment: &'a str, name: &'a str) -> [&'a str; 6] {
    ["env", environment, "bash", "-c", "exec -a \"$0\" \"$@\"", name]
}

/// Whether the secret of the environment, and that of the arguments, are in what the task can print.
fn caller_secrets(bench: &Bench, arm: Option<Arm>) -> Result<[bool; 2], Fail> {
    let (one, two) = (format!("env{}", &bench.nonce()[3..]), format!("arg{}", &bench.nonce()[3..]));
    let variable = format!("CALLER_SECRET={one}");
    let launch = arm.map_or_else(|| bench.direct(), |arm| bench.task(arm));
    let launch = launch.wrapped(&secretive(&variable, &two)).keep(64 << 20).probe("l_dump", &[]);
    let mut outside = [false; 2];
    let (_, done) = watch(bench, arm, launch, |run| {
        if arm.is_none() {
            return Ok(());
        }
        // The host's own look, at every process of the task.
        let holds = |pid: i32, file: &str, secret: &str| {
            let bytes = fs::read(format!("/proc/{pid}/{file}")).unwrap_or_default();
            bytes.windows(secret.len()).any(|window| window == secret.as_bytes())
        };
        let members = run.members();
        require!(members.len() >= 2, "{} members", members.len());
        for pid in members {
            outside[0] |= ["environ", "cmdline"].iter().any(|file| holds(pid, file, &one));
            outside[1] |= ["environ", "cmdline", "comm"].iter().any(|file| holds(pid, file, &two));
        }
        Ok(())
    })?;
    require!(done.out.len() > 2000, "the probe printed only {} bytes", done.out.len());
    Ok([outside[0] || done.out.contains(&one), outside[1] || done.out.contains(&two)])
}

/// The paths that docs/proc.md lists: the first word in backquotes of each row of its tables.
fn documented() -> Result<BTreeSet<String>, Fail> {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/proc.md");
    let text = fs::read_to_string(&page).map_err(|e| broken(format!("{}: {e}", page.display())))?;
    let row = |line: &str| {
        let name = line.strip_prefix("| `")?.split('`').next()?;
        Some(if name.starts_with("/proc/") { name.to_owned() } else { format!("/proc/{name}") })
    };
    let listed: BTreeSet<String> = text.lines().filter_map(row).collect();
    require!(!listed.is_empty(), "docs/proc.md lists nothing");
    Ok(listed)
}

fn allow_list(bench: &Bench, arm: Arm) -> Result<(), Fail> {
    for profile in ["default", "judge"] {
        let wanted = if profile == "judge" { BTreeSet::new() } else { documented()? };
        let launch = bench.task(arm).opt("--profile", profile).probe("l_dump", &["proc"]);
        let mut by_host = BTreeSet::new();
        let (answers, _) = watch(bench, Some(arm), launch, |run| {
            let payload = run.payload().ok_or_else(|| broken("no payload"))?;
            readable(&view::inside(payload, "/proc"), "/proc", &mut by_host);
            Ok(())
        })?;
        let by_task: BTreeSet<String> =
            answers.with_prefix("readable").into_iter().map(|(_, path)| path.to_owned()).collect();
        for (who, seen) in [("the host", by_host), ("the task", by_task)] {
            let more: Vec<_> = seen.difference(&wanted).take(20).collect();
            let less: Vec<_> = wanted.difference(&seen).collect();
            ensure!(more.is_empty(), "{who} reads in the {profile} profile what is not documented: {more:?}");
            ensure!(less.is_empty(), "{who} cannot read in the {profile} profile what is documented: {less:?}");
        }
    }
    Ok(())
}

/// Files below a task's /proc, outside its processes, that give the host at least one byte. The host is root: what only
/// permissions would hide counts as readable. It stops at a hundred, which is far more than there may be.
fn readable(dir: &Path, name: &str, found: &mut BTreeSet<String>) {
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        let file = entry.file_name().to_string_lossy().into_owned();
        let Ok(kind) = entry.file_type() else { continue };
        let process = name == "/proc" && file.starts_with(|c: char| c.is_ascii_digit());
        // kmsg blocks, and a byte that is taken from it is lost to its reader: its being there is enough.
        let path = format!("{name}/{file}");
        if process || kind.is_symlink() || found.len() > 100 {
            continue;
        }
        if kind.is_dir() {
            readable(&entry.path(), &path, found);
        } else if path == "/proc/kmsg" {
            if fs::metadata(entry.path()).is_ok_and(|meta| std::os::unix::fs::MetadataExt::mode(&meta) & 0o777 == 0o400)
            {
                found.insert(path);
            }
        } else if first_byte(&entry.path()) {
            found.insert(path);
        }
    }
}

fn first_byte(path: &Path) -> bool {
    use std::io::Read;
    use std::os::unix::fs::OpenOptionsExt;
    let file = fs::OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(path);
    file.is_ok_and(|mut file| file.read(&mut [0]).is_ok_and(|n| n == 1))
}

/// Roots of bind mounts that every task has: parts of the host's system.
const BOUND: [&str; 6] = ["/usr", "/bin", "/sbin", "/lib", "/etc/", "/tmpfs"];

fn mount_names(bench: &Bench, arm: Arm) -> Result<(), Fail> {
    // A root is relative to its own file system, as is that of the host's mount on which the bound directory lies.
    let mounts = view::mounts_of(std::process::id() as i32);
    let on = mounts.iter().filter(|mount| bench.probe_dir().starts_with(&mount.point));
    let on = on.max_by_key(|mount| mount.point.len()).ok_or_else(|| broken("the probes are on no mount"))?;
    let below = bench.probe_dir().strip_prefix(&on.point).map_err(|e| broken(e.to_string()))?;
    let probe_root = Path::new(&on.root).join(below);
    watch(bench, Some(arm), bench.task(arm).probe("k_victim", &[]), |run| {
        let payload = run.payload().ok_or_else(|| broken("no payload"))?;
        for mount in view::mounts_of(payload) {
            let asked = mount.point == "/probe" && Path::new(&mount.root) == probe_root;
            let own = mount.kind == "tmpfs" || mount.kind == "proc" || mount.kind == "devpts";
            let system = BOUND.iter().any(|prefix| mount.root.starts_with(prefix) && mount.point.starts_with(prefix));
            ensure!(asked || own || system, "{} of a {} is mounted on {}", mount.root, mount.kind, mount.point);
        }
        Ok(())
    })?;
    Ok(())
}

/// Whether a second task finds the first, which has its nonce in everything, and where.
fn other_task(bench: &Bench, arm: Option<Arm>) -> Result<(bool, String), Fail> {
    let start = || arm.map_or_else(|| bench.direct().with_uid(bench.uid_range().start), |arm| bench.task(arm));
    let secret = format!("other{}", &bench.nonce()[3..]);
    let mut first = start().probe("n_pair", &["serve", &secret]).with_stdin().spawn()?;
    first.wait_line("state ready")?;
    let (_, done) = watch(bench, arm, start().keep(64 << 20).probe("l_dump", &[]), |_| Ok(()))?;
    drop(first.stdin());
    let ended = first.finish()?;
    require!(ended.code() == 0, "the first task ended with {}", ended.code());
    require!(done.out.len() > 2000, "the probe printed only {} bytes", done.out.len());
    let lines: Vec<&str> = done.out.lines().filter(|line| line.contains(&secret)).take(5).collect();
    Ok((!lines.is_empty(), lines.join("; ")))
}

fn memory(bench: &Bench, arm: Option<Arm>) -> Result<bool, Fail> {
    let (one, two) = (format!("env{}", &bench.nonce()[3..]), format!("arg{}", &bench.nonce()[3..]));
    let variable = format!("CALLER_SECRET={one}");
    let launch = arm.map_or_else(|| bench.direct(), |arm| bench.task(arm));
    let mut found = false;
    watch(bench, arm, launch.wrapped(&secretive(&variable, &two)).probe("k_victim", &[]), |run| {
        let pid = if arm.is_some() { run.init() } else { Some(run.pid) }.ok_or_else(|| broken("no init"))?;
        // Half of each secret, so that the suite's own text is never what is found.
        found = view::memory_holds(pid, &one)? || view::memory_holds(pid, &two)?;
        Ok(())
    })?;
    Ok(found)
}

/// What asking to be told gives: changes may be watched for, the reading of others may not.
const TOLD: [(&str, &str); 8] = [
    ("inotify-open", "EPERM"),
    ("inotify-access", "EPERM"),
    ("inotify-close", "EPERM"),
    ("inotify-all", "EPERM"),
    ("inotify-high", "EPERM"),
    ("inotify-modify", "ok"),
    ("dnotify", "EINVAL"),
    ("dnotify-high", "EINVAL"),
];

/// The host opens a file in a directory that the probe watches: bytes of inotify events and signals of dnotify it got.
fn told(bench: &Bench, arm: Option<Arm>) -> Result<(Answers, [u64; 2]), Fail> {
    let directory = bench.probe_dir().join("watched");
    fs::create_dir_all(&directory).map_err(|e| broken(format!("mkdir: {e}")))?;
    let file = directory.join("file");
    fs::write(&file, "text").map_err(|e| broken(format!("write: {e}")))?;
    let inside = if arm.is_some() { "/probe/watched".to_owned() } else { directory.display().to_string() };
    let launch = arm.map_or_else(|| bench.direct(), |arm| bench.task(arm));
    let (answers, _) = watch(bench, arm, launch.probe("l_notify", &[&inside]), |_| {
        fs::read(&file).map(drop).map_err(|e| broken(format!("read: {e}")))
    })?;
    let number = |name: &str| answers.get("main", name).and_then(|text| u64::from_str_radix(text, 16).ok());
    let told = (number("inotify-bytes"), number("dnotify-signals"));
    let (Some(bytes), Some(signals)) = told else { return Err(broken("the probe did not count")) };
    Ok((answers, [bytes, signals]))
}
