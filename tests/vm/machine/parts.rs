//! The processes that a machine consists of.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use super::{Root, Spec};

const MAKE_IT: &str = "scripts/vm-test makes it";

pub fn images() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("target/vm")
}

/// A disk with nothing on it.
pub fn image(path: &Path, mib: u64) {
    let file = File::create(path).unwrap();
    file.set_len(mib << 20).unwrap();
}

/// Ends with the thread that started it, so that nothing outlives a test that was killed.
fn bound_to_us(program: &str) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL", program]).stdin(Stdio::null());
    command
}

/// Shares this host's files.
pub fn sharing(dir: &Path) -> Child {
    let log = File::create(dir.join("sharing")).unwrap();
    bound_to_us("/usr/lib/qemu/virtiofsd")
        .arg(format!("--socket-path={}", dir.join("files").display()))
        .args(["-o", "source=/", "-o", "cache=always", "-o", "sandbox=chroot", "-o", "no_posix_lock"])
        .stdout(log.try_clone().unwrap())
        .stderr(log)
        .spawn()
        .expect("virtiofsd runs; scripts/vm-test installs it")
}

/// The machine itself.
pub fn emulator(spec: &Spec, dir: &Path) -> Child {
    let kernel = spec.kernel.directory();
    assert!(kernel.join("vmlinuz").exists(), "{}/vmlinuz is not there; {MAKE_IT}", kernel.display());
    let (root, init) = match spec.root {
        Root::Host => ("host.ext4", "plain"),
        Root::Debian => ("debian.ext4", "systemd"),
    };
    let root = images().join(root);
    assert!(root.exists(), "{} is not there; {MAKE_IT}", root.display());
    let log = File::create(dir.join("qemu")).unwrap();
    let mut qemu = bound_to_us("qemu-system-x86_64");
    // The plainest processor: wide registers and a fifth level of page tables are all emulated too. With `max` it takes a quarter longer.
    qemu.args(["-accel", "tcg,thread=multi,tb-size=1024", "-cpu", "qemu64", "-nodefaults", "-display", "none"])
        .args(["-smp", &spec.cpus.to_string(), "-m", &format!("{}M", spec.memory_mib)])
        // The emulator and the program that shares the files see the machine's memory.
        .args(["-object", &format!("memory-backend-memfd,id=memory,size={}M,share=on", spec.memory_mib)])
        .args(["-numa", "node,memdev=memory"])
        .args(["-chardev", &format!("socket,id=files,path={}", dir.join("files").display())])
        .args(["-device", "vhost-user-fs-pci,chardev=files,tag=host"])
        .args(["-chardev", &format!("socket,id=port,path={},server=on,wait=off", dir.join("port").display())])
        .args(["-device", "virtio-serial-pci", "-device", "virtserialport,chardev=port,name=taskman"])
        .args(["-device", "virtio-rng-pci"])
        .args(["-serial", &format!("file:{}", dir.join("console").display())]);
    qemu.args(["-drive", &format!("file={},format=raw,if=virtio,snapshot=on", root.display())]);
    for number in 0..spec.disks.len() {
        let image = dir.join(format!("disk{number}"));
        qemu.args(["-drive", &format!("file={},format=raw,if=virtio,cache=unsafe", image.display())]);
    }
    let (tree, scratch) = (env!("CARGO_MANIFEST_DIR"), env!("CARGO_TARGET_TMPDIR"));
    // An emulator translates a program anew for every address that it is run at: at random ones, a start costs more than twice as much.
    let append = format!(
        "console=ttyS0 panic=-1 quiet norandmaps vm.init={init} vm.tree={tree} vm.scratch={scratch} {}",
        spec.append
    );
    qemu.arg("-kernel")
        .arg(kernel.join("vmlinuz"))
        .arg("-initrd")
        .arg(kernel.join("initramfs"))
        .args(["-append", &append]);
    wait_for(&dir.join("files"));
    qemu.stdout(log.try_clone().unwrap()).stderr(log).spawn().expect("qemu runs; scripts/vm-test installs it")
}

fn wait_for(socket: &Path) {
    for _ in 0..500 {
        if socket.exists() {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    panic!("virtiofsd made no {}", socket.display());
}
