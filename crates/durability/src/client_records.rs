//! Which clients of NFSv4 have state, in a file that outlives the machine: after a loss of all that
//! they had, they may reclaim it.
//!
//! The file is `nfs4.clients` in the state directory, with frames of events
//! ([`ClientRecords::read_file`]). A frame is flushed before anybody is told of what depends on it;
//! all who wait at that time have their events in one frame. The file only grows, and is replaced as
//! a whole when most of it is out of date, and by the first event of a process.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use parking_lot::Mutex;
use steadfast_engine::{ClientRecords, RecordKeeper};
use steadfast_sys::{durable_file, identity};

use super::mutation::{self, Mutation};

const NAME: &str = "nfs4.clients";
/// A file is not replaced before it has so many bytes.
const RENEWED_FROM: u64 = 64 << 10;

/// The file of a state directory.
pub struct ClientRecordFile {
    path: PathBuf,
    writing: Mutex<Writing>,
}

#[derive(Default)]
struct Writing {
    /// What the file has, or is to have once it can be written.
    records: ClientRecords,
    /// `None` if the file does not have just the records.
    written: Option<Written>,
    has_warned: bool,
}

struct Written {
    file: File,
    bytes: u64,
    /// When it was replaced last.
    replaced_bytes: u64,
    frames: u64,
}

impl Written {
    fn replace(path: &Path, records: &ClientRecords) -> io::Result<Self> {
        let bytes = records.file();
        durable_file::replace(path, &bytes)?;
        let file = identity::as_server(|| OpenOptions::new().write(true).open(path))??;
        let bytes = bytes.len() as u64;
        Ok(Self { file, bytes, replaced_bytes: bytes, frames: 1 })
    }

    /// Whether there is so much out of date that the file is better replaced.
    fn is_old(&self) -> bool {
        self.bytes > RENEWED_FROM.max(2 * self.replaced_bytes)
    }

    fn append(&mut self, events: &[u8]) -> io::Result<()> {
        let frame = ClientRecords::frame(self.frames + 1, events);
        self.file.write_all_at(&frame, self.bytes)?;
        if !mutation::is_on(Mutation::UnflushedClients) {
            self.file.sync_data()?;
        }
        self.bytes += frame.len() as u64;
        self.frames += 1;
        Ok(())
    }
}

impl ClientRecordFile {
    /// Opens the file of a state directory, and tells what is in it. If that cannot be known, that
    /// is logged: nobody is recorded then. So it is if `last_instance` has begun, and the file tells of an
    /// older one that used it last: it is an old copy. The file is written when there is something new.
    pub fn open(state_directory: &Path, last_instance: u32) -> (Self, ClientRecords) {
        let path = state_directory.join(NAME);
        let read = match std::fs::read(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(ClientRecords::default()),
            Err(error) => Err(format!("cannot be read: {error}")),
            Ok(bytes) => {
                let read = ClientRecords::read_file(&bytes);
                read.map_err(|why| format!("cannot be used: {why}"))
            }
        };
        let read = read.and_then(|records| match records.instance() {
            instance @ 1.. if instance < last_instance => Err(format!(
                "is an old copy: it was used last when what clients had was lost for the {instance}th \
                 time, and nfs4.instance counts {last_instance}"
            )),
            _ => Ok(records),
        });
        let records = read.unwrap_or_else(|why| {
            tracing::error!(
                "{} {why}; which clients of NFSv4 had opens and locks is not known, so that none of \
                 them can reclaim those if they are lost; the file is written anew",
                path.display()
            );
            ClientRecords::default()
        });
        let writing = Writing { records: records.clone(), ..Writing::default() };
        (Self { path, writing: Mutex::new(writing) }, records)
    }

    /// Has it on the disk that this instance uses the file from now on. Whether that could be done; if
    /// not, why is logged.
    pub fn begin_instance(&self, instance: u32) -> bool {
        self.keep(&|events| ClientRecords::append_instance(instance, events))
    }

    fn write(&self, writing: &mut Writing, events: &[u8]) -> io::Result<()> {
        if let Some(written) = writing.written.as_mut().filter(|written| !written.is_old()) {
            if events.is_empty() {
                return Ok(());
            }
            match written.append(events) {
                Ok(()) => return Ok(()),
                Err(error) => {
                    tracing::warn!("{}: {error}; it is replaced", self.path.display());
                }
            }
        }
        // What a failed flush has left in the old file is not known.
        writing.written = None;
        writing.written = Some(Written::replace(&self.path, &writing.records)?);
        Ok(())
    }
}

impl RecordKeeper for ClientRecordFile {
    fn keep(&self, take: &dyn Fn(&mut Vec<u8>)) -> bool {
        let mut writing = self.writing.lock();
        let mut events = Vec::new();
        take(&mut events);
        let known = writing.records.len();
        // They are the state's own.
        if writing.records.add(&events).is_err() {
            tracing::error!("{}: events that nobody understands", self.path.display());
        }
        if mutation::is_on(Mutation::UnrecordedDepartures) && writing.records.len() < known {
            return true;
        }
        let result = self.write(&mut writing, &events);
        match &result {
            Ok(()) => writing.has_warned = false,
            Err(error) if !std::mem::replace(&mut writing.has_warned, true) => {
                tracing::error!(
                    "{}: cannot record which clients of NFSv4 have opens and locks: {error}; clients \
                     that are not recorded must wait until it can be written",
                    self.path.display()
                );
            }
            Err(_) => {}
        }
        result.is_ok()
    }
}

#[cfg(test)]
mod tests;
