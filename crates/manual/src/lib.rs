//! Man pages: one for each command, of the definitions of its arguments and the examples beside this file;
//! steadfast.toml(5) and shares.d(5), of the files that are installed as samples; mount.steadfast(8), of the table in
//! docs/mount.md. So there is one text of each thing. Tests say that no key is missing, and those
//! of `crates/cli/src/manual.rs` that each command has examples and each example parses.
#![forbid(unsafe_code)]

mod examples;
mod mount_helper;
mod roff;
mod sample;
mod synopsis;
mod table;

use std::io;
use std::path::Path;
use std::time::{Duration, SystemTime};

use clap::Command;
use clap_mangen::Man;

pub use examples::{Example, Examples, Section};

/// What is installed as `/etc/steadfast/steadfast.toml`.
const CONFIGURATION: &str = include_str!("../../../packaging/steadfast.toml");
/// What is installed as an example of a group's file.
const GROUP: &str = include_str!("../../../packaging/shares.d.example.toml");

/// Has the table of a share's options.
const SHARES: &str = include_str!("../../../docs/shares.md");
/// The places of a server, for the program's page: what is in them, and what to back up.
const FILES: &str = include_str!("files.txt");

/// What the head of a page says beside its name.
#[derive(Clone, Debug)]
pub struct Edition {
    /// `YYYY-MM-DD`
    pub date: String,
    /// The program and its version.
    pub source: String,
}

/// A page.
#[derive(Debug)]
pub struct Page {
    /// With its section: `steadfast.1`.
    pub file: String,
    /// In the language of man(7).
    pub text: String,
}

/// Writes all pages of a program into a directory, which is made if it is missing.
///
/// # Errors
/// When one cannot be written.
pub fn write(program: Command, directory: &Path) -> io::Result<()> {
    let pages = pages(program, &Edition::now())?;
    std::fs::create_dir_all(directory)?;
    pages.iter().try_for_each(|page| page.write(directory))
}

impl Page {
    fn write(&self, directory: &Path) -> io::Result<()> {
        std::fs::write(directory.join(&self.file), &self.text)
    }
}

impl Edition {
    /// Of today, or of the time that builds which can be repeated are told.
    fn now() -> Self {
        let told = std::env::var("SOURCE_DATE_EPOCH").ok().and_then(|text| text.parse().ok());
        let told = told.and_then(|s| SystemTime::UNIX_EPOCH.checked_add(Duration::from_secs(s)));
        let time = humantime::format_rfc3339_seconds(told.unwrap_or_else(SystemTime::now));
        Self {
            date: time.to_string().chars().take(10).collect(),
            source: format!("steadfast {}", env!("CARGO_PKG_VERSION")),
        }
    }
}

/// All pages: of the files, of the mount helper, and of each command that is not hidden.
///
/// # Errors
/// When the definition of a command cannot be told.
pub fn pages(program: Command, edition: &Edition) -> io::Result<Vec<Page>> {
    let examples = Examples::read();
    let mut pages = vec![
        sample::page(
            edition,
            "steadfast.toml",
            "configuration of the NFS server steadfast",
            "/etc/steadfast/steadfast.toml",
            CONFIGURATION,
            "",
        ),
        sample::page(
            edition,
            "shares.d",
            "groups of shares of the NFS server steadfast",
            "/etc/steadfast/shares.d/NAME.toml",
            GROUP,
            &share_options(),
        ),
        mount_helper::page(edition, &examples),
    ];
    let mut all = program.disable_help_subcommand(true);
    all.build();
    commands(&all, &mut |path, command| {
        pages.push(command_page(edition, &examples, path, command)?);
        Ok(())
    })?;
    Ok(pages)
}

/// Visits a command and all below it that are not hidden; the path has its words after the program's.
///
/// # Errors
/// Those of the visitor, who sees no more commands after one.
pub fn commands(
    top: &Command,
    visit: &mut impl FnMut(&[&str], &Command) -> io::Result<()>,
) -> io::Result<()> {
    fn below<'a>(
        command: &'a Command,
        path: &mut Vec<&'a str>,
        visit: &mut impl FnMut(&[&str], &Command) -> io::Result<()>,
    ) -> io::Result<()> {
        visit(path, command)?;
        for one in command.get_subcommands().filter(|one| !one.is_hide_set()) {
            path.push(one.get_name());
            below(one, path, visit)?;
            path.pop();
        }
        Ok(())
    }
    below(top, &mut Vec::new(), visit)
}

/// The options of shares, groups and patterns.
fn share_options() -> String {
    let rows = table::rows(SHARES, "### Options");
    format!(
        ".SH OPTIONS OF SHARES\nThese words are the values of \\fBoptions\\fR, and of \\fB\\-\\-options\\fR, \
         \\fB\\-\\-add\\-option\\fR and \\fB\\-\\-rule\\fR on the command line.\n{}",
        table::list(&rows)
    )
}

