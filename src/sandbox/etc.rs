//! `/etc`: what programs need of the host's, and names of the task's own.

use super::{Plan, rootfs};
use crate::error::{Context, SysError};

/// Read by loaders, TLS libraries and language runtimes; none of it tells more than which packages are installed.
const FROM_HOST: [&str; 9] = [
    "ld.so.cache",
    "ld.so.conf",
    "ld.so.conf.d",
    "ssl",
    "pki",
    "crypto-policies",
    "alternatives",
    "localtime",
    "os-release",
];

/// Fills `etc` of the new root.
pub fn populate(plan: &Plan<'_>) -> Result<(), SysError> {
    rootfs::directory("etc")?;
    for name in FROM_HOST {
        rootfs::bind_or_link(&format!("/etc/{name}"), &format!("etc/{name}"))?;
    }
    // Java keeps its security policy outside its own directory, under the version's name.
    for entry in std::fs::read_dir("/etc").on("readdir", "/etc")?.flatten() {
        if let Some(name) = entry.file_name().to_str().filter(|name| name.starts_with("java-")) {
            rootfs::bind_or_link(&format!("/etc/{name}"), &format!("etc/{name}"))?;
        }
    }
    let (uid, hostname) = (plan.uid, &plan.spec.hostname);
    for (name, text) in [
        (
            "passwd",
            format!(
                "root:x:0:0:root:/:/bin/sh\ntask:x:{uid}:{uid}:task:/task:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/false\n"
            ),
        ),
        ("group", format!("root:x:0:\ntask:x:{uid}:\nnogroup:x:65534:\n")),
        ("hosts", format!("127.0.0.1 localhost {hostname}\n::1 localhost {hostname}\n")),
        ("hostname", format!("{hostname}\n")),
        ("resolv.conf", "# no network, no name server\n".to_owned()),
        ("nsswitch.conf", "passwd: files\ngroup: files\nhosts: files\n".to_owned()),
    ] {
        rootfs::file(&format!("etc/{name}"), &text)?;
    }
    Ok(())
}
