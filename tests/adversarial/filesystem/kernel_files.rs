//! The kernel's own files: /proc beyond the task's processes, sysctls, /sys, devices, core files.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

use crate::harness::answers::{Answers, EVERYWHERE, watch};
use crate::harness::view;
use crate::harness::{Arm, Bench, Case, Control, Fail, broken};
use crate::{ensure, require};

pub fn cases() -> Vec<Case> {
    vec![
        Case {
            id: "F04",
            tier: 1,
            what: "reads and writes the kernel's files in /proc and /sys that tell of or steer the host",
            defence: &["proc-mask"],
            control: secrets_control,
            attack: secrets_attack,
        },
        Case {
            id: "F20",
            tier: 1,
            what: "writes sysctls, core_pattern and /sys",
            defence: &["proc-mask,uid,caps"],
            control: sysctl_control,
            attack: sysctl_attack,
        },
        Case {
            id: "F30",
            tier: 1,
            what: "makes device nodes and opens devices of the host",
            defence: &["seccomp,caps,uid"],
            control: device_control,
            attack: device_attack,
        },
        Case {
            id: "F31",
            tier: 1,
            what: "dumps core",
            defence: &["core,seccomp"],
            control: core_control,
            attack: |bench, arm| {
                let (answers, _) = watch(bench, Some(arm), bench.task(arm).probe("f_core", &["/task"]), |run| {
                    let payload = run.payload().ok_or_else(|| broken("no payload"))?;
                    let cores = cores_in(&view::inside(payload, "/task"));
                    ensure!(cores.is_empty(), "core files {cores:?}");
                    let limits = fs::read_to_string(format!("/proc/{payload}/limits")).unwrap_or_default();
                    let core = limits.lines().find(|line| line.starts_with("Max core file size")).unwrap_or("");
                    ensure!(core.split_whitespace().skip(4).take(2).eq(["0", "0"]), "the limit is {core:?}");
                    Ok(())
                })?;
                answers.all(&EVERYWHERE, &[("raise-core", "EPERM"), ("died", "plain")])
            },
        },
    ]
}

/// Each with what a task gets in the default profile: an empty file covers the kernel's, an empty directory a directory.
const SECRETS: [(&str, &str); 24] = [
    ("/proc/kcore", "empty"),
    ("/proc/keys", "empty"),
    ("/proc/key-users", "empty"),
    ("/proc/kallsyms", "empty"),
    ("/proc/kmsg", "empty"),
    ("/proc/kpagecount", "empty"),
    ("/proc/timer_list", "empty"),
    ("/proc/sched_debug", "empty"),
    ("/proc/config.gz", "empty"),
    ("/proc/cmdline", "empty"),
    ("/proc/modules", "empty"),
    ("/proc/iomem", "empty"),
    ("/proc/interrupts", "empty"),
    ("/proc/slabinfo", "empty"),
    ("/proc/vmallocinfo", "empty"),
    ("/proc/diskstats", "empty"),
    ("/proc/locks", "empty"),
    ("/proc/mtrr", "empty"),
    ("/proc/scsi/scsi", "ENOENT"),
    ("/proc/pressure/cpu", "ENOENT"),
    ("/proc/irq/default_smp_affinity", "ENOENT"),
    ("/proc/sys/kernel/version", "ENOENT"),
    ("/proc/sysvipc/shm", "ENOENT"),
    ("/sys/kernel/mm/transparent_hugepage/enabled", "ENOENT"),
];

/// Opened for writing; nothing is written but a byte that means nothing there.
const LEVERS: [(&str, &str); 3] =
    [("/proc/sysrq-trigger", "EACCES"), ("/proc/mtrr", "EACCES"), ("/sys/power/state", "ENOENT")];

fn exists(path: &str) -> bool {
    Path::new(path).exists()
}

fn secrets_control(bench: &Bench) -> Control {
    // kmsg is not read outside: a byte taken from it is lost to its reader.
    let readable: Vec<&str> =
        SECRETS.iter().map(|(path, _)| *path).filter(|path| exists(path) && *path != "/proc/kmsg").collect();
    for (path, _) in SECRETS.iter().chain(&LEVERS).filter(|(path, _)| !exists(path)) {
        bench.note(format_args!("SKIP F04 {path}: this kernel has no such file"));
    }
    let args: Vec<String> = readable.iter().map(|path| format!("r:{path}")).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    match watch(bench, None, bench.direct().probe("f_paths", &args), |_| Ok(())) {
        Ok((answers, _)) => {
            // Some are empty on a host that has nothing to tell there (no locks, no modules).
            let told = args.iter().filter(|name| answers.get("main", name) == Some("ok")).count();
            bench.note(format_args!("{told} of {} such files can be read outside", args.len()));
            if told * 4 >= args.len() * 3 { Control::Works } else { Control::Broken(format!("{answers:?}")) }
        }
        Err(fail) => Control::Broken(fail.to_string()),
    }
}

