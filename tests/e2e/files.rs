//! Files in and out, and packages without a network, as `docs/inside.md` says: its own commands, with a wheel made here.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::support::run::TASKMAN;
use crate::support::{GUARD, HostDir, Server, Started};

/// A virtual environment is made of thousands of files.
const PATIENCE: Duration = Duration::from_secs(180);

/// A package of one module, made with nothing but zipfile. Its name is that of the page's example.
const WHEEL: &str = r#"
import os, zipfile
os.mkdir("wheels")
with zipfile.ZipFile("wheels/six-1.0-py3-none-any.whl", "w") as wheel:
    wheel.writestr("six.py", "__version__ = '1.0'\n")
    wheel.writestr("six-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: six\nVersion: 1.0\n")
    wheel.writestr("six-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
    wheel.writestr("six-1.0.dist-info/RECORD", "six.py,,\nsix-1.0.dist-info/METADATA,,\nsix-1.0.dist-info/WHEEL,,\nsix-1.0.dist-info/RECORD,,\n")
"#;

/// The lines of a section's blocks.
fn section(heading: &str) -> Vec<String> {
    let page = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/inside.md")).unwrap();
    let (_, section) = page.split_once(&format!("## {heading}\n")).expect(heading);
    let section = section.split("\n## ").next().unwrap();
    let blocks = section.split("```").skip(1).step_by(2);
    blocks.flat_map(|block| block.lines().skip(1).map(str::to_owned).collect::<Vec<_>>()).collect()
}

/// A shell of the host, with `taskman` on its search path.
fn shell(place: &HostDir, script: &str) -> Command {
    let beside = Path::new(TASKMAN).parent().unwrap().display().to_string();
    let mut shell = Command::new("bash");
    shell.args(["-euo", "pipefail", "-c", script]).current_dir(place.root()).stdin(Stdio::null());
    shell.env("PATH", format!("{beside}:{}", std::env::var("PATH").unwrap()));
    shell
}

#[track_caller]
fn said(shell: Command) -> String {
    let ended = Started::spawn(shell, HostDir::new(), PATIENCE).end();
    assert!(ended.status.success(), "{ended:?}");
    ended.text()
}

#[test]
fn packages_are_installed_without_a_network() {
    let place = HostDir::new();
    let lines = section("Python packages without a network");
    let [install, run, download, inside] = <[String; 4]>::try_from(lines).unwrap();
    assert!(install.contains(" -m pip install --target packages ") && download.contains(" -m pip download -d wheels "));
    let mut python = shell(&place, "python3 - <<<\"$WHEEL\"");
    python.env("WHEEL", WHEEL);
    said(python);
    // What comes from the index there comes from the wheel here.
    let install = install.replace(" -m pip install ", " -m pip install --quiet --no-index --find-links wheels ");
    assert_eq!(said(shell(&place, &format!("{install}\n{run}"))), "1.0\n");
    let checked = inside.replace("/wheels six'", "/wheels six && v/bin/python -c \"import six; print(six.__file__)\"'");
    assert_ne!(checked, inside);
    let text = said(shell(&place, &checked));
    assert!(
        text.lines().last().is_some_and(|path| path.starts_with("/task/v/lib/") && path.ends_with("/six.py")),
        "{text}"
    );
}

#[test]
fn files_go_in_and_come_out_here_and_at_a_server() {
    let place = HostDir::new();
    let lines = section("Files in and out");
    let [here, start, fetch] = <[String; 3]>::try_from(lines).unwrap();
    said(shell(&place, &format!("printf 'b\\na\\n' >words; {here}")));
    assert_eq!(fs::read_to_string(place.path("sorted")).unwrap(), "a\nb\n");

    fs::remove_file(place.path("sorted")).unwrap();
    let server = Server::start();
    let mut shell = shell(&place, &format!("{start}\n{fetch}\ntaskman stream --stderr \"$ID\""));
    let of_client = server.command("client001", &[]);
    shell.envs(of_client.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let ended = Started::spawn(shell, HostDir::new(), GUARD).end();
    assert!(ended.status.success() && ended.text().ends_with("sorting\n"), "{ended:?}");
    assert_eq!(fs::read_to_string(place.path("sorted")).unwrap(), "a\nb\n");
}
