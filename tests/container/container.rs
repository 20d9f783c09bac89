//! One container: the bundle in `deploy/containers/`, the host's own files under an overlay as its root, as an image is, and
//! taskman where the package puts it.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use serde_json::{Value, json};

use crate::support::hierarchies::Hierarchies;
use crate::support::run::TASKMAN;
use crate::support::{Ended, GUARD, HostDir, Started};

/// Uids of tasks in containers: the host's own tasks have others, and neither knows of the other's.
pub const UIDS: &str = "1920000000:1024";
const SERVER: &str = env!("CARGO_BIN_EXE_taskman-server");
const ENTRYPOINT: &str = "/usr/lib/taskman/entrypoint";

/// Makes the root in a mount namespace of its own, so that nothing is left of it, and becomes the runtime.
///
/// Of a hybrid host crun knows nothing. There it finds version 2 alone, and the groups are made for it: `$GROUP`.
const START: &str = r#"
set -eu
mount -t tmpfs tmpfs "$BUNDLE/layers"
mkdir "$BUNDLE/layers/upper" "$BUNDLE/layers/work"
mount -t overlay -o "lowerdir=/,upperdir=$BUNDLE/layers/upper,workdir=$BUNDLE/layers/work" overlay "$BUNDLE/rootfs"
if [ -n "$GROUP" ]; then
  for dir in $GROUP; do echo 0 >"$dir/cgroup.procs"; done
  mount --bind "$UNIFIED" /sys/fs/cgroup
fi
exec "$@"
"#;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Runtime {
    Crun,
    Runc,
}

impl Runtime {
    pub const BOTH: [Self; 2] = [Self::Crun, Self::Runc];

    fn name(self) -> &'static str {
        match self {
            Self::Crun => "crun",
            Self::Runc => "runc",
        }
    }
}

pub struct Container {
    runtime: Runtime,
    /// Of the container, and of its group in each hierarchy.
    pub name: String,
    dir: HostDir,
    config: Value,
    entrypoint: bool,
    pub hierarchies: Hierarchies,
}

impl Container {
    /// As the files say.
    pub fn new(runtime: Runtime) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("taskman-test-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let shipped = Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy/containers");
        let read = |file: &str| -> Value {
            let text = fs::read_to_string(shipped.join(file)).unwrap_or_else(|e| panic!("{file}: {e}"));
            serde_json::from_str(&text).unwrap_or_else(|e| panic!("{file}: {e}"))
        };
        let mut config = read("config.json");
        config["linux"]["seccomp"] = read("seccomp.json");
        config["linux"]["cgroupsPath"] = format!("/{name}").into();
        config["process"]["env"].as_array_mut().unwrap().push(format!("TASKMAN_UID_RANGE={UIDS}").into());
        let entrypoint = shipped.join("entrypoint").display().to_string();
        for (source, destination) in
            [(TASKMAN, "/usr/bin/taskman"), (SERVER, "/usr/sbin/taskman-server"), (entrypoint.as_str(), ENTRYPOINT)]
        {
            let bind = json!({"destination": destination, "type": "bind", "source": source, "options": ["bind", "ro"]});
            config["mounts"].as_array_mut().unwrap().push(bind);
        }
        let hierarchies = Hierarchies::detect();
        Self { runtime, name, dir: HostDir::new(), config, entrypoint: true, hierarchies }
    }

    /// The same without a capability, `CAP_…`.
    pub fn without(self, capability: &str) -> Self {
        self.with(|config| {
            for set in ["bounding", "effective", "permitted"] {
                let names = config["process"]["capabilities"][set].as_array_mut().unwrap();
                let before = names.len();
                names.retain(|name| name != capability);
                assert_eq!(names.len(), before - 1, "{capability} is in the shipped set once");
            }
        })
    }

    /// The same with a change to its configuration.
    pub fn with(mut self, change: impl FnOnce(&mut Value)) -> Self {
        change(&mut self.config);
        self
    }

    /// The same, begun without the entrypoint.
    pub fn bare(mut self) -> Self {
        self.entrypoint = false;
        self
    }

    /// Runs a shell script in it to its end.
    #[track_caller]
    pub fn run(self, script: &str) -> Ended {
        self.start(script, Stdio::null()).end()
    }

    /// Starts a shell script in it.
    #[track_caller]
    pub fn start(mut self, script: &str, stdin: Stdio) -> Running {
        let words = [ENTRYPOINT, "sh", "-c", script];
        self.config["process"]["args"] = words[usize::from(!self.entrypoint)..].into();
        let bundle = self.dir.root();
        for name in ["rootfs", "layers"] {
            fs::create_dir(bundle.join(name)).unwrap();
        }
        fs::write(bundle.join("config.json"), self.config.to_string()).unwrap();

        let by_hand = self.runtime == Runtime::Crun && self.hierarchies.is_hybrid();
        let mut group = String::new();
        if by_hand {
            self.hierarchies.make(&self.name, self.config["linux"]["resources"]["memory"]["limit"].as_u64());
            let dirs = self.hierarchies.directories(&self.name);
            group = dirs.iter().map(|dir| dir.display().to_string()).collect::<Vec<_>>().join(" ");
        }
        let mut command = Command::new("unshare");
        command.args(["--mount", "--propagation", "private", "sh", "-c", START, "start", self.runtime.name()]);
        command.args(if by_hand { &["--cgroup-manager=disabled"][..] } else { &[] });
        command.args(["run", "--bundle"]).arg(&bundle).arg(&self.name);
        command.env("BUNDLE", &bundle).env("GROUP", group).env("UNIFIED", &self.hierarchies.v2).stdin(stdin);
        Running { started: Some(Started::spawn(command, HostDir::new(), GUARD)), container: self }
    }
}

/// A container that runs. Dropped, it is killed and removed with its groups.
pub struct Running {
    started: Option<Started>,
    pub container: Container,
}

impl Running {
    pub fn started(&mut self) -> &mut Started {
        self.started.as_mut().expect("until the end")
    }

    /// Waits for the end of its first process, and removes it.
    #[track_caller]
    pub fn end(mut self) -> Ended {
        let mut ended = self.started.take().expect("once").end();
        // The report is written into the container, which is gone; so scripts print it last.
        ended.report = ended.text().lines().last().and_then(|line| serde_json::from_str(line).ok());
        ended
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let Container { runtime, name, hierarchies, .. } = &self.container;
        let mut delete = Command::new("unshare");
        // As it was started: crun looks for its groups.
        let script = r#"[ -z "$UNIFIED" ] || mount --bind "$UNIFIED" /sys/fs/cgroup; exec "$@""#;
        let by_hand = *runtime == Runtime::Crun && hierarchies.is_hybrid();
        let unified = if by_hand { hierarchies.v2.display().to_string() } else { String::new() };
        delete.args(["--mount", "--propagation", "private", "sh", "-c", script, "delete", runtime.name()]);
        delete.args(if by_hand { &["--cgroup-manager=disabled"][..] } else { &[] });
        delete.args(["delete", "--force", name]).env("UNIFIED", unified);
        let _ = delete.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status();
        self.started = None;
        if by_hand || std::thread::panicking() {
            hierarchies.remove(name);
        }
    }
}
