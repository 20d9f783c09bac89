//! A virtual machine as a value: it boots, runs scripts, and is gone when it is dropped.

mod parts;
mod port;

use std::path::PathBuf;
use std::process::Child;
use std::time::Duration;

use parts::{emulator, image, sharing};
use port::Port;

/// Which of Debian's kernels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kernel {
    /// The one for virtual machines.
    Cloud,
    /// The usual one, which also has x32.
    Stock,
}

impl Kernel {
    /// With the kernel itself and its modules; scripts/vm-test makes it.
    pub fn directory(self) -> PathBuf {
        parts::images().join(match self {
            Self::Cloud => "cloud",
            Self::Stock => "stock",
        })
    }
}

/// What is on the first disk, whose changes live as long as the machine. All of this host's files are at `/host`, and those
/// of this project at their own place too.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Root {
    /// This host's programs; shared as systemd makes it, without systemd.
    Host,
    /// A small Debian with systemd.
    Debian,
}

/// What machine it is to be.
#[derive(Debug, Clone)]
pub struct Spec {
    pub kernel: Kernel,
    pub root: Root,
    pub memory_mib: u32,
    pub cpus: u32,
    /// More words for the kernel.
    pub append: &'static str,
    /// More disks, each of so many MiB and empty: `/dev/vdb` and on.
    pub disks: Vec<u64>,
}

impl Default for Spec {
    fn default() -> Self {
        Self { kernel: Kernel::Cloud, root: Root::Host, memory_mib: 3072, cpus: 1, append: "", disks: Vec::new() }
    }
}

/// From power on to the first script.
const BOOTS_WITHIN: Duration = Duration::from_secs(300);
/// A script that has no limit of its own.
const ENDS_WITHIN: Duration = Duration::from_secs(180);

/// A running machine.
pub struct Machine {
    qemu: Child,
    sharing: Child,
    port: Port,
    console: PathBuf,
    _dir: tempfile::TempDir,
}

impl Machine {
    /// Boots, and waits until it takes scripts.
    pub fn boot(spec: Spec) -> Self {
        let dir = tempfile::Builder::new().prefix("taskman-vm-").tempdir().unwrap();
        for (number, mib) in spec.disks.iter().enumerate() {
            image(&dir.path().join(format!("disk{number}")), *mib);
        }
        let sharing = sharing(dir.path());
        let qemu = emulator(&spec, dir.path());
        let port = Port::connect(&dir.path().join("port"));
        let mut machine = Self { qemu, sharing, port, console: dir.path().join("console"), _dir: dir };
        machine.wait_ready();
        machine
    }

    /// Runs a script of bash, and returns its code and all that it wrote. What it leaves running must have its output
    /// elsewhere: the script ends when nobody can write any more.
    pub fn run(&mut self, script: &str) -> (i32, String) {
        self.run_within(script, ENDS_WITHIN)
    }

    /// The same for what takes longer.
    pub fn run_within(&mut self, script: &str, limit: Duration) -> (i32, String) {
        let mut text = String::new();
        let code = self.port.run(script, limit, |line| {
            text.push_str(line);
            text.push('\n');
        });
        (code.unwrap_or_else(|why| self.gave_up(&format!("{script}\n{text}{why}"))), text)
    }

    /// Runs a script, gives each line to `each` as it comes, and returns the code.
    pub fn watch_within(&mut self, script: &str, limit: Duration, each: impl FnMut(&str)) -> i32 {
        let code = self.port.run(script, limit, each);
        code.unwrap_or_else(|why| self.gave_up(&format!("{script}\n{why}")))
    }

    /// Runs a script that must end well.
    #[track_caller]
    pub fn ok(&mut self, script: &str) -> String {
        let (code, text) = self.run(script);
        assert_eq!(code, 0, "{script}\n{text}");
        text
    }

    /// Asks the system to reboot, and waits until it takes scripts again.
    pub fn reboot(&mut self) {
        self.port.tell("(sleep 1; systemctl reboot) >/dev/null 2>&1 &");
        self.wait_ready();
    }

    fn wait_ready(&mut self) {
        if let Err(why) = self.port.wait_ready(BOOTS_WITHIN) {
            self.gave_up(&why);
        }
    }

    fn gave_up(&self, why: &str) -> ! {
        let console = std::fs::read(&self.console).unwrap_or_default();
        let console = String::from_utf8_lossy(&console);
        let from = console.len().saturating_sub(4000);
        panic!("{why}\nthe machine's console:\n{}", console.get(from..).unwrap_or(&console));
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        for child in [&mut self.qemu, &mut self.sharing] {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
