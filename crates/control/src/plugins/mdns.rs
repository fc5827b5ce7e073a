//! `mdns`: shares announced in the home network, by the system's Avahi.
//!
//! Avahi reads a file for each service from a directory, and sees by itself when one comes or goes. A share is a
//! service of the type `_nfs._tcp`, with its path in the record `path`.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs::Permissions;
use std::io::{self, Write as _};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use super::{Fault, Plugin, PluginShare, Task};
use crate::api::ShareStatus;
use crate::plain;

/// The longest name of a service, in bytes (RFC 6763, section 4.1.1).
const NAME_BYTES_MAX: usize = 63;
/// How much of that is the host's.
const HOST_BYTES_MAX: usize = 20;
/// The longest record (RFC 6763, section 6.1).
const RECORD_BYTES_MAX: usize = 255;
/// Shares that are announced at the most: all answers to a question are sent to the whole network.
const SHARES_MAX: usize = 100;
/// What the names of files end with, and those that are being written.
const ENDS: [&str; 2] = [".service", ".service.new"];
/// For Avahi, which has a user of its own.
const MODE: u32 = 0o644;

/// Writes files for Avahi, and takes them away at the end.
#[derive(Debug)]
pub struct Mdns {
    directory: PathBuf,
    port: u16,
    host: String,
    /// What the names of this server's files begin with. Other servers of the host have files of their own.
    prefix: String,
}

impl Mdns {
    /// One that writes into this directory, for the server of this host that has this state directory and this port.
    pub fn new(directory: PathBuf, state_directory: &Path, port: u16) -> Self {
        let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        let host = host.trim().split('.').next().unwrap_or_default();
        let server = fnv_1a(state_directory.as_os_str().as_bytes());
        let prefix = format!("steadfast-{server:016x}-");
        Self { directory, port, host: cut(host, HOST_BYTES_MAX).to_owned(), prefix }
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
            if path.contains(is_bad) {
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
            let name = self.name(share, &mut taken);
            let file = format!("{}{}{}", self.prefix, share.id, ENDS[0]);
            files.insert(file, service(&name, self.port, &record));
        }
        if !untold.is_empty() {
            let why = format!("not announced: {SHARES_MAX} shares are already");
            faults.push(Fault { why, paths: untold });
        }
        (files, faults)
    }

    /// What the service of a share is called: by its own name, or by its path, so that no share takes the name
    /// of another one when it comes.
    fn name(&self, share: &ShareStatus, taken: &mut BTreeSet<String>) -> String {
        let tail = format!(" on {}", self.host);
        let room = NAME_BYTES_MAX - tail.len();
        let own =
            share.resource.as_deref().filter(|own| own.len() <= room && !own.contains(is_bad));
        if let Some(own) = own {
            let name = format!("{own}{tail}");
            if taken.insert(name.clone()) {
                return name;
            }
        }
        let path = &share.path;
        if path.len() <= room {
            return format!("{path}{tail}");
        }
        // Its end tells more than its beginning, and its number that it is no other.
        let number = format!("{:08x} ", share.id & 0xffff_ffff);
        let mut start = path.len() - (room - number.len());
        while !path.is_char_boundary(start) {
            start += 1;
        }
        format!("{number}{}{tail}", path.get(start..).unwrap_or_default())
    }

    /// The files of this server that are there.
    fn found(&self) -> io::Result<Vec<String>> {
        let mut found = Vec::new();
        for entry in std::fs::read_dir(&self.directory)? {
            if let Ok(name) = entry?.file_name().into_string()
                && self.is_ours(&name)
            {
                found.push(name);
            }
        }
        Ok(found)
    }

