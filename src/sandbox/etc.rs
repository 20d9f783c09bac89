//! `/etc`: what programs need of the host's, and names of the task's own.

use std::collections::BTreeSet;

use super::{Plan, rootfs};
use crate::error::SysError;

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

/// Java's settings lie outside its own directories: those of `/usr/lib/jvm/java-17-openjdk-amd64` in `/etc/java-17-openjdk`, or
/// under the whole name, or with some distributions under none. `/etc` itself is not listed for them: it is long. Where nothing
/// can be listed, no Java runs.
fn of_java() -> BTreeSet<String> {
    let mut names = BTreeSet::from(["java-openjdk".to_owned()]);
    for entry in std::fs::read_dir("/usr/lib/jvm").into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        names.extend(name.rsplit_once('-').map(|(version, _processor)| version.to_owned()));
        names.insert(name);
    }
    names.retain(|name| name.starts_with("java-"));
    names
}

/// Fills `etc` of the new root.
pub fn populate(plan: &Plan<'_>) -> Result<(), SysError> {
    rootfs::directory("etc")?;
    for name in of_java().into_iter().chain(FROM_HOST.map(str::to_owned)) {
        rootfs::bind_or_link(&format!("/etc/{name}"), &format!("etc/{name}"))?;
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
        // A repository that is bound belongs to another uid, and there is nobody inside to be protected from.
        ("gitconfig", "[safe]\n\tdirectory = *\n".to_owned()),
        ("resolv.conf", "# no network, no name server\n".to_owned()),
        ("nsswitch.conf", "passwd: files\ngroup: files\nhosts: files\n".to_owned()),
    ] {
        rootfs::file(&format!("etc/{name}"), &text)?;
    }
    Ok(())
}
