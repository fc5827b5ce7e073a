//! `steadfast completion`: what shells know of the commands, made of the definitions of their arguments.

use anyhow::Result;

use crate::arguments::CompletionArguments;
use crate::environment;
use crate::output;

/// Prints a shell's completions.
///
/// # Errors
/// When they cannot be printed.
pub(crate) fn run(wanted: &CompletionArguments) -> Result<()> {
    let mut text = Vec::new();
    clap_complete::generate(wanted.shell, &mut environment::described(), "steadfast", &mut text);
    output::print(&String::from_utf8_lossy(&text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_shell_has_completions() {
        for shell in ["bash", "zsh", "fish"] {
            let shell: clap_complete::Shell = shell.parse().expect("a shell");
            let mut text = Vec::new();
            clap_complete::generate(shell, &mut environment::described(), "steadfast", &mut text);
            let text = String::from_utf8(text).expect("UTF-8");
            assert!(text.contains("rollback") && text.contains("draining"), "{shell}");
        }
    }
}