fn secrets_attack(bench: &Bench, arm: Arm) -> Result<(), Fail> {
    let reads = SECRETS.iter().map(|(path, want)| (format!("r:{path}"), *path, *want));
    let writes = LEVERS.iter().map(|(path, want)| (format!("w:{path}=_"), *path, *want));
    let probes: Vec<_> = reads.chain(writes).collect();
    let args: Vec<&str> = probes.iter().map(|(arg, ..)| arg.as_str()).collect();
    for profile in ["default", "judge"] {
        let launch = bench.task(arm).opt("--profile", profile).probe("f_paths", &args);
        let (answers, _) = watch(bench, Some(arm), launch, |run| {
            let payload = run.payload().ok_or_else(|| broken("no payload"))?;
            // The host, as root, through the task's own root: no permission hides anything from it.
            for (path, _) in SECRETS.iter().filter(|(path, _)| *path != "/proc/kmsg") {
                let seen = fs::read(view::inside(payload, path)).map_or(0, |bytes| bytes.len());
                ensure!(seen == 0, "{seen} bytes of {path} can be read in the {profile} profile");
            }
            let root = fs::read_dir(view::inside(payload, "/")).into_iter().flatten().flatten();
            let sys = root.map(|entry| entry.file_name()).any(|name| name == "sys");
            ensure!(!sys, "there is a /sys");
            Ok(())
        })?;
        for (arg, path, want) in &probes {
            let want = match *want {
                // What this kernel does not have needs no cover.
                _ if !exists(path) || profile == "judge" => "ENOENT",
                want => want,
            };
            answers.all(&EVERYWHERE, &[(arg.as_str(), want)])?;
        }
    }
    Ok(())
}

/// A sysctl that steers nothing but how many messages the kernel may log in a burst.
const HARMLESS: &str = "/proc/sys/kernel/printk_ratelimit_burst";
const CORE_PATTERN: &str = "/proc/sys/kernel/core_pattern";

fn value(path: &str) -> Result<String, Fail> {
    Ok(fs::read_to_string(path).map_err(|e| broken(format!("{path}: {e}")))?.trim().to_owned())
}

