//! Files: a task sees its own root, and no path, descriptor or program leads out of it.

mod binds;
mod kernel_files;
mod mounts;
mod planted;
mod writes;

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::harness::answers::{Answers, EVERYWHERE, watch};
use crate::harness::view::{self, Bait};
use crate::harness::{Arm, Bench, Case, Control, Fail, broken, proc};
use crate::{ensure, require};

/// Leaves files of the host inheritable, as a careless caller would.
const LEAKY: [&str; 4] = ["bash", "-c", "exec 20</etc/passwd 21</proc/self/ns/net 22</ \"$@\"", "leaky"];

pub fn cases() -> Vec<Case> {
    let mut cases = vec![
        Case {
            id: "F01",
            tier: 1,
            what: "looks for a file of the host by `..`, /proc/PID/root, chroot, pivot_root, the old root and a kept directory",
            defence: &["old-root", "close-fds"],
            control: |bench| {
                escape(bench, None).map_or_else(
                    |f| Control::Broken(f.to_string()),
                    |(answers, read)| {
                        let wanted =
                            ["absolute", "dot-dot", "self-root", "target-root", "target-cwd", "chroot", "after-chroot"];
                        match answers.works(&EVERYWHERE, &wanted.map(|name| (name, "ok"))) {
                            Control::Works if !read => Control::Broken("the watch on the bait is asleep".to_owned()),
                            control => control,
                        }
                    },
                )
            },
            attack: |bench, arm| {
                let (answers, read) = escape(bench, Some(arm))?;
                let ways: Vec<&str> = answers
                    .with_prefix("")
                    .into_iter()
                    .filter(|(_, r)| *r == "ok" || *r == "found")
                    .map(|(n, _)| n)
                    .collect();
                ensure!(!read, "the host's file was read, by {ways:?}");
                answers.all(&EVERYWHERE, &ESCAPES)
            },
        },
        Case {
            id: "F02",
            tier: 1,
            what: "descriptors and working directory at the first instruction, with a caller that leaks its own",
            defence: &["close-fds"],
            control: first_control,
            attack: first_attack,
        },
        Case {
            id: "F03",
            tier: 1,
            what: "overwrites the launcher's or init's program through /proc/PID/exe, also with `#!/proc/self/exe`",
            defence: &["dumpable"],
            control: exe_control,
            attack: exe_attack,
        },
    ];
    cases.extend(binds::cases());
    cases.extend(kernel_files::cases());
    cases.extend(mounts::cases());
    cases.extend(planted::cases());
    cases.extend(writes::cases());
    cases
}

const ESCAPES: [(&str, &str); 12] = [
    ("absolute", "ENOENT"),
    ("dot-dot", "ENOENT"),
    ("self-root", "ENOENT"),
    ("self-root-up", "ENOENT"),
    ("self-cwd-up", "ENOENT"),
    ("target-root", "EACCES"),
    ("target-cwd", "EACCES"),
    ("old-root", "none"),
    ("kept-dirfd", "none"),
    ("pivot-root", "EPERM"),
    ("chroot", "EPERM"),
    ("after-chroot", "ENOENT"),
];

fn escape(bench: &Bench, arm: Option<Arm>) -> Result<(Answers, bool), Fail> {
    let mut bait = Bait::lay(bench, bench.work_dir().join("bait"))?;
    let path = bait.path().display().to_string();
    // An escape must not fail for want of permission on the way.
    require!(fs::metadata(bench.work_dir()).is_ok_and(|m| m.mode() & 0o005 == 0o005), "the bait is out of reach");
    let mut target = bench.direct().wrapped(&["env", "-C", "/"]).probe("k_victim", &[]).with_stdin().spawn()?;
    target.wait_line("state ready")?;
    let launch = match arm {
        Some(arm) => bench.task(arm).wrapped(&LEAKY).probe("f_escape", &[&path, "1"]),
        None => bench.direct().wrapped(&LEAKY).probe("f_escape", &[&path, &target.pid.to_string()]),
    };
    let (answers, _) = watch(bench, arm, launch, |run| {
        let Some(payload) = run.payload().filter(|_| arm.is_some()) else { return Ok(()) };
        let root = fs::metadata(format!("/proc/{payload}/root/")).map_err(|e| broken(format!("root: {e}")))?;
        let host = fs::metadata("/").map_err(|e| broken(format!("root: {e}")))?;
        ensure!((root.dev(), root.ino()) != (host.dev(), host.ino()), "the payload's root is the host's");
        Ok(())
    })?;
    let touched = bait.was_touched(arm.is_none())?;
    Ok((answers, touched))
}