/// The places of a server.
fn files() -> String {
    let mut text = String::from(".SH FILES\n");
    let mut typed = String::new();
    for line in FILES.lines() {
        if let Some(line) = line.strip_prefix("    ") {
            typed += line;
            typed.push('\n');
            continue;
        }
        if !typed.is_empty() {
            text += &roff::literal(&std::mem::take(&mut typed));
        }
        match line.split_once(": ") {
            Some((place, what)) if place.starts_with('/') => {
                text +=
                    &[".TP\n", &roff::escaped(place), "\n", &roff::markdown(what), "\n"].concat();
            }
            _ if line.is_empty() => {}
            _ => match line.strip_prefix("# ") {
                Some(heading) => text += &[".SH ", heading, "\n"].concat(),
                None => text += &(roff::markdown(line) + "\n"),
            },
        }
    }
    text
}

fn command_page(
    edition: &Edition,
    examples: &Examples,
    path: &[&str],
    command: &Command,
) -> io::Result<Page> {
    let name = std::iter::once("steadfast").chain(path.iter().copied()).collect::<Vec<_>>();
    let name = name.join("-");
    let man = Man::new(command.clone());
    let mut body = Vec::new();
    man.render_name_section(&mut body)?;
    body.extend_from_slice(synopsis::section(command).as_bytes());
    man.render_description_section(&mut body)?;
    if command.get_arguments().any(|one| !one.is_hide_set()) {
        man.render_options_section(&mut body)?;
    }
    if command.get_subcommands().any(|one| !one.is_hide_set()) {
        man.render_subcommands_section(&mut body)?;
    }
    let mut text = roff::head(&name, 1, edition);
    let takes_options = matches!(path.first(), Some(&("share" | "group")))
        && command.get_arguments().any(|one| one.get_id().as_str() == "options");
    text += &roff::tidied(&String::from_utf8_lossy(&body));
    if takes_options {
        text += ".SH SHARE OPTIONS\nThe words of \\fB\\-\\-options\\fR are listed in \\fBshares.d\\fR(5).\n";
    }
    if path.is_empty() {
        text += &files();
    }
    text += &examples.section(&path.join(" "));
    text += &roff::see_also(&[
        ("steadfast", 1),
        ("steadfast.toml", 5),
        ("shares.d", 5),
        ("mount.steadfast", 8),
    ]);
    Ok(Page { file: format!("{name}.1"), text })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_key_that_the_server_reads_is_in_its_page() {
        let edition = Edition { date: "2026-01-02".to_owned(), source: "steadfast 0".to_owned() };
        let all = pages(Command::new("steadfast"), &edition).expect("pages");
        let page = all.iter().find(|page| page.file == "steadfast.toml.5").expect("a page");
        let configuration = &page.text;
        for (section, keys) in steadfast_catalog::configuration::KEYS {
            let entries = sample::keys(CONFIGURATION, section);
            for key in *keys {
                // A rule has a section of its own.
                if *key == "rule" {
                    continue;
                }
                assert!(entries.contains(key), "{section}: no {key} in packaging/steadfast.toml");
            }
            assert_eq!(
                entries.len(),
                keys.iter().filter(|key| **key != "rule").count(),
                "{section}"
            );
            assert!(
                configuration.contains(&format!(".SS {}", roff::escaped(section))),
                "{section}"
            );
        }
        for (section, keys) in steadfast_catalog::configuration::GROUP_FILE_KEYS {
            let entries = sample::keys(GROUP, section);
            for key in keys.iter().filter(|key| **key != "rule") {
                assert!(entries.contains(key), "{section}: no {key} in the example of a group");
            }
        }
    }

    #[test]
    fn options_of_shares_and_the_places_of_a_server_are_in_their_pages() {
        let edition = Edition { date: "2026-01-02".to_owned(), source: "steadfast 0".to_owned() };
        let all = pages(Command::new("steadfast"), &edition).expect("pages");
        let text = |name: &str| &all.iter().find(|page| page.file == name).expect("a page").text;
        let shares = text("shares.d.5");
        for word in ["all_squash", "anonuid=", "size=", "sec=FLAVOR:FLAVOR", "crossmnt"] {
            assert!(shares.contains(&format!("\\fB{word}\\fR")), "{word}: {shares}");
        }
        assert!(!shares.contains("]("), "{shares}");
        let program = text("steadfast.1");
        for words in
            ["/var/lib/steadfast/handle.key", ".SH BACKUP", "\\-\\-exclude intent.log", "umask 077"]
        {
            assert!(program.contains(words), "{words}: {program}");
        }
    }

    #[test]
    fn pages_can_be_made_twice_and_be_the_same() {
        let place = tempfile::tempdir().expect("a directory");
        let directory = place.path().join("new");
        let program = || Command::new("steadfast").about("serves");
        write(program(), &directory).expect("written");
        let count = || std::fs::read_dir(&directory).expect("a directory").count();
        let first = count();
        write(program(), &directory).expect("written again");
        assert_eq!(count(), first);
        assert!(directory.join("mount.steadfast.8").exists());
    }
}
