//! `--bind-ro`: host files inside, read-only all the way down, and no symlink that leads elsewhere.

use std::fs;
use std::os::unix::fs::symlink;
use std::process::Command;

use crate::support::host::bind;
use crate::support::run::TASKMAN;
use crate::support::{GUARD, HostDir, Run, Started};

#[test]
fn bound_files_can_be_read_and_not_written() {
    let dir = HostDir::new();
    dir.file("data", "from the host\n", 0o666);
    let file = bind(&dir.path("data"), "/task/one");
    let script = "cat /opt/dir/data /task/one; for f in /opt/dir/data /task/one /opt/dir/new; do \
        perl -e 'open(F, \">>\", $ARGV[0]) and print \"written\n\"; print $!+0, \"\n\"' $f; done";
    let ended = Run::sh(script).with(&["--bind-ro", &dir.bound_at("/opt/dir"), "--bind-ro", &file]).end();
    let rofs = nix::libc::EROFS;
    assert_eq!(ended.ok(), format!("from the host\nfrom the host\n{rofs}\n{rofs}\n{rofs}\n"));
    assert_eq!(fs::read_to_string(dir.path("data")).unwrap(), "from the host\n");
    // Without a target it stands where the host has it.
    let path = dir.path("data").to_str().unwrap().to_owned();
    assert_eq!(Run::command(&["cat", &path]).with(&["--bind-ro", &path]).end().ok(), "from the host\n");
}

#[test]
fn a_bind_is_recursive_and_read_only_all_the_way_down() {
    let dir = HostDir::new();
    let below = dir.path("below");
    fs::create_dir(&below).unwrap();
    // Mounted where only this taskman sees it: other tests watch the host's mounts.
    let script = "mount -t tmpfs -o mode=777 tmpfs \"$1\" && touch \"$1/there\" && exec \"${@:2}\"";
    let mut command = Command::new("unshare");
    command.args(["--mount", "bash", "-c", script, "bash"]).arg(&below);
    command.args([TASKMAN, "run", "--bind-ro", &dir.bound_at("/opt/x"), "--", "sh", "-c"]);
    command.arg("ls /opt/x/below; perl -e 'open(F, q(>), q(/opt/x/below/f)) and print qq(written); print $!+0'");
    let ended = Started::spawn(command, HostDir::new(), GUARD).end();
    assert_eq!((ended.status.code(), ended.text()), (Some(0), format!("there\n{}", nix::libc::EROFS)), "{ended:?}");
}

#[test]
fn symlinks_in_a_binds_source_are_refused() {
    let dir = HostDir::new();
    fs::create_dir(dir.path("real")).unwrap();
    fs::write(dir.path("real/file"), "x").unwrap();
    symlink("real", dir.path("link")).unwrap();
    symlink("real/file", dir.path("filelink")).unwrap();
    for source in ["link", "link/file", "filelink"] {
        let path = dir.path(source);
        let ended = Run::command(&["echo", "ran"]).with(&["--bind-ro", &bind(&path, "/opt/x")]).end();
        ended.assert_refused(125, &["taskman: error: ", path.to_str().unwrap(), "ELOOP"]);
    }
    let missing = dir.path("missing");
    let ended = Run::command(&["echo", "ran"]).with(&["--bind-ro", missing.to_str().unwrap()]).end();
    ended.assert_refused(125, &["taskman: error: ", missing.to_str().unwrap(), "ENOENT"]);
}

#[test]
fn a_binds_target_never_leads_outside_and_makes_nothing_on_the_host() {
    let dir = HostDir::new();
    dir.file("data", "x", 0o644);
    let away = HostDir::new();
    symlink(away.root(), dir.path("away")).unwrap();
    // The second bind's target leads through a symlink in the first to a directory of the host's.
    let ended = Run::command(&["true"])
        .with(&["--bind-ro", &dir.bound_at("/opt/x"), "--bind-ro", &bind(&dir.path("data"), "/opt/x/away/made")])
        .end();
    ended.assert_refused(125, &["taskman: error: "]);
    assert_eq!(fs::read_dir(away.root()).unwrap().count(), 0, "something was made on the host");
    // A target in the host's /usr would have to be made there.
    let ended = Run::command(&["true"]).with(&["--bind-ro", &bind(&dir.path("data"), "/usr/taskman-e2e-made")]).end();
    ended.assert_refused(125, &["taskman: error: ", "usr/taskman-e2e-made: EROFS"]);
    assert!(!std::path::Path::new("/usr/taskman-e2e-made").exists());
    for bad in ["relative", "/opt:/proc/x", "/opt:/dev/x", "/opt:/", "/opt:/a/../b"] {
        Run::command(&["echo", "ran"]).with(&["--bind-ro", bad]).end().assert_refused(125, &["bind"]);
    }
}
