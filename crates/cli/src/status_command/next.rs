//! Commands to type next, for the server that was asked.

use std::path::Path;

use steadfast_observe::status::word;

use crate::server_place::ServerChoice;

/// A command for the server that was asked: one of ours gets the options that name it.
pub(super) fn for_server(command: &str, choice: &ServerChoice) -> String {
    let ours = command.strip_prefix("sudo ").unwrap_or(command);
    // That is for a client.
    if !ours.starts_with("steadfast ") || ours.starts_with("steadfast journal ") {
        return command.to_owned();
    }
    let path = |path: &Path| word(&path.display().to_string());
    let config = choice.config.as_deref().map(path);
    if ours == "steadfast check-config" {
        return config.map_or_else(|| command.to_owned(), |file| format!("{command} {file}"));
    }
    let options = [
        ("--config", config),
        ("--state-directory", choice.state_directory.as_deref().map(path)),
        ("--connect", choice.connect.map(|address| word(&address.to_string()))),
    ];
    options
        .into_iter()
        .filter_map(|(option, value)| Some((option, value?)))
        .fold(command.to_owned(), |command, (option, value)| format!("{command} {option} {value}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_command_is_for_the_same_server() {
        let choice = ServerChoice {
            config: Some("/etc/my server.toml".into()),
            state_directory: None,
            connect: Some(([192, 0, 2, 1], 7).into()),
        };
        let next = |command| for_server(command, &choice);
        let options = "--config '/etc/my server.toml' --connect 192.0.2.1:7";
        assert_eq!(next("steadfast log status"), format!("steadfast log status {options}"));
        assert_eq!(next("sudo steadfast status"), format!("sudo steadfast status {options}"));
        assert_eq!(next("steadfast check-config"), "steadfast check-config '/etc/my server.toml'");
        for others in ["df -h /", "steadfast journal replay DIR   # on the client"] {
            assert_eq!(next(others), others);
        }
        assert_eq!(for_server("steadfast doctor", &ServerChoice::default()), "steadfast doctor");
        // A shell takes brackets for a pattern.
        let sixth = ServerChoice {
            connect: Some((std::net::Ipv6Addr::LOCALHOST, 7).into()),
            ..ServerChoice::default()
        };
        assert_eq!(for_server("steadfast top", &sixth), "steadfast top --connect '[::1]:7'");
    }
}