/// Values before, put back when dropped: also after an arm in which the attack worked.
struct Sysctls(Vec<(&'static str, String)>);

impl Sysctls {
    fn save() -> Result<Self, Fail> {
        Ok(Self(vec![(HARMLESS, value(HARMLESS)?), (CORE_PATTERN, value(CORE_PATTERN)?)]))
    }

    fn changed(&self) -> Result<Vec<String>, Fail> {
        let mut changed = Vec::new();
        for (path, before) in &self.0 {
            let now = value(path)?;
            if now != *before {
                changed.push(format!("{path} from {before:?} to {now:?}"));
            }
        }
        Ok(changed)
    }
}

impl Drop for Sysctls {
    fn drop(&mut self) {
        for (path, before) in &self.0 {
            let _ = fs::write(path, before);
        }
    }
}

fn sysctl_control(bench: &Bench) -> Control {
    let run = || -> Result<Control, Fail> {
        let before = Sysctls::save()?;
        let write = format!("w:{HARMLESS}=11");
        let (answers, _) = watch(bench, None, bench.direct().probe("f_paths", &[&write]), |_| Ok(()))?;
        require!(!before.changed()?.is_empty(), "nothing was changed: {answers:?}");
        Ok(answers.works(&EVERYWHERE, &[(&*write, "ok")]))
    };
    run().unwrap_or_else(|fail| Control::Broken(fail.to_string()))
}

fn sysctl_attack(bench: &Bench, arm: Arm) -> Result<(), Fail> {
    let before = Sysctls::save()?;
    // Where the attack is meant to work, it works on the harmless one alone.
    let pattern = match arm {
        Arm::Contained => format!("core-{}", &bench.nonce()[..12]),
        Arm::Mutant(_) => value(CORE_PATTERN)?,
    };
    let writes = [
        format!("w:{HARMLESS}=11"),
        format!("w:{CORE_PATTERN}={pattern}"),
        "w:/proc/sys/kernel/hostname=stolen".to_owned(),
        "w:/sys/kernel/mm/ksm/run=0".to_owned(),
        "w:/sys/kernel/security/x=0".to_owned(),
    ];
    let args: Vec<&str> = writes.iter().map(String::as_str).collect();
    for profile in ["default", "judge"] {
        let launch = bench.task(arm).opt("--profile", profile).probe("f_paths", &args);
        let (answers, _) = watch(bench, Some(arm), launch, |_| Ok(()))?;
        let changed = before.changed()?;
        ensure!(changed.is_empty(), "{}", changed.join("; "));
        let wanted: Vec<(&str, &str)> = args.iter().map(|arg| (*arg, "ENOENT")).collect();
        answers.all(&EVERYWHERE, &wanted)?;
    }
    Ok(())
}

const MADE: [&str; 5] = ["mknod-mem", "mknod-null", "mknod-block", "mknod-high-bits", "mknodat"];

fn device_control(bench: &Bench) -> Control {
    let dir = bench.work_dir().join("nodes");
    let run = || -> Result<Answers, Fail> {
        fs::create_dir(&dir).map_err(|e| broken(format!("mkdir: {e}")))?;
        let dir = dir.display().to_string();
        let wrap = ["env", "-C", &dir, "--"];
        Ok(watch(bench, None, bench.direct().wrapped(&wrap[..3]).probe("f_dev", &[]), |_| Ok(()))?.0)
    };
    let result = run();
    let _ = fs::remove_dir_all(&dir);
    match result {
        Ok(answers) if answers.get("main", "open-null") != Some("ok") => {
            Control::Cannot(format!("device nodes do not work in {}", dir.display()))
        }
        Ok(answers) => answers.works(&EVERYWHERE, &MADE.map(|name| (name, "ok"))),
        Err(fail) => Control::Broken(fail.to_string()),
    }
}

/// Every device node below `dir`, as `name major:minor`.
fn nodes_in(dir: &Path, found: &mut BTreeSet<String>) {
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        let Ok(meta) = fs::symlink_metadata(entry.path()) else { continue };
        if meta.file_type().is_char_device() || meta.file_type().is_block_device() {
            let (major, minor) = (nix::sys::stat::major(meta.rdev()), nix::sys::stat::minor(meta.rdev()));
            found.insert(format!("{} {major}:{minor}", entry.file_name().to_string_lossy()));
        } else if meta.is_dir() {
            nodes_in(&entry.path(), found);
        }
    }
}

fn device_attack(bench: &Bench, arm: Arm) -> Result<(), Fail> {
    let (answers, _) = watch(bench, Some(arm), bench.task(arm).probe("f_dev", &[]), |run| {
        let payload = run.payload().ok_or_else(|| broken("no payload"))?;
        let mut nodes = BTreeSet::new();
        for dir in ["/dev", "/task", "/tmp"] {
            nodes_in(&view::inside(payload, dir), &mut nodes);
        }
        let wanted = ["full 1:7", "null 1:3", "ptmx 5:2", "random 1:8", "tty 5:0", "urandom 1:9", "zero 1:5"];
        ensure!(nodes.iter().eq(wanted.iter()), "device nodes inside: {nodes:?}");
        for mount in view::mounts_of(payload) {
            let devices = ["/dev", "/dev/pts"].contains(&&*mount.point);
            ensure!(devices || mount.has("nodev"), "{} is mounted without nodev", mount.point);
        }
        Ok(())
    })?;
    answers.all(&EVERYWHERE, &MADE.map(|name| (name, "EPERM")))?;
    for (name, result) in answers.with_prefix("/dev/") {
        ensure!(result == "ENOENT", "{name}: {result}, not ENOENT");
    }
    Ok(())
}

fn cores_in(dir: &Path) -> Vec<String> {
    let names = fs::read_dir(dir).into_iter().flatten().flatten().map(|e| e.file_name().to_string_lossy().into_owned());
    names.filter(|name| name.starts_with("core")).collect()
}

fn core_control(bench: &Bench) -> Control {
    let pattern = fs::read_to_string(CORE_PATTERN).unwrap_or_default();
    if !pattern.starts_with("core") {
        return Control::Cannot(format!("core_pattern is {:?}, not a file in the working directory", pattern.trim()));
    }
    let dir = bench.work_dir().join("cores");
    let run = || -> Result<Control, Fail> {
        fs::create_dir(&dir).map_err(|e| broken(format!("mkdir: {e}")))?;
        let args = [dir.to_str().unwrap_or("")];
        let (answers, _) = watch(bench, None, bench.direct().probe("f_core", &args), |_| Ok(()))?;
        require!(!cores_in(&dir).is_empty(), "no core file: {answers:?}");
        Ok(answers.works(&EVERYWHERE, &[("raise-core", "ok"), ("died", "dumped")]))
    };
    let result = run();
    let _ = fs::remove_dir_all(&dir);
    result.unwrap_or_else(|fail| Control::Broken(fail.to_string()))
}
