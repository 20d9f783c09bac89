//! The Debian package as a file: what is in it, where, and that the same sources are the same bytes. Its life on a machine
//! is shown in one: `tests/vm/package.rs`.
#![allow(clippy::unwrap_used)] // a test that cannot go on fails
#![allow(clippy::disallowed_methods)] // runs scripts/package, dpkg-deb and sh

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::LazyLock;

use taskman::config::{Config, Overrides};

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Has a package made of the programs in a directory.
fn package(programs: &Path, outdir: &Path, zone: &str) -> Output {
    let mut command = Command::new(root().join("scripts/package"));
    command.env("TZ", zone).current_dir("/").arg("--programs").arg(programs).arg(outdir).output().unwrap()
}

fn built() -> &'static Path {
    Path::new(env!("CARGO_BIN_EXE_taskman")).parent().unwrap()
}

fn made(outdir: &Path, zone: &str) -> PathBuf {
    let output = package(built(), outdir, zone);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    PathBuf::from(String::from_utf8(output.stdout).unwrap().trim())
}

fn ok(program: &str, args: &[&str]) -> String {
    let output = Command::new(program).args(args).output().unwrap();
    assert!(output.status.success(), "{program} {args:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// What is in a package: path to mode, owner and size.
fn contents(package: &Path) -> BTreeMap<String, String> {
    let list = ok("dpkg-deb", &["--contents", package.to_str().unwrap()]);
    let entry = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        (words[5].trim_start_matches('.').to_owned(), format!("{} {}", words[0], words[1]))
    };
    list.lines().map(entry).collect()
}

/// The package unpacked, its control files in `DEBIAN/`.
struct Unpacked {
    directory: tempfile::TempDir,
    contents: BTreeMap<String, String>,
}

/// Made once for all tests that only look.
fn unpacked() -> &'static Unpacked {
    static UNPACKED: LazyLock<Unpacked> = LazyLock::new(unpack);
    &UNPACKED
}

fn unpack() -> Unpacked {
    let directory = tempfile::tempdir().unwrap();
    let package = made(&directory.path().join("out"), "UTC");
    let to = directory.path().join("root");
    ok("dpkg-deb", &["--raw-extract", package.to_str().unwrap(), to.to_str().unwrap()]);
    let contents = contents(&package);
    Unpacked { directory, contents }
}

impl Unpacked {
    fn path(&self, path: &str) -> PathBuf {
        self.directory.path().join("root").join(path.trim_start_matches('/'))
    }

