//! Limits and confinement of the service's tasks under systemd, as an operator can see them from outside the unit.

use super::Host;
use crate::probes;

/// What a process of a task is, by the kernel's word; and what its group may do with the disks.
pub fn confined(host: &mut Host, pid: i64, group: &str) {
    let status = host.ok(&format!("cat /proc/{pid}/status"));
    let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default().trim();
    for name in ["CapInh:", "CapPrm:", "CapEff:", "CapBnd:", "CapAmb:"] {
        assert_eq!(field(name), "0000000000000000", "{name} of {status}");
    }
    assert_eq!((field("NoNewPrivs:"), field("Seccomp:")), ("1", "2"), "{status}");
    let uids: Vec<u32> = field("Uid:").split_whitespace().map(|uid| uid.parse().unwrap()).collect();
    assert!(uids.len() == 4 && uids.iter().all(|uid| *uid >= 1_900_000_000 && *uid == uids[0]), "{status}");
    assert_eq!(host.ok(&format!("cat /sys/fs/cgroup{group}/memory.swap.max")), "0\n");
    let io = host.ok(&format!("cat /sys/fs/cgroup{group}/io.max"));
    assert!(io.contains("rbps=268435456 wbps=268435456"), "{io}");
}

/// Each limit of a task, by what becomes of one that goes beyond it.
pub fn hold(host: &mut Host) {
    let probe = "probe() { taskman wait --output json $(begin \"$@\") >/run/ended; told $? /run/ended; }";
    let told = host.ok(&probes::script(probe));
    println!("    {}", told.trim().replace('\n', "\n    "));
    probes::assert_held(&told);
    disk_reads(host);
}

/// From the disk that the machine itself is on.
fn disk_reads(host: &mut Host) {
    let file = "/usr/share/taskman-read";
    host.ok(&format!("head -c 16M /dev/urandom >{file} && sync {file} && dd if={file} iflag=nocache count=0"));
    let read = format!("begin --memory 16M --io-read-bps 4M -- dd if={file} of=/dev/null bs=1M");
    let task = host.ok(&read).trim().to_owned();
    host.ok(&format!("taskman wait {task}"));
    let seconds = host.status(&task)["usage"]["wall_ms"].as_f64().unwrap() / 1e3;
    host.ok(&format!("rm {file}"));
    println!("    16 MiB read within {seconds:.1} s, of --io-read-bps 4M");
    assert!((3.2..6.0).contains(&seconds), "16 MiB took {seconds:.1} s");
}

/// What the operator gives the unit is all that its tasks have together; and whoever serves is not the one that dies of it.
pub fn end_with_the_units(host: &mut Host) {
    host.ok("systemctl set-property --runtime taskman.service MemoryMax=200M");
    let serving = host.ok("show MainPID; server");
    let task = host.ok("begin --memory 512M -- perl -e '$x = q(x) x (400 << 20)'").trim().to_owned();
    host.run(&format!("taskman wait {task}"));
    let ended = host.status(&task);
    assert_eq!(ended["outcome"]["reason"], "oom", "{ended:#}");
    assert!(ended["outcome"]["detail"].as_str().unwrap().contains("a group above it"), "{ended:#}");
    assert_eq!(host.ok("show MainPID; server"), serving, "whoever serves");
    host.ok("systemctl set-property --runtime taskman.service MemoryMax=infinity");
}

/// While tasks are started, another process looks where theirs are.
pub fn never_outside(host: &mut Host) {
    let me = format!("/host{}", std::env::current_exe().unwrap().display());
    let (code, said) = host.run(&format!(
        "{me} guest watch $(show MainPID) >/run/seen 2>&1 & watcher=$!
         for i in $(seq 10); do follow true || exit 1; done
         kill $watcher; wait $watcher; code=$?; cat /run/seen; exit $code"
    ));
    println!("    {}", said.trim());
    assert!(code == 0 && said.contains(" 0 outside"), "{code}: {said}");
}
