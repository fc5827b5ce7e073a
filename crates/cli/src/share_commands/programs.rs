//! What shells know of the commands, made of the definitions of their arguments.

use anyhow::Result;
use clap::CommandFactory;

use super::arguments::CompletionArguments;
use crate::arguments::Arguments;

/// Prints a shell's completions.
pub(crate) fn completion(arguments: &CompletionArguments) -> Result<()> {
    let mut text = Vec::new();
    clap_complete::generate(arguments.shell, &mut Arguments::command(), "steadfast", &mut text);
    super::print(&String::from_utf8_lossy(&text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_shell_has_completions() {
        for shell in ["bash", "zsh", "fish"] {
            let shell: clap_complete::Shell = shell.parse().expect("a shell");
            let mut text = Vec::new();
            clap_complete::generate(shell, &mut Arguments::command(), "steadfast", &mut text);
            let text = String::from_utf8(text).expect("UTF-8");
            assert!(text.contains("rollback") && text.contains("draining"), "{shell}");
        }
    }
}
