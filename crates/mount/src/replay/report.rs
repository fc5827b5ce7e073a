//! What a replay has done, for people and for statistics.

use std::fmt;

use steadfast_journal::Sequence;
use steadfast_journal::manifest::{escape, utc};

/// What a replay has done with a journal.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Records that were pending.
    pub records: u64,
    /// Of them, those that were sent, wholly or in part.
    pub sent_records: u64,
    /// Bytes of file data that were sent.
    pub sent_bytes: u64,
    /// Records whose effect the server had already.
    pub already_there: u64,
    /// Changes that were not made at the server.
    pub conflicts: Vec<Conflict>,
    /// Records that the ring does not give: they stay in it.
    pub unreadable: Vec<Sequence>,
    /// Sequences of records that were lost to damage of the ring: first and last.
    pub lost: Vec<(Sequence, Sequence)>,
    /// How often the server has lost its memory in between, so that all was looked at again.
    pub restarts: u32,
    /// Objects that the server had lost, and that were made again: old and new handle.
    pub made_again: Vec<(Vec<u8>, Vec<u8>)>,
    /// The journal has failed: what has left is not noted on its disk, and comes again.
    pub journal_error: Option<String>,
}

/// A change that was not made at the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conflict {
    /// The first record of it.
    pub sequence: Sequence,
    /// The path as the user knew it.
    pub path: Vec<u8>,
    /// When it was made, in nanoseconds since 1970.
    pub time_ns: u64,
    /// Who made it.
    pub uid: u32,
    /// Whether the server has refused it; otherwise others have changed something meanwhile.
    pub is_refused: bool,
    /// What was not done, and why.
    pub why: String,
    /// Where its data is kept, if it has some.
    pub kept_in: Option<String>,
    /// Bytes of data in there.
    pub kept_bytes: u64,
}

impl Report {
    /// Whether all is at the server.
    pub fn is_complete(&self) -> bool {
        self.conflicts.is_empty() && self.unreadable.is_empty() && self.lost.is_empty()
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { records, sent_records, sent_bytes, already_there, .. } = self;
        writeln!(
            f,
            "{records} changes: {sent_records} sent ({sent_bytes} bytes of data), \
             {already_there} were at the server already, {} not made",
            self.conflicts.len()
        )?;
        if self.restarts > 0 {
            writeln!(f, "the server restarted {} times meanwhile", self.restarts)?;
        }
        if !self.made_again.is_empty() {
            writeln!(
                f,
                "{} objects that the server had lost were made again",
                self.made_again.len()
            )?;
        }
        for conflict in &self.conflicts {
            let what = if conflict.is_refused { "refused" } else { "conflict" };
            let (path, time) = (escape(&conflict.path), utc(conflict.time_ns));
            writeln!(
                f,
                "{what}: {path} (record {}, {time}, user {}): {}",
                conflict.sequence, conflict.uid, conflict.why
            )?;
            if let Some(file) = &conflict.kept_in {
                writeln!(f, "  its data ({} bytes) is kept in {file}", conflict.kept_bytes)?;
            }
        }
        for sequence in &self.unreadable {
            writeln!(f, "record {sequence} cannot be read from the ring, and stays in it")?;
        }
        for (first, last) in &self.lost {
            writeln!(f, "records from {first} to {last} are lost: the ring was damaged there")?;
        }
        if let Some(error) = &self.journal_error {
            writeln!(f, "the journal failed, and will be replayed again: {error}")?;
        }
        Ok(())
    }
}
