//! Where the files go: one man page per command, and the completions of either program, in the places of Debian.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use clap::Command;
use clap_complete::Shell;
use time::OffsetDateTime;

use crate::page;

/// Writes everything below `share`, with the date of a moment in seconds since 1970, and says which files it wrote.
pub fn write(share: &Path, moment: i64) -> io::Result<Vec<PathBuf>> {
    let date = OffsetDateTime::from_unix_timestamp(moment).map_err(io::Error::other)?.date().to_string();
    let mut files = Vec::new();
    for (command, section) in [(taskman::cli::command(), "1"), (taskman::server::command(), "8")] {
        completions(&command, share, &mut files)?;
        let mut command = command.disable_help_subcommand(true);
        command.build();
        let folder = share.join("man").join(format!("man{section}"));
        let mut pages = Vec::new();
        below(&command, &[], &mut pages);
        for (command, above) in pages {
            let text = page::render(command, &above, section, &date)?;
            file(folder.join(format!("{}.{section}", page::name(command))), text.as_bytes(), &mut files)?;
        }
    }
    Ok(files)
}

/// A command and every one below it, each with those above it.
fn below<'a>(command: &'a Command, above: &[&'a Command], found: &mut Vec<(&'a Command, Vec<&'a Command>)>) {
    found.push((command, above.to_vec()));
    let above = [above, &[command]].concat();
    command.get_subcommands().for_each(|command| below(command, &above, found));
}

fn completions(command: &Command, share: &Path, files: &mut Vec<PathBuf>) -> io::Result<()> {
    let name = command.get_name().to_owned();
    let places = [
        (Shell::Bash, "bash-completion/completions", name.clone()),
        (Shell::Zsh, "zsh/vendor-completions", format!("_{name}")),
        (Shell::Fish, "fish/vendor_completions.d", format!("{name}.fish")),
    ];
    for (shell, folder, file_name) in places {
        let mut script = Vec::new();
        clap_complete::generate(shell, &mut command.clone(), &name, &mut script);
        file(share.join(folder).join(file_name), &script, files)?;
    }
    Ok(())
}

fn file(path: PathBuf, text: &[u8], files: &mut Vec<PathBuf>) -> io::Result<()> {
    fs::create_dir_all(path.parent().unwrap_or(&path))
        .and_then(|()| fs::write(&path, text))
        .map_err(|error| io::Error::other(format!("write {}: {error}", path.display())))?;
    files.push(path);
    Ok(())
}
