//! Which clients keep a journal of what `async` shares have acknowledged to them, as the next start of the
//! server has to know it (docs/recovery.md, *Who is waited for*).
//!
//! `journaling-clients` in the state directory begins with the write verifier under which nothing is missing
//! that the clients were promised. Each further line is a client: its share, its journal, its address, its
//! name. A line begins with `missed` if the client did not come after a crash, and is not waited for again.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;
use steadfast_engine::{JournalId, JournalRecord, JournalingClient};
use steadfast_shares::ShareId;
use steadfast_sys::durable_file;

use crate::error::{StartError, Tried};
use crate::written_name::{read_name, write_name};

const FILE: &str = "journaling-clients";
const VERIFIER: &str = "verifier ";
const MISSED: &str = "missed ";

/// What is recorded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct List {
    verifier: u64,
    clients: BTreeMap<(ShareId, JournalId), (JournalingClient, bool)>,
}

impl List {
    fn text(&self) -> String {
        let mut text = format!("{VERIFIER}{:016x}\n", self.verifier);
        for (client, is_missed) in self.clients.values() {
            text.push_str(if *is_missed { MISSED } else { "" });
            // Writing to a string cannot fail.
            let _ = write!(text, "{:016x} ", client.share.0);
            for byte in client.journal {
                let _ = write!(text, "{byte:02x}");
            }
            let _ = write!(text, " {} ", client.address);
            write_name(&mut text, &client.name);
            text.push('\n');
        }
        text
    }

    /// Lines that cannot be read are left out, and told.
    fn of_text(text: &str) -> (Self, Vec<&str>) {
        let mut list = Self::default();
        let mut unread = Vec::new();
        for line in text.lines() {
            if let Some(verifier) = line.strip_prefix(VERIFIER) {
                match u64::from_str_radix(verifier, 16) {
                    Ok(verifier) => list.verifier = verifier,
                    Err(_) => unread.push(line),
                }
                continue;
            }
            let of_missed = line.strip_prefix(MISSED);
            match client_of_line(of_missed.unwrap_or(line)) {
                Some(client) => {
                    let key = (client.share, client.journal);
                    list.clients.insert(key, (client, of_missed.is_some()));
                }
                None => unread.push(line),
            }
        }
        (list, unread)
    }
}

fn client_of_line(line: &str) -> Option<JournalingClient> {
    let mut words = line.splitn(4, ' ');
    let share = ShareId(u64::from_str_radix(words.next()?, 16).ok()?);
    let digits = words.next()?;
    let mut journal = JournalId::default();
    if digits.len() != 2 * journal.len() {
        return None;
    }
    for (at, byte) in journal.iter_mut().enumerate() {
        *byte = u8::from_str_radix(digits.get(2 * at..2 * at + 2)?, 16).ok()?;
    }
    let address = words.next()?.parse().ok()?;
    let name = read_name(words.next()?)?;
    Some(JournalingClient { share, journal, address, name })
}

#[derive(Debug, Default)]
struct State {
    list: List,
    /// Counts the changes of the list.
    changes: u64,
}

/// The record.
#[derive(Debug)]
pub(crate) struct JournalingClients {
    path: PathBuf,
    /// The write verifier of this start.
    verifier: u64,
    state: Mutex<State>,
    /// How many changes are on the disk. Who holds it writes for all who wait for it.
    written: Mutex<u64>,
}

/// What was recorded before this start.
#[derive(Debug)]
pub(crate) struct Recorded {
    /// The clients, and whether they did not come the last time.
    pub(crate) clients: Vec<(JournalingClient, bool)>,
    /// What they were promised may be lost.
    pub(crate) is_lost: bool,
}

impl JournalingClients {
    /// Reads the record, before anybody is served with this write verifier.
    ///
    /// # Errors
    /// When it cannot be read.
    pub(crate) fn open(
        state_directory: &Path,
        verifier: u64,
    ) -> Result<(Arc<Self>, Recorded), StartError> {
        let path = state_directory.join(FILE);
        let text = match std::fs::read_to_string(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
            read => read.tried_with(|| format!("cannot read {}", path.display()))?,
        };
        let (list, unread) = List::of_text(&text);
        for line in unread {
            tracing::warn!("{} has a line that names no client: {line:?}", path.display());
        }
        let clients: Vec<_> = list.clients.values().cloned().collect();
        let is_lost = list.verifier != verifier;

        let state = Mutex::new(State { list, changes: 0 });
        let record = Self { path, verifier, state, written: Mutex::new(0) };
        Ok((Arc::new(record), Recorded { clients, is_lost }))
    }

    fn change(&self, change: impl FnOnce(&mut List)) -> u64 {
        let mut state = self.state.lock();
        change(&mut state.list);
        state.changes += 1;
        state.changes
    }

