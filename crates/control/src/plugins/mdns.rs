//! `mdns`: shares announced in the home network, by the system's Avahi.
//!
//! Avahi reads a file for each service from a directory, and sees by itself when one comes or goes. A share is a
//! service of the type `_nfs._tcp`, with its path in the record `path` (as macOS and file managers read it).

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use super::{Fault, Plugin, PluginShare, Task};
use crate::plain;

/// The longest name of a service, in bytes (RFC 6763, section 4.1.1).
const NAME_BYTES_MAX: usize = 63;
/// How much of that is the host's.
const HOST_BYTES_MAX: usize = 20;
/// The longest record (RFC 6763, section 6.1).
const RECORD_BYTES_MAX: usize = 255;
/// Shares that are announced at the most: all answers to a question are sent to the whole network.
const SHARES_MAX: usize = 100;
/// What the names of our files begin and end with.
const FILES: (&str, &str) = ("steadfast-", ".service");

/// Writes files for Avahi, and takes them away at the end.
#[derive(Debug)]
pub struct Mdns {
    directory: PathBuf,
    port: u16,
    host: String,
}

impl Mdns {
    /// One that writes into this directory, for a server of this host that has this port.
    pub fn new(directory: PathBuf, port: u16) -> Self {
        let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        let host = host.trim().split('.').next().unwrap_or_default();
        Self { directory, port, host: cut(host, HOST_BYTES_MAX).to_owned() }
    }

    /// The files that are to be there, by name, and what cannot be announced.
    fn wanted(&self, shares: &[Arc<PluginShare>]) -> (BTreeMap<String, String>, Vec<Fault>) {
        let (mut files, mut faults) = (BTreeMap::new(), Vec::new());
        let mut taken = BTreeSet::new();
        let mut untold = Vec::new();
        for share in shares.iter().map(|share| &share.status) {
            let path = &share.path;
            let cannot = |why: &str| Fault {
                why: format!("not announced: {why}"),
                paths: vec![path.clone()],
            };
            if path.contains(plain::is_command) {
                faults.push(cannot("its path has control characters"));
                continue;
            }
            let record = format!("path={path}");
            if record.len() > RECORD_BYTES_MAX {
                faults.push(cannot("its path is longer than a record of DNS-SD"));
                continue;
            }
            if files.len() == SHARES_MAX {
                untold.push(path.clone());
                continue;
            }
            let name = self.name(share.resource.as_deref(), path, &mut taken);
            files.insert(
                format!("{}{}{}", FILES.0, share.id, FILES.1),
                service(&name, self.port, &record),
            );
        }
        if !untold.is_empty() {
            let why = format!("not announced: {SHARES_MAX} shares are already");
            faults.push(Fault { why, paths: untold });
        }
        (files, faults)
    }

    /// What the service of a share is called, as no other of this host is.
    fn name(&self, resource: Option<&str>, path: &str, taken: &mut BTreeSet<String>) -> String {
        let last = path.rsplit('/').next().filter(|last| !last.is_empty());
        let wanted = resource.or(last).unwrap_or("share");
        let mut number = 1;
        loop {
            let tail = match number {
                1 => format!(" on {}", self.host),
                _ => format!(" {number} on {}", self.host),
            };
            let name = format!("{}{tail}", cut(wanted, NAME_BYTES_MAX - tail.len()));
            if taken.insert(name.clone()) {
                return name;
            }
            number += 1;
        }
    }

    /// Our files that are there.
    fn found(&self) -> io::Result<Vec<String>> {
        let mut found = Vec::new();
        for entry in std::fs::read_dir(&self.directory)? {
            if let Ok(name) = entry?.file_name().into_string()
                && is_ours(&name)
            {
                found.push(name);
            }
        }
        Ok(found)
    }

    fn write(&self, files: &BTreeMap<String, String>) -> io::Result<()> {
        for (name, text) in files {
            let file = self.directory.join(name);
            if std::fs::read_to_string(&file).is_ok_and(|there| there == *text) {
                continue;
            }
            // Avahi reads files whose names end in .service, and at one moment.
            let new = self.directory.join(format!("{name}.new"));
            std::fs::write(&new, text)?;
            std::fs::rename(&new, &file)?;
        }
        for name in self.found()?.iter().filter(|name| !files.contains_key(*name)) {
            std::fs::remove_file(self.directory.join(name))?;
        }
        Ok(())
    }
}