    /// Whether a file of this name is one of those that are made here.
    fn is_ours(&self, name: &str) -> bool {
        let Some(rest) = name.strip_prefix(&self.prefix) else { return false };
        ENDS.iter()
            .filter_map(|end| rest.strip_suffix(end))
            .any(|number| !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()))
    }

    fn publish_files(&self, files: &BTreeMap<String, String>) -> io::Result<()> {
        for name in self.found()?.iter().filter(|name| !files.contains_key(*name)) {
            std::fs::remove_file(self.directory.join(name))?;
        }
        for (name, text) in files {
            let file = self.directory.join(name);
            if std::fs::read_to_string(&file).is_ok_and(|there| there == *text) {
                continue;
            }
            put(&file, text)?;
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
        if let Err(error) = self.publish_files(&files) {
            let directory = self.directory.display();
            let why = format!("{directory} cannot be written: {error} (is Avahi installed?)");
            faults.push(Fault::new(why));
        }
        if faults.is_empty() { Ok(()) } else { Err(faults) }
    }

    fn has_an_end(&self) -> bool {
        true
    }

    fn end(&mut self) {
        for name in self.found().unwrap_or_default() {
            if let Err(error) = std::fs::remove_file(self.directory.join(&name)) {
                let directory = self.directory.display();
                tracing::warn!("plug-in mdns: {name} in {directory} stays: {error}");
            }
        }
    }
}

/// Writes a file at one moment.
fn put(file: &Path, text: &str) -> io::Result<()> {
    let before = file.metadata().and_then(|metadata| metadata.modified()).ok();
    let mut new = file.as_os_str().to_owned();
    new.push(".new");
    let mut written = std::fs::File::create(&new)?;
    written.write_all(text.as_bytes())?;
    written.set_permissions(Permissions::from_mode(MODE))?;
    // Avahi looks at the seconds of a file's time to see whether it is another one.
    if let Some(before) = before {
        let other = before + Duration::from_secs(1);
        if SystemTime::now() < other {
            written.set_modified(other)?;
        }
    }
    std::fs::rename(&new, file)
}

/// Characters that an announcement does not have: those that command a terminal, and those that XML lacks.
fn is_bad(c: char) -> bool {
    plain::is_command(c) || matches!(c, '\u{fffe}' | '\u{ffff}')
}

/// A number of a text that is the same at every start (FNV-1a).
fn fnv_1a(text: &[u8]) -> u64 {
    text.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
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

    fn on(state_directory: &str) -> Mdns {
        let mdns = Mdns::new("/nowhere".into(), Path::new(state_directory), 2049);
        Mdns { host: "nas".to_owned(), ..mdns }
    }

    #[test]
    fn names_fit_and_are_no_others() {
        let mdns = on("/a");
        let mut taken = BTreeSet::new();
        let mut name = |resource: Option<&str>, path: &str, id| {
            let resource = resource.map(str::to_owned);
            let plain = crate::plugins::tests::status(path, &["mdns"]);
            mdns.name(&ShareStatus { id, resource, ..plain }, &mut taken)
        };
        assert_eq!(name(None, "/srv/data", 1), "/srv/data on nas");
        assert_eq!(name(Some("Music"), "/srv/m", 2), "Music on nas");
        assert_eq!(name(Some("Music"), "/srv/n", 3), "/srv/n on nas");
        assert_eq!(name(Some("a\u{202e}b"), "/srv/o", 4), "/srv/o on nas");
        let long = format!("/{}", "é".repeat(100));
        let (one, two) = (name(Some(&long), &long, 5), name(None, &format!("/x{long}"), 6));
        assert_ne!(one, two);
        for name in [one, two] {
            assert!(name.len() <= NAME_BYTES_MAX && name.ends_with("é on nas"), "{name}");
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
        let (mdns, other) = (on("/a"), on("/b"));
        let file = |of: &Mdns, rest: &str| format!("{}{rest}", of.prefix);
        for (name, ours) in [
            (file(&mdns, "7.service"), true),
            (file(&mdns, "7.service.new"), true),
            (file(&mdns, ".service"), false),
            (file(&mdns, "x.service"), false),
            (file(&other, "7.service"), false),
            ("ssh.service".to_owned(), false),
        ] {
            assert_eq!(mdns.is_ours(&name), ours, "{name}");
        }
    }
}