    /// Writes unless somebody else has written that change.
    fn write_until(&self, change: u64) -> io::Result<()> {
        let mut written = self.written.lock();
        if *written >= change {
            return Ok(());
        }
        let (text, changes) = {
            let state = self.state.lock();
            (state.list.text(), state.changes)
        };
        durable_file::replace(&self.path, text.as_bytes())?;
        *written = changes;
        Ok(())
    }

    /// The server stops in an orderly way, with this write verifier: nothing is lost by that.
    pub(crate) fn close(&self, verifier: u64) {
        self.change(|list| {
            // What a crash before has lost may still be missing.
            if list.verifier == self.verifier {
                list.verifier = verifier;
            }
        });
        self.write();
    }

    /// Writes what has changed. To be called from time to time, and at the end.
    pub(crate) fn write(&self) {
        let changes = self.state.lock().changes;
        if let Err(error) = self.write_until(changes) {
            tracing::error!("{} cannot be written: {error}", self.path.display());
        }
    }
}

impl JournalRecord for JournalingClients {
    fn record(&self, client: &JournalingClient) -> bool {
        let change = self.change(|list| {
            list.clients.insert((client.share, client.journal), (client.clone(), false));
        });
        let written = self.write_until(change);
        if let Err(error) = &written {
            self.forget(client.share, &client.journal);
            tracing::error!(
                "a client that keeps a journal cannot be recorded, and is not waited for after a crash: \
                 {}: {error}",
                self.path.display()
            );
        }
        written.is_ok()
    }

    fn forget(&self, share: ShareId, journal: &JournalId) {
        self.change(|list| {
            list.clients.remove(&(share, *journal));
        });
    }

    fn give_up(&self, share: ShareId, journal: &JournalId) {
        self.change(|list| {
            if let Some((_, is_missed)) = list.clients.get_mut(&(share, *journal)) {
                *is_missed = true;
            }
        });
    }

    fn all_recovered(&self) {
        self.change(|list| list.verifier = self.verifier);
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used)]
mod tests {
    use super::*;

    fn client(journal: u8, name: &[u8]) -> JournalingClient {
        let address = "fe80::1".parse().expect("an address");
        JournalingClient { share: ShareId(7), journal: [journal; 16], address, name: name.to_vec() }
    }

    #[test]
    fn any_name_is_read_as_it_was_written() {
        let mut list = List { verifier: 0xabc, ..List::default() };
        for (journal, name) in
            [&b"a.example"[..], b"", b"100%", b"two words\n", b"\xff\0"].iter().enumerate()
        {
            let client = client(journal as u8, name);
            list.clients.insert((client.share, client.journal), (client, journal % 2 == 0));
        }
        assert_eq!(List::of_text(&list.text()), (list.clone(), vec![]));
        assert_eq!(list.text().lines().count(), 6);
    }

    #[test]
    fn lines_that_say_nothing_are_told() {
        let text = "verifier x\nmissed\n7 00 ::1 a\n7 0é00000000000000000000000000000 ::1 a\n\
                    7 00000000000000000000000000000000 nowhere a\n7 00000000000000000000000000000000 ::1 %4";
        let (list, unread) = List::of_text(text);
        assert_eq!((list, unread.len()), (List::default(), 6));
    }

    #[test]
    fn what_was_lost_is_known_until_all_have_come() {
        let place = tempfile::tempdir().unwrap();
        let open = |verifier| {
            let opened = JournalingClients::open(place.path(), verifier);
            opened.map_err(|error| error.to_string()).unwrap()
        };
        let (record, recorded) = open(1);
        assert!(recorded.clients.is_empty());
        // So says who waits for nobody.
        record.all_recovered();
        assert!(record.record(&client(1, b"one")) && record.record(&client(2, b"two")));
        let (_, recorded) = open(1);
        assert_eq!((recorded.clients.len(), recorded.is_lost), (2, false), "an orderly stop");
        let (record, recorded) = open(2);
        assert_eq!((recorded.clients.len(), recorded.is_lost), (2, true));
        record.give_up(ShareId(7), &[2; 16]);
        record.write();
        let (record, recorded) = open(3);
        let missed: Vec<bool> = recorded.clients.iter().map(|(_, is_missed)| *is_missed).collect();
        assert_eq!((missed, recorded.is_lost), (vec![false, true], true));
        assert!(record.record(&client(2, b"two")));
        record.forget(ShareId(7), &[1; 16]);
        record.all_recovered();
        record.write();
        let (_, recorded) = open(3);
        assert_eq!((recorded.clients, recorded.is_lost), (vec![(client(2, b"two"), false)], false));
    }
}