impl Plugin for Mdns {
    fn name(&self) -> &'static str {
        "mdns"
    }

    fn publish(&mut self, task: &Task<'_>) -> Result<(), Vec<Fault>> {
        let (files, mut faults) = self.wanted(task.shares);
        if let Err(error) = self.write(&files) {
            let directory = self.directory.display();
            faults.push(Fault::new(format!(
                "{directory} cannot be written: {error} (is Avahi installed?)"
            )));
        }
        if faults.is_empty() { Ok(()) } else { Err(faults) }
    }

    fn has_an_end(&self) -> bool {
        true
    }

    fn end(&mut self) {
        for name in self.found().unwrap_or_default() {
            if let Err(error) = std::fs::remove_file(self.directory.join(&name)) {
                tracing::warn!(
                    "plug-in mdns: {name} in {} stays: {error}",
                    self.directory.display()
                );
            }
        }
    }
}

/// Whether a file of this name is one of those that are made here.
fn is_ours(name: &str) -> bool {
    let number = name.strip_prefix(FILES.0).and_then(|rest| rest.strip_suffix(FILES.1));
    number.is_some_and(|number| !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit()))
}

/// The beginning of a text, of so many bytes at the most.
fn cut(text: &str, bytes_max: usize) -> &str {
    let mut end = text.len().min(bytes_max);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text.get(..end).unwrap_or_default()
}

/// A file of avahi.service(5).
fn service(name: &str, port: u16, record: &str) -> String {
    format!(
        "<?xml version=\"1.0\" standalone='no'?>\n\
         <!DOCTYPE service-group SYSTEM \"avahi-service.dtd\">\n\
         <!-- Made by Steadfast, and made anew with every change: see `steadfast share list`. -->\n\
         <service-group>\n  <name>{}</name>\n  <service>\n    <type>_nfs._tcp</type>\n    \
         <port>{port}</port>\n    <txt-record>{}</txt-record>\n  </service>\n</service-group>\n",
        escaped(name),
        escaped(record)
    )
}

/// A text within an element of XML.
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        // Writing to a string cannot fail.
        let _ = match c {
            '&' => escaped.write_str("&amp;"),
            '<' => escaped.write_str("&lt;"),
            '>' => escaped.write_str("&gt;"),
            c => escaped.write_char(c),
        };
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(host: &str) -> Mdns {
        Mdns { directory: PathBuf::from("/nowhere"), port: 2049, host: host.to_owned() }
    }

    #[test]
    fn names_fit_and_are_no_others() {
        let mdns = named("nas");
        let mut taken = BTreeSet::new();
        let mut name = |resource, path: &str| mdns.name(resource, path, &mut taken);
        assert_eq!(name(None, "/srv/data"), "data on nas");
        assert_eq!(name(None, "/tank/data"), "data 2 on nas");
        assert_eq!(name(Some("Music"), "/srv/m"), "Music on nas");
        assert_eq!(name(None, "/"), "share on nas");
        let long = "é".repeat(100);
        for number in 0..12 {
            let name = name(Some(&long), "/x");
            assert!(name.len() <= NAME_BYTES_MAX && name.ends_with(" on nas"), "{number}: {name}");
        }
    }

    #[test]
    fn a_service_is_what_avahi_reads() {
        let text = service("a<b> & c on nas", 12049, "path=/a<b> & c");
        assert!(text.contains("<name>a&lt;b&gt; &amp; c on nas</name>"), "{text}");
        assert!(text.contains("<txt-record>path=/a&lt;b&gt; &amp; c</txt-record>"), "{text}");
        assert!(text.contains("<port>12049</port>"), "{text}");
    }

    #[test]
    fn files_of_others_are_not_ours() {
        for (name, ours) in [
            ("steadfast-7.service", true),
            ("steadfast-.service", false),
            ("steadfast-x.service", false),
            ("steadfast-7.service.new", false),
            ("ssh.service", false),
        ] {
            assert_eq!(is_ours(name), ours, "{name}");
        }
    }
}
