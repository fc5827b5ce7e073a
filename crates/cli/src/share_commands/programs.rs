//! What shells and `man` know of the commands, made of the definitions of their arguments.

use anyhow::{Context, Result};
use clap::CommandFactory;

use super::arguments::{CompletionArguments, ManArguments};
use crate::arguments::Arguments;

/// Prints a shell's completions.
pub(crate) fn completion(arguments: &CompletionArguments) -> Result<()> {
    let mut text = Vec::new();
    clap_complete::generate(arguments.shell, &mut Arguments::command(), "steadfast", &mut text);
    super::print(&String::from_utf8_lossy(&text))
}

/// Writes a man page for each command.
pub(crate) fn man(arguments: &ManArguments) -> Result<()> {
    let directory = &arguments.directory;
    std::fs::create_dir_all(directory)
        .and_then(|()| clap_mangen::generate_to(Arguments::command(), directory))
        .with_context(|| format!("cannot write man pages into {}", directory.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_command_has_a_page_and_completions() {
        let place = tempfile::tempdir().expect("a directory");
        man(&ManArguments { directory: place.path().to_owned() }).expect("written");
        for page in ["steadfast.1", "steadfast-share-add.1", "steadfast-apply.1"] {
            let text = std::fs::read_to_string(place.path().join(page)).expect(page);
            assert!(text.contains(".TH"), "{page}");
        }
        for shell in ["bash", "zsh", "fish"] {
            let shell: clap_complete::Shell = shell.parse().expect("a shell");
            let mut text = Vec::new();
            clap_complete::generate(shell, &mut Arguments::command(), "steadfast", &mut text);
            let text = String::from_utf8(text).expect("UTF-8");
            assert!(text.contains("rollback") && text.contains("draining"), "{shell}");
        }
    }
}