/// A program without a library whose only instruction is a jump to itself.
pub fn first_instruction(bench: &Bench) -> Result<PathBuf, Fail> {
    let out = bench.probe_dir().join("k_first");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/adversarial/payloads/k_first.c");
    let gcc = Command::new("gcc").args(["-nostdlib", "-static", "-o"]).arg(&out).arg(source).output();
    let gcc = gcc.map_err(|e| broken(format!("gcc: {e}")))?;
    require!(gcc.status.success(), "gcc k_first.c: {}", String::from_utf8_lossy(&gcc.stderr));
    Ok(out)
}

/// Whether `pid` runs the program that never gets past its first instruction.
pub fn at_first_instruction(pid: i32) -> bool {
    fs::read_link(format!("/proc/{pid}/exe")).is_ok_and(|exe| exe.ends_with("k_first"))
}

fn first_control(bench: &Bench) -> Control {
    let run = || -> Result<Control, Fail> {
        let program = first_instruction(bench)?;
        let mut run = bench.direct().wrapped(&LEAKY).command(program, [bench.nonce()]).with_stdin().spawn()?;
        let pid = run.pid;
        require!(run.wait_until(std::time::Duration::from_secs(5), || at_first_instruction(pid))?, "never started");
        let fds = view::fds_of(pid);
        Ok(if [20, 21, 22].iter().all(|fd| fds.contains_key(fd)) {
            Control::Works
        } else {
            Control::Broken(format!("the leaky caller leaks only {fds:?}"))
        })
    };
    run().unwrap_or_else(|fail| Control::Broken(fail.to_string()))
}

fn first_attack(bench: &Bench, arm: Arm) -> Result<(), Fail> {
    first_instruction(bench)?;
    let launch = bench.task(arm).wrapped(&LEAKY).command("/probe/k_first", [bench.nonce()]).opt("--grace", "1s");
    let mut run = launch.with_stdin().spawn()?;
    let taskman = run.pid;
    let payload = || {
        let init = proc::children_of(taskman).first()?.pid;
        proc::children_of(init).iter().map(|stat| stat.pid).find(|pid| at_first_instruction(*pid))
    };
    require!(run.wait_until(std::time::Duration::from_secs(10), || payload().is_some())?, "the payload never started");
    let payload = payload().ok_or_else(|| broken("the payload is gone"))?;
    if arm == Arm::Contained {
        bench.canary()?;
    }
    let fds = view::fds_of(payload);
    ensure!(fds.keys().copied().eq([0, 1, 2]), "descriptors at the first instruction: {fds:?}");
    ensure!(fds.values().all(|target| target.starts_with("pipe:[")), "not all are pipes: {fds:?}");
    let outside: Vec<String> = view::fds_of(std::process::id() as i32).into_values().collect();
    ensure!(!fds.values().any(|target| outside.contains(target)), "a descriptor of the caller itself: {fds:?}");
    let init = run.init().ok_or_else(|| broken("no init"))?;
    let init_fds = view::fds_of(init);
    ensure!(init_fds.values().all(|target| target.starts_with("pipe:[")), "init holds {init_fds:?}");
    let cwd = fs::read_link(format!("/proc/{payload}/cwd")).map_err(|e| broken(format!("cwd: {e}")))?;
    ensure!(cwd == Path::new("/task"), "the working directory is {}", cwd.display());
    run.signal(nix::sys::signal::Signal::SIGTERM)?;
    let done = run.finish()?;
    if arm == Arm::Contained {
        ensure!(done.reason()? == "stopped" && done.verdict()? == "proven", "ended as {:?}", done.report);
        let refused = bench.task(arm).opt("--workdir", "/proc/self/fd/22").command("/bin/true", [""; 0]).finish()?;
        ensure!(
            refused.code() == 125 && refused.report.is_none(),
            "--workdir /proc/self/fd/22 gave {}",
            refused.code()
        );
    }
    Ok(())
}

