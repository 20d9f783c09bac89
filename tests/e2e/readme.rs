//! `README.md`: what its first block shows is printed, and its service serves.
//!
//! `cargo run` is what the tests are built from, and the state directory is a test's; all else is run as it stands there.

use std::fs;
use std::path::Path;

use super::first_hour::{Stable, run};
use crate::support::HostDir;

const PROMPT: &str = "# ";
/// Runs a script on a terminal of its own, as a person does: then every end is said.
const ON_A_TERMINAL: &str = "python3 -c 'import pty, sys; pty.spawn([\"bash\", sys.argv[1]])'";

/// The blocks of no language, in which the commands stand.
fn blocks() -> Vec<String> {
    let page = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("README.md")).unwrap();
    let quoted = page.split("\n```").skip(1).step_by(2);
    quoted.filter_map(|block| block.strip_prefix('\n')).map(str::to_owned).collect()
}

fn as_built(command: &str) -> String {
    let command = command.replace("cargo run --release --features server --bin taskman-server -- ", "taskman-server ");
    let command =
        command.replace("cargo run --release --quiet -- ", "taskman ").replace("cargo run --release -- ", "taskman ");
    assert!(!command.contains("cargo"), "{command}");
    command.replace("/var/lib/taskman", "$PWD/state")
}

/// In a directory that holds a copy of the page.
fn place() -> HostDir {
    let place = HostDir::new();
    place.copy(&Path::new(env!("CARGO_MANIFEST_DIR")).join("README.md"), "README.md", 0o644);
    place
}

#[test]
fn the_first_block_prints_what_stands_there() {
    let block = blocks().into_iter().find(|block| block.starts_with(PROMPT)).expect("a block with prompts");
    let (mut commands, mut printed) = (Vec::new(), Vec::<String>::new());
    for line in block.lines() {
        match line.strip_prefix(PROMPT) {
            Some(command) => {
                commands.push(as_built(command));
                printed.push(String::new());
            }
            None => *printed.last_mut().unwrap() += &format!("{line}\n"),
        }
    }
    assert_eq!(commands.len(), 4);
    let (place, scripts) = (place(), HostDir::new());
    let script = |(number, command): (usize, &String)| {
        format!("{ON_A_TERMINAL} {}", scripts.file(&number.to_string(), command, 0o644).display())
    };
    let wrapped: Vec<_> = commands.iter().enumerate().map(script).collect();
    let wrapped: Vec<_> = wrapped.iter().map(String::as_str).collect();
    for ((command, now), then) in commands.iter().zip(run(&wrapped, &place)).zip(&printed) {
        let now = now.replace("\r\n", "\n");
        assert_eq!(Stable::default().text(&now), Stable::default().text(then), "{command}");
    }
}

#[test]
fn the_service_serves_and_an_administrator_sees_that() {
    let block = |word: &str| blocks().into_iter().find(|block| block.contains(word)).expect(word);
    let (service, escaped) = (block("--dev"), block("taskman audit findings"));
    let lines = |block: &str| block.lines().map(as_built).collect::<Vec<_>>();
    let [server, environment, start] = <[String; 3]>::try_from(lines(&service)).unwrap();
    let mut commands = vec![
        server.replace(" &", " 2>server.log &"),
        "until grep -q listening server.log; do sleep 0.1; done; cat server.log".to_owned(),
        environment,
        start,
    ];
    // There is something to lift, as there would be.
    let mut of_admin = lines(&escaped);
    of_admin.insert(1, "taskman health --quarantine --reason 'a drill'".to_owned());
    commands.extend(of_admin);
    commands.push("kill %1; wait %1; echo $?".to_owned());
    let commands: Vec<_> = commands.iter().map(String::as_str).collect();
    let printed = run(&commands, &place());
    // The lines that it says, with the port that it has taken.
    let said: Vec<_> = printed[1].lines().collect();
    assert!(said[0].starts_with("export TASKMAN_CERTS=/srv/state/certs TASKMAN_USER_ID=client001"), "{said:?}");
    assert_eq!(said[1], "taskman start --follow -- echo hello");
    assert!(printed[3].ends_with(" started\n1\n2\n3\n"), "{printed:?}");
    let of = |word: &str| commands.iter().position(|command| command.contains(word)).map(|at| &printed[at]).unwrap();
    assert!(
        of("taskman health  ").contains("a drill") && of("audit findings").contains("nothing was found"),
        "{printed:?}"
    );
    assert!(
        of("--recover").contains("nothing was left") && of("--unquarantine").contains("TAKES TASKS       yes"),
        "{printed:?}"
    );
    assert_eq!(printed.last().unwrap(), "0\n", "{printed:?}");
}
