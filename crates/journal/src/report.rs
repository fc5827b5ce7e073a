//! What a look at a journal found, as a document for programs and as text for people.

use std::fmt::Write;

use crate::care::{Look, Verified};
use crate::manifest::{Line, escape, hex, utc};
use crate::{Damage, Kind, Pending};
use serde::Serialize;

/// The journal, for programs. Names are as in the manifest: bytes that do not print are `\xNN`.
#[derive(Serialize)]
pub struct ListReport {
    version: u32,
    path: String,
    /// The process that has it open.
    in_use_by: Option<String>,
    uuid: String,
    server: String,
    share: String,
    mount_options: String,
    ring_bytes: u64,
    used_bytes: u64,
    is_clean: bool,
    changes: Vec<Change>,
    damage: Vec<DamageReport>,
}

#[derive(Serialize)]
struct Change {
    sequence: u64,
    time: String,
    kind: &'static str,
    uid: u32,
    gid: u32,
    path: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    to_path: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    offset: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    length: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    blake3: Option<String>,
    /// Bytes that no later change has superseded.
    #[serde(skip_serializing_if = "Option::is_none")]
    unsent_bytes: Option<u64>,
    may_be_superseded: bool,
}

#[derive(Serialize)]
struct DamageReport {
    position: u64,
    first: Option<u64>,
    last: Option<u64>,
    was_stable: bool,
}

impl Change {
    fn of(pending: &Pending) -> Self {
        let is_write = pending.kind == Kind::Write;
        let live = pending.ranges.iter().map(|range| range.end - range.start).sum();
        Self {
            sequence: pending.sequence.0,
            time: utc(pending.time_ns),
            kind: pending.kind.word(),
            uid: pending.uid,
            gid: pending.gid,
            path: escape(&pending.path),
            to_path: pending.to_path.as_deref().map(escape),
            offset: is_write.then_some(pending.offset),
            length: is_write.then_some(pending.length),
            blake3: is_write.then(|| hex(&pending.hash)),
            unsent_bytes: is_write.then_some(live),
            may_be_superseded: pending.may_be_superseded,
        }
    }
}

impl ListReport {
    /// The document of a look.
    #[must_use]
    pub fn of(look: &Look) -> Self {
        Self {
            version: 1,
            path: look.path.display().to_string(),
            in_use_by: look.owner.clone(),
            uuid: hex(&look.uuid),
            server: escape(&look.server),
            share: escape(&look.share),
            mount_options: escape(&look.mount_options),
            ring_bytes: look.ring_bytes,
            used_bytes: look.used_bytes,
            is_clean: look.is_clean,
            changes: look.pending.iter().map(Change::of).collect(),
            damage: look.damage.iter().map(DamageReport::of).collect(),
        }
    }

    /// The same for people.
    #[must_use]
    pub fn text(&self) -> String {
        let mut text = format!("{}: of {} on {}, ", self.path, self.share, self.server);
        // Writing to a string cannot fail.
        let _ = match &self.in_use_by {
            Some(owner) => writeln!(text, "in use by {owner}"),
            None if self.is_clean => writeln!(text, "closed"),
            None => writeln!(text, "not closed: its mount was cut off"),
        };
        let used = self.used_bytes.div_ceil(1024);
        let _ = writeln!(
            text,
            "{} not stable on the server; {used} of {} KiB of the ring in use",
            changes(self.changes.len()),
            self.ring_bytes / 1024
        );
        for change in &self.changes {
            let Change { sequence, time, kind: what, path, .. } = change;
            let _ = write!(text, "{sequence}  {time}  {what}  {path}");
            if let Some(to_path) = &change.to_path {
                let _ = write!(text, " -> {to_path}");
            }
            if let (Some(offset), Some(length)) = (change.offset, change.length) {
                let _ = write!(text, "  {length} bytes at {offset}");
            }
            text.push('\n');
        }
        for damage in &self.damage {
            let _ = writeln!(text, "{}", damage.text());
        }
        text
    }
}

impl DamageReport {
    fn of(damage: &Damage) -> Self {
        Self {
            position: damage.position,
            first: damage.sequences.map(|(first, _)| first.0),
            last: damage.sequences.map(|(_, last)| last.0),
            was_stable: damage.was_stable,
        }
    }

    fn text(&self) -> String {
        let which = match (self.first, self.last) {
            (Some(first), Some(last)) if first == last => format!("record {first} is missing"),
            (Some(first), Some(last)) => format!("records {first} to {last} are missing"),
            _ => "what follows cannot be read".to_owned(),
        };
        let why = if self.was_stable {
            "the ring is damaged"
        } else {
            "a write was cut off, or the ring is damaged"
        };
        format!("position {}: {which}: {why}", self.position)
    }
}

/// A line of the manifest, without the tabs, which a terminal would not get.
fn plain(line: &Line) -> String {
    line.text.replace('\t', "  ")
}

/// So many changes, in words.
#[must_use]
pub fn changes(count: usize) -> String {
    if count == 1 { "1 change".to_owned() } else { format!("{count} changes") }
}

/// Whether something that had been stable is lost.
#[must_use]
pub fn is_damaged(verified: &Verified) -> bool {
    let (look, manifest) = (&verified.look, &verified.manifest);
    let is_manifest_whole = !manifest.is_there || manifest.is_whole;
    let is_ring_whole = look.are_superblocks_whole
        && look.unreadable_blocks == 0
        && look.damage.iter().all(|damage| !damage.was_stable)
        && verified.damaged.is_empty();
    !(is_ring_whole && is_manifest_whole && manifest.different.is_empty())
}

/// What a check of a whole journal found, for people.
#[must_use]
pub fn verified(verified: &Verified) -> String {
    let (look, manifest) = (&verified.look, &verified.manifest);
    let mut text = format!(
        "{}: {} read, and {} of them as they were written\n",
        look.path.display(),
        changes(usize::try_from(verified.checked_records).unwrap_or(usize::MAX)),
        verified.checked_records - verified.damaged.len() as u64
    );
    if !look.are_superblocks_whole {
        text.push_str("one of the two superblocks is damaged; the other one serves\n");
    }
    if look.unreadable_blocks > 0 {
        let _ = writeln!(text, "{} blocks cannot be read", look.unreadable_blocks);
    }
    for sequence in &verified.damaged {
        let _ = writeln!(text, "record {sequence}: its data is not what was written");
    }
    for damage in &look.damage {
        let _ = writeln!(text, "{}", DamageReport::of(damage).text());
    }
    let says = match (manifest.is_there, manifest.is_whole) {
        (false, _) => "there is no manifest",
        (true, false) => "the manifest is damaged",
        (true, true) => "the manifest is whole",
    };
    let _ = writeln!(text, "{says}");
    for line in &manifest.different {
        let _ = writeln!(text, "the manifest says otherwise: {}", plain(line));
    }
    for line in &manifest.lost {
        let _ = writeln!(text, "lost, as the manifest says: {}", plain(line));
    }
    text
}