fn hash(path: &Path) -> Result<String, Fail> {
    let sum = Command::new("sha256sum").arg(path).output().map_err(|e| broken(format!("sha256sum: {e}")))?;
    require!(sum.status.success(), "sha256sum {}: {}", path.display(), String::from_utf8_lossy(&sum.stderr));
    Ok(String::from_utf8_lossy(&sum.stdout).split(' ').next().unwrap_or("").to_owned())
}

/// The way it worked: a descriptor of a running program, opened for writing once the program has ended.
fn exe_control(bench: &Bench) -> Control {
    let run = || -> Result<Control, Fail> {
        let victim = bench.work_dir().join("victim");
        fs::copy(bench.payload("k_victim"), &victim).map_err(|e| broken(format!("copy: {e}")))?;
        let before = hash(&victim)?;
        let mut target = bench.direct().command(&victim, [bench.nonce()]).with_stdin().spawn()?;
        target.wait_line("state ready")?;
        let pid = target.pid.to_string();
        let (answers, _) = watch(bench, None, bench.direct().probe("f_exe", &[&pid]), |_| {
            drop(target.stdin());
            target.finish().map(drop)
        })?;
        let changed = hash(&victim)? != before;
        fs::remove_file(&victim).map_err(|e| broken(format!("remove: {e}")))?;
        require!(changed, "the victim's program was not changed: {answers:?}");
        let later = format!("later-{pid}");
        Ok(answers.works(&["main"], &[(&*later, "ok"), ("overwrite", "ok")]))
    };
    run().unwrap_or_else(|fail| Control::Broken(fail.to_string()))
}

fn exe_attack(bench: &Bench, arm: Arm) -> Result<(), Fail> {
    let binary = match arm {
        Arm::Contained => bench.taskman().to_owned(),
        Arm::Mutant(_) => bench.mutant().map_err(broken)?,
    };
    let before = hash(&binary)?;
    // An entry point that makes the kernel execute the program of whoever executes it: init's child.
    let script = bench.probe_dir().join("self-exe");
    fs::write(&script, "#!/proc/self/exe\n").map_err(|e| broken(format!("script: {e}")))?;
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).map_err(|e| broken(format!("chmod: {e}")))?;
    let entry = bench.task(arm).command("/probe/self-exe", [bench.nonce()]).opt("--timeout", "5s").finish()?;
    ensure!(hash(&binary)? == before, "taskman's program was changed by #!/proc/self/exe");
    ensure!(entry.code() != 0, "#!/proc/self/exe ended with 0: {}", entry.out);
    // From inside: init, and the task's own program, which is a file of the host too.
    let probe = bench.payload("f_exe");
    let own = hash(&probe)?;
    let (answers, _) = watch(bench, Some(arm), bench.task(arm).probe("f_exe", &["1", "self"]), |_| Ok(()))?;
    ensure!(hash(&binary)? == before, "taskman's program was changed");
    ensure!(hash(&probe)? == own, "a bound program was changed");
    let wanted = [
        ("read-1", "EACCES"),
        ("path-1", "EACCES"),
        ("write-1", "EACCES"),
        ("read-self", "ok"),
        ("later-self", "EACCES"),
    ];
    answers.all(&["main"], &wanted)
}
