//! Man pages: one for each command, of the definitions of its arguments and the examples beside this file;
//! steadfast.toml(5) and shares.d(5), of the files that are installed as samples; mount.steadfast(8), of the table in
//! docs/mount.md. So there is one text of each thing. Tests say that no key is missing, and those
//! of `crates/cli/src/manual.rs` that each command has examples and each example parses.
#![forbid(unsafe_code)]

mod examples;
mod mount_helper;
mod roff;
mod sample;

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
        ),
        sample::page(
            edition,
            "shares.d",
            "groups of shares of the NFS server steadfast",
            "/etc/steadfast/shares.d/NAME.toml",
            GROUP,
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
    man.render_synopsis_section(&mut body)?;
    man.render_description_section(&mut body)?;
    if command.get_arguments().any(|one| !one.is_hide_set()) {
        man.render_options_section(&mut body)?;
    }
    if command.get_subcommands().any(|one| !one.is_hide_set()) {
        man.render_subcommands_section(&mut body)?;
    }
    let mut text = roff::head(&name, 1, edition);
    text += &roff::tidied(&String::from_utf8_lossy(&body));
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