    fn read(&self, path: &str) -> String {
        fs::read_to_string(self.path(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
    }

    fn mode(&self, path: &str) -> &str {
        self.contents.get(path).map_or("not there", String::as_str)
    }
}

#[test]
fn the_same_sources_are_the_same_bytes() {
    let directory = tempfile::tempdir().unwrap();
    let [one, two] = [("one", "UTC"), ("two", "Pacific/Auckland")]
        .map(|(name, zone)| fs::read(made(&directory.path().join(name), zone)).unwrap());
    assert!(one.len() > 1 << 20 && one == two, "{} and {} bytes", one.len(), two.len());
}

#[test]
fn every_file_is_in_its_place_and_roots_alone_to_write() {
    let package = unpacked();
    for (path, mode) in [
        ("/usr/bin/taskman", "-rwxr-xr-x root/root"),
        ("/usr/sbin/taskman-server", "-rwxr-xr-x root/root"),
        ("/usr/lib/taskman/audit-containment", "-rwxr-xr-x root/root"),
        ("/usr/lib/taskman/cleanup-all", "-rwxr-xr-x root/root"),
        ("/usr/lib/systemd/system/taskman.service", "-rw-r--r-- root/root"),
        ("/usr/lib/systemd/system/taskman.slice", "-rw-r--r-- root/root"),
        ("/usr/lib/systemd/system/taskman-audit.service", "-rw-r--r-- root/root"),
        ("/usr/lib/systemd/system/taskman-audit.timer", "-rw-r--r-- root/root"),
        ("/usr/lib/sysusers.d/taskman.conf", "-rw-r--r-- root/root"),
        ("/usr/lib/tmpfiles.d/taskman.conf", "-rw-r--r-- root/root"),
        ("/usr/share/man/man1/taskman-run.1.gz", "-rw-r--r-- root/root"),
        ("/usr/share/man/man8/taskman-server.8.gz", "-rw-r--r-- root/root"),
        ("/usr/share/bash-completion/completions/taskman", "-rw-r--r-- root/root"),
        ("/usr/share/zsh/vendor-completions/_taskman", "-rw-r--r-- root/root"),
        ("/usr/share/fish/vendor_completions.d/taskman.fish", "-rw-r--r-- root/root"),
        ("/usr/share/doc/taskman/copyright", "-rw-r--r-- root/root"),
        ("/usr/share/doc/taskman/crates.gz", "-rw-r--r-- root/root"),
        ("/etc/taskman/certs/", "drwx------ root/root"),
    ] {
        assert_eq!(package.mode(path), mode, "{path}");
    }
    for runbook in fs::read_dir(root().join("runbooks")).unwrap() {
        let path = format!("/usr/share/doc/taskman/runbooks/{}", runbook.unwrap().file_name().to_str().unwrap());
        assert_eq!(package.mode(&path), "-rw-r--r-- root/root", "{path}");
    }
    assert_eq!(package.read("DEBIAN/conffiles"), "/etc/taskman/server.toml\n");
    let sums = package.path("DEBIAN/md5sums");
    let check = Command::new("md5sum").args(["--check", "--quiet"]).arg(sums).current_dir(package.path("/")).output();
    assert!(check.unwrap().status.success());
}

#[test]
fn what_the_units_name_is_in_the_package() {
    let package = unpacked();
    let is_there = |path: &str| package.contents.contains_key(path);
    let units: Vec<_> = package.contents.keys().filter(|path| path.starts_with("/usr/lib/systemd/system/t")).collect();
    assert_eq!(units.len(), 4);
    for unit in units {
        for line in package.read(unit).lines() {
            let (key, value) = line.split_once('=').unwrap_or_default();
            if key.starts_with("Exec") {
                let program = value.split(' ').next().unwrap();
                assert!(is_there(program) || program.starts_with("/bin/"), "{unit}: {line}");
            } else if key == "Documentation" {
                for page in value.split(' ') {
                    let path =
                        match page.strip_prefix("man:").and_then(|page| page.trim_end_matches(')').split_once('(')) {
                            Some((name, section)) => format!("/usr/share/man/man{section}/{name}.{section}.gz"),
                            None => page.trim_start_matches("file:").to_owned(),
                        };
                    assert!(is_there(&path), "{unit}: {page}");
                }
            }
        }
    }
}

#[test]
fn the_configuration_is_the_default_with_the_packages_certificates() {
    let package = unpacked();
    let config = Config::load(Some(&package.path("/etc/taskman/server.toml")), &Overrides::default()).unwrap();
    assert_eq!(config.tls.server_key, Path::new("/etc/taskman/certs/server.key"));
    assert_eq!(config.state_dir, Path::new("/var/lib/taskman"));
    let asked = ok(env!("CARGO_BIN_EXE_taskman-server"), &["--print-config"]);
    let changed =
        |text: &str| text.lines().filter(|line| !line.starts_with('#')).map(str::to_owned).collect::<Vec<_>>();
    let (packaged, default) = (changed(&package.read("/etc/taskman/server.toml")), changed(&asked));
    let differ: Vec<_> = packaged.iter().zip(&default).filter(|(packaged, default)| packaged != default).collect();
    assert_eq!(differ.len(), 1, "{differ:?}");
    assert_eq!(packaged.len(), default.len());
}

#[test]
fn the_scripts_of_the_package_are_plain_and_stop_at_the_first_failure() {
    for script in ["postinst", "prerm", "postrm"] {
        let path = root().join("deploy/debian").join(script);
        let text = fs::read_to_string(&path).unwrap();
        assert!(text.starts_with("#!/bin/sh\n") && text.contains("\nset -e\n"), "{script}");
        ok("sh", &["-n", path.to_str().unwrap()]);
    }
}

#[test]
fn programs_that_need_a_loader_are_refused() {
    let directory = tempfile::tempdir().unwrap();
    for name in ["taskman", "taskman-server"] {
        fs::copy("/bin/true", directory.path().join(name)).unwrap();
    }
    let output = package(directory.path(), &directory.path().join("out"), "UTC");
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && told.contains("is not static"), "{told}");
    assert!(!directory.path().join("out").exists());
}
