//! Data: what is live of the writes of a file, in few large WRITEs; or range by range where somebody else
//! may have written meanwhile.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use steadfast_client::FileType;
use steadfast_journal::{Attributes as Settings, Change, Content, Journal, Sequence, Stored};

use super::ReplayError;
use super::keeper::Kept;
use super::known;
use super::pass::{Fate, Life, Pass};
use super::plan::{Object, Piece, Truncation};
use super::report::Conflict;
use super::share::{Failed, Stamp, Who};

/// Records that are kept in memory: pieces of one often lie between those of another.
const RECORDS_KEPT: usize = 16;
/// A region that a truncation has made zeros is looked at up to this length.
const ZEROS_LOOKED_AT: u64 = 256 << 20;
/// What others have changed of a range is told from what is ours in parts of so many bytes of the file.
const PART_BYTES: u64 = 4096;

/// Records as they were read last.
#[derive(Default)]
pub(crate) struct Records(VecDeque<(Sequence, Arc<Stored>)>);

impl Records {
    /// `None`: the ring does not give it.
    fn read(&mut self, journal: &Journal, sequence: Sequence) -> Option<Arc<Stored>> {
        if let Some((_, stored)) = self.0.iter().find(|(known, _)| *known == sequence) {
            return Some(Arc::clone(stored));
        }
        let stored = match journal.read(sequence) {
            Ok(stored) => Arc::new(stored?),
            Err(error) => {
                tracing::error!(record = sequence.0, %error, "a record cannot be replayed");
                return None;
            }
        };
        if self.0.len() == RECORDS_KEPT {
            self.0.pop_front();
        }
        self.0.push_back((sequence, Arc::clone(&stored)));
        Some(stored)
    }

    fn data(&mut self, journal: &Journal, piece: &Piece) -> Option<(Who, Vec<u8>)> {
        let stored = self.read(journal, piece.sequence)?;
        let record = stored.record();
        let Change::Write { offset, data, .. } = record.change else { return None };
        let from = usize::try_from(piece.range.start.checked_sub(offset)?).ok()?;
        let bytes = usize::try_from(piece.range.end - piece.range.start).ok()?;
        let data = data.get(from..from.checked_add(bytes)?)?.to_vec();
        Some((known::who_of(&record), data))
    }
}

/// Pieces that follow each other in the file, of one user.
#[derive(Debug)]
struct Run {
    who: Who,
    offset: u64,
    data: Vec<u8>,
    pieces: Vec<Piece>,
    is_doubtful: bool,
}

/// What a part of a range at the server looks like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum As {
    Ours,
    /// As if nobody had written what is not ours.
    Unwritten,
    Others,
}

/// Which bytes of a range nobody has written: those that the server does not have, and zeros from `empty_from` on. Only
/// where these are as many as a WRITE may have left out, or the whole range: a few zeros may be somebody's.
fn nobodys(offset: u64, bytes: usize, there: &[u8], empty_from: Option<u64>) -> Vec<bool> {
    let mut nobodys = vec![false; bytes];
    let Some(empty_from) = empty_from else { return nobodys };
    let first = usize::try_from(empty_from.saturating_sub(offset)).unwrap_or(bytes).min(bytes);
    let is_empty = |index: usize| there.get(index).is_none_or(|byte| *byte == 0);
    let mut begin = first;
    while begin < bytes {
        let end = (begin..bytes).find(|index| !is_empty(*index)).unwrap_or(bytes);
        let is_much = end - begin >= PART_BYTES as usize || end - begin == bytes;
        for (index, is_nobodys) in nobodys.iter_mut().enumerate().take(end).skip(begin) {
            *is_nobodys = is_much || index >= there.len();
        }
        begin = end + 1;
    }
    nobodys
}

/// A range that is ours, with what the server has of it, in parts. The server may have executed some of the WRITEs that a
/// record went in, and not the others. From `empty_from` on there was nothing.
fn parts(offset: u64, ours: &[u8], there: &[u8], empty_from: Option<u64>) -> Vec<(Range<u64>, As)> {
    let nobodys = nobodys(offset, ours.len(), there, empty_from);
    let mut parts: Vec<(Range<u64>, As)> = Vec::new();
    let mut at = offset;
    let mut rest = ours;
    while !rest.is_empty() {
        let bytes = rest.len().min((PART_BYTES - at % PART_BYTES) as usize);
        let (part, behind) = rest.split_at(bytes);
        let from = (at - offset) as usize;
        let others = |(index, byte): (usize, &u8)| there.get(from + index) != Some(byte);
        let mut different = part.iter().enumerate().filter(|it| others(*it)).peekable();
        let is_as = if different.peek().is_none() {
            As::Ours
        } else if different.all(|(index, _)| nobodys.get(from + index) == Some(&true)) {
            As::Unwritten
        } else {
            As::Others
        };
        let end = at + bytes as u64;
        match parts.last_mut() {
            Some((range, last)) if *last == is_as => range.end = end,
            _ => parts.push((at..end, is_as)),
        }
        (at, rest) = (end, behind);
    }
    parts
}

/// How the data of a file is brought to the server.
struct Way {
    object: Object,
    handle: Vec<u8>,
    /// What is there is compared first.
    compares: bool,
    /// What is beyond this was not there when the file was ours last (if that is not known: all of it), and
    /// may be written to as long as it is empty: nobody's data is written over. `None`: nothing may.
    grown_from: Option<u64>,
    size: u64,
    kept: Vec<Piece>,
    why: String,
    is_refused: bool,
}

impl Pass<'_> {
    /// Whose calls are made for a file as a whole.
    pub(super) fn who_writes(&mut self, object: Object) -> Who {
        let state = &self.plan.objects[object];
        let of_write = state.writes.last().map(|piece| piece.sequence);
        let of_truncation = state.truncations.last().map(|truncation| truncation.who.clone());
        let stored = of_write.and_then(|sequence| self.records.read(self.journal, sequence));
        stored.map(|stored| known::who_of(&stored.record())).or(of_truncation).unwrap_or_default()
    }

    /// Brings the data of a file to the server that is older than a record, or all of it. Says whether there
    /// was any.
    pub(super) fn settle_data(
        &mut self,
        object: Object,
        before: Option<Sequence>,
    ) -> Result<bool, ReplayError> {
        let before = before.unwrap_or(Sequence(u64::MAX));
        let from = self.settled.insert(object, before).unwrap_or_default();
        self.settled.insert(object, before.max(from));
        let state = &self.plan.objects[object];
        let is_due = |sequence: Sequence| (from..before).contains(&sequence);
        let is_lost = |one: &&Truncation| is_due(one.sequence) && !self.is_had(one.answered_under);
        let truncations: Vec<Truncation> =
            state.truncations.iter().filter(is_lost).cloned().collect();
        let mut pieces: Vec<Piece> =
            state.writes.iter().filter(|one| is_due(one.sequence)).cloned().collect();
        if truncations.is_empty() && pieces.is_empty() {
            return Ok(false);
        }
        if self.fresh.iter().any(|index| self.is_made_by(object, *index)) {
            self.set_fresh()?;
        }
        let who = self.who_writes(object);
        let gone = match self.life(&who, object)? {
            Life::Lost { why, is_refused } => Some((why, is_refused)),
            Life::Gone | Life::Unknown => Some(("it was removed by others".to_owned(), false)),
            Life::Alive => None,
        };
        let now = if gone.is_none() { self.attributes(&who, Some(object))? } else { None };
        let Some(now) = now else {
            let (why, is_refused) =
                gone.unwrap_or_else(|| ("it was removed by others".to_owned(), false));
            self.give_up(object, &truncations, &pieces, &why, is_refused)?;
            return Ok(true);
        };
        if now.file_type != FileType::Regular {
            self.give_up(object, &truncations, &pieces, "it is no file any more", false)?;
            return Ok(true);
        }
        let Some(handle) = self.plan.objects[object].handle.clone() else { return Ok(true) };
        let grown_from = match self.plan.objects[object].stamp {
            Some(stamp) => Some(stamp.size).filter(|size| now.size >= *size),
            None => Some(0),
        };
        let mut way = Way {
            object,
            handle,
            compares: self.is_data_changed(object, Stamp::of(&now)),
            grown_from,
            size: now.size,
            kept: Vec::new(),
            why: "others have changed it meanwhile".to_owned(),
            is_refused: false,
        };
        if way.compares {
            let path = String::from_utf8_lossy(&self.path_of(object)).escape_debug().to_string();
            let (now, known) = (Stamp::of(&now), self.plan.objects[object].stamp);
            tracing::info!(path, ?now, ?known, "others may have changed a file: it is compared");
        }
        self.touched.insert(object, who.clone());
        let is_doubtful = pieces.iter().any(|piece| piece.is_doubtful)
            || truncations.iter().any(|truncation| truncation.is_doubtful);
        let compares = way.compares || is_doubtful;
        if compares
            && !self.has_program
            && let Ok(verifier) = self.ask(|share| share.commit(&who, &way.handle))?
        {
            // What is found to be there is stable if this is still the verifier after the last COMMIT.
            self.saw(verifier);
        }
        let is_due = |one: &&Truncation| !self.is_overtaken(object, one);
        let truncations: Vec<Truncation> = truncations.iter().filter(is_due).cloned().collect();
        self.truncate(&mut way, &truncations)?;
        pieces.sort_unstable_by_key(|piece| piece.range.start);
        self.send_all(&mut way, &pieces)?;
        if !way.kept.is_empty() {
            let kept = std::mem::take(&mut way.kept);
            self.keep(object, &kept, &way.why, way.is_refused)?;
        }
        Ok(true)
    }

    pub(super) fn is_made_by(&self, object: Object, index: usize) -> bool {
        self.plan.objects[object].made_by == Some(index)
    }

    /// Whether a later write behind the new end has left already: then the server has had the truncation
    /// before it, and to truncate again would cut that write off.
    fn is_overtaken(&self, object: Object, truncation: &Truncation) -> bool {
        let mut live: Vec<_> =
            self.plan.objects[object].writes.iter().map(|piece| piece.range.clone()).collect();
        live.sort_unstable_by_key(|range| range.start);
        let mut at = truncation.size;
        for range in live.into_iter().chain(std::iter::once(u64::MAX..u64::MAX)) {
            let gap = at..range.start;
            at = at.max(range.end);
            if gap.is_empty() {
                continue;
            }
            // Nothing but zeros is pending in there; what is missing was a write that has left.
            let Ok(overlays) = self.journal.read_pending(&truncation.handle, gap.clone()) else {
                return false;
            };
            let zeros = overlays.iter().map(|overlay| match &overlay.content {
                Content::Zeros(bytes) => *bytes,
                Content::Data(data) => data.len() as u64,
            });
            if zeros.sum::<u64>() < gap.end - gap.start {
                return true;
            }
        }
        false
    }

    /// The file is not there. What the journal removes itself is nobody's loss.
    fn give_up(
        &mut self,
        object: Object,
        truncations: &[Truncation],
        pieces: &[Piece],
        why: &str,
        is_refused: bool,
    ) -> Result<(), ReplayError> {
        if self.plan.objects[object].is_removed_later() {
            return Ok(());
        }
        for truncation in truncations {
            self.fates.insert(truncation.sequence, Fate::NotMade);
        }
        if pieces.is_empty() {
            if let Some(truncation) = truncations.first() {
                self.not_truncated(object, truncation, why, is_refused);
            }
            return Ok(());
        }
        self.keep(object, pieces, why, is_refused)
    }

    fn not_truncated(
        &mut self,
        object: Object,
        truncation: &Truncation,
        why: &str,
        is_refused: bool,
    ) {
        self.fates.insert(truncation.sequence, Fate::NotMade);
        self.report.conflicts.push(Conflict {
            sequence: truncation.sequence,
            path: self.path_of(object).to_vec(),
            time_ns: truncation.time_ns,
            uid: truncation.who.uid,
            is_refused,
            why: format!("it is not truncated to {} bytes: {why}", truncation.size),
            kept_in: None,
            kept_bytes: 0,
        });
    }

    fn truncate(&mut self, way: &mut Way, truncations: &[Truncation]) -> Result<(), ReplayError> {
        let Some(last) = truncations.last() else { return Ok(()) };
        let is_doubtful = truncations.iter().any(|truncation| truncation.is_doubtful);
        // A file that only grows loses nothing.
        let only_grows = way.grown_from.is_some()
            && truncations.iter().all(|truncation| truncation.size >= way.size);
        if is_doubtful || way.compares && !only_grows {
            if !self.is_truncated(way, truncations)? {
                let why = "others have changed it meanwhile";
                self.not_truncated(way.object, last, why, false);
            }
            return Ok(());
        }
        for truncation in truncations {
            let settings = Settings { size: Some(truncation.size), ..Settings::default() };
            let set = self.ask_to_change(!way.compares, &way.handle, |share| {
                share.setattr(&truncation.who, &way.handle, &settings)
            })?;
            match set {
                Ok(stamp) => {
                    if !way.compares {
                        self.ours(way.object, stamp);
                        known::note(self.journal, truncation.sequence, b"", stamp);
                    }
                    self.sent(truncation.sequence);
                    way.size = truncation.size;
                }
                Err(Failed::Refused(why)) => {
                    self.not_truncated(way.object, truncation, &why, true);
                }
                Err(_) => {
                    self.not_truncated(way.object, truncation, "it was removed by others", false);
                }
            }
        }
        Ok(())
    }

    /// Whether the file looks as after the truncations, and perhaps after writes that came later.
    fn is_truncated(&mut self, way: &Way, truncations: &[Truncation]) -> Result<bool, ReplayError> {
        let Some(last) = truncations.last() else { return Ok(true) };
        let from = truncations.iter().map(|one| one.size).min().unwrap_or_default();
        let mut live: Vec<Piece> = self.plan.objects[way.object].writes.clone();
        live.sort_unstable_by_key(|piece| piece.range.start);
        let end = live.last().map_or(0, |piece| piece.range.end).max(last.size);
        if !(last.size..=end).contains(&way.size) || way.size.saturating_sub(from) > ZEROS_LOOKED_AT
        {
            return Ok(false);
        }
        let mut at = from;
        let ends = [(way.size, way.size)];
        let gaps = live.iter().map(|piece| (piece.range.start, piece.range.end)).chain(ends);
        for (start, next) in gaps {
            let theirs = self.theirs(&last.who, &way.handle, at, start.min(way.size))?;
            if theirs.is_none_or(|theirs| theirs.iter().any(|byte| *byte != 0)) {
                return Ok(false);
            }
            at = at.max(next);
        }
        Ok(true)
    }

    /// What the server has of a range; shorter at the end of the file. `None` if it does not say.
    fn theirs(
        &mut self,
        who: &Who,
        handle: &[u8],
        from: u64,
        end: u64,
    ) -> Result<Option<Vec<u8>>, ReplayError> {
        let mut theirs = Vec::new();
        let mut at = from;
        while at < end {
            let count = (end - at).min(self.transfer_bytes as u64) as u32;
            match self.ask(|share| share.read(who, handle, at, count))? {
                Ok(data) if data.is_empty() => break,
                Ok(data) => {
                    at += data.len() as u64;
                    theirs.extend_from_slice(&data);
                }
                Err(_) => return Ok(None),
            }
        }
        Ok(Some(theirs))
    }

    /// Sends pieces, which are in the order of the file.
    fn send_all(&mut self, way: &mut Way, pieces: &[Piece]) -> Result<(), ReplayError> {
        let mut run: Option<Run> = None;
        for piece in pieces {
            let Some((who, data)) = self.records.data(self.journal, piece) else {
                self.report.unreadable.push(piece.sequence);
                continue;
            };
            if let Some(run) = &mut run
                && run.who == who
                && run.is_doubtful == piece.is_doubtful
                && run.offset + run.data.len() as u64 == piece.range.start
                && run.data.len() + data.len() <= self.transfer_bytes
            {
                run.data.extend_from_slice(&data);
                run.pieces.push(piece.clone());
                continue;
            }
            let next = Run {
                who,
                offset: piece.range.start,
                data,
                pieces: vec![piece.clone()],
                is_doubtful: piece.is_doubtful,
            };
            if let Some(full) = run.replace(next) {
                self.send(way, &full)?;
            }
        }
        run.map_or(Ok(()), |run| self.send(way, &run))
    }

    fn send(&mut self, way: &mut Way, run: &Run) -> Result<(), ReplayError> {
        if !way.compares && !run.is_doubtful {
            return self.write(way, &run.who, run.offset, &run.data, &run.pieces);
        }
        let end = run.offset + run.data.len() as u64;
        let theirs = self.theirs(&run.who, &way.handle, run.offset, end)?;
        for piece in &run.pieces {
            let from = (piece.range.start - run.offset) as usize;
            let bytes = (piece.range.end - piece.range.start) as usize;
            let ours = run.data.get(from..from + bytes).unwrap_or_default();
            let there = theirs.as_ref().map(|theirs| {
                let end = theirs.len().min(from + bytes);
                theirs.get(from..end).unwrap_or_default()
            });
            if there == Some(ours) {
                continue;
            }
            // What is not acknowledged yet may come after anything that others have written.
            if self.unanswered.contains(&piece.sequence) {
                let pieces = std::slice::from_ref(piece);
                self.write(way, &run.who, piece.range.start, ours, pieces)?;
                continue;
            }
            let Some(there) = there else {
                way.kept.push(piece.clone());
                continue;
            };
            let empty_from = way.grown_from.filter(|_| !run.is_doubtful);
            for (range, is_as) in parts(piece.range.start, ours, there, empty_from) {
                let part = Piece { range: range.clone(), ..piece.clone() };
                match is_as {
                    As::Ours => {}
                    As::Unwritten => {
                        let at = |place: u64| (place - piece.range.start) as usize;
                        let data = ours.get(at(range.start)..at(range.end)).unwrap_or_default();
                        self.write(way, &run.who, range.start, data, &[part])?;
                    }
                    As::Others => way.kept.push(part),
                }
            }
        }
        Ok(())
    }

    /// Writes in as many calls as are needed.
    fn write(
        &mut self,
        way: &mut Way,
        who: &Who,
        offset: u64,
        data: &[u8],
        pieces: &[Piece],
    ) -> Result<(), ReplayError> {
        let (mut at, mut rest) = (offset, data);
        while !rest.is_empty() {
            let bytes = rest.len().min(self.transfer_bytes);
            let chunk = rest.get(..bytes).unwrap_or(rest);
            let written = self.ask_to_change(!way.compares, &way.handle, |share| {
                share.write(who, &way.handle, at, chunk)
            });
            let why = match written? {
                Ok(written) if written.bytes > 0 => {
                    self.saw(written.verifier);
                    let is_known = self.plan.objects[way.object].stamp.is_some();
                    let is_others = is_known
                        && written.before.is_some_and(|it| self.is_data_changed(way.object, it));
                    // From here on somebody else writes, too.
                    way.compares |= is_others;
                    if !is_others && !way.compares {
                        self.ours(way.object, written.after);
                    }
                    self.report.sent_bytes += written.bytes as u64;
                    at += written.bytes as u64;
                    rest = rest.get(written.bytes..).unwrap_or_default();
                    continue;
                }
                Ok(_) => "it takes no data".to_owned(),
                Err(Failed::Refused(why)) => why,
                Err(_) => {
                    way.kept.extend_from_slice(pieces);
                    return Ok(());
                }
            };
            way.why = format!("the server refused it: {why}");
            way.is_refused = true;
            way.kept.extend_from_slice(pieces);
            return Ok(());
        }
        for piece in pieces {
            self.sent(piece.sequence);
        }
        self.note_stamp(way, pieces);
        Ok(())
    }

    /// So that a later replay knows that it was this one that changed the file.
    fn note_stamp(&mut self, way: &Way, pieces: &[Piece]) {
        let stamp: Option<Stamp> = self.plan.objects[way.object].stamp;
        if let (Some(piece), Some(stamp), false) = (pieces.last(), stamp, way.compares) {
            known::note(self.journal, piece.sequence, b"", Some(stamp));
        }
    }

    /// Keeps all data of a file.
    pub(super) fn keep_all(
        &mut self,
        object: Object,
        why: &str,
        is_refused: bool,
    ) -> Result<(), ReplayError> {
        let pieces = self.plan.objects[object].writes.clone();
        if pieces.is_empty() { Ok(()) } else { self.keep(object, &pieces, why, is_refused) }
    }

    fn keep(
        &mut self,
        object: Object,
        pieces: &[Piece],
        why: &str,
        is_refused: bool,
    ) -> Result<(), ReplayError> {
        let mut pieces = pieces.to_vec();
        pieces.sort_unstable_by_key(|piece| piece.range.start);
        let Some(sequence) = pieces.iter().map(|piece| piece.sequence).min() else { return Ok(()) };
        let path = self.path_of(object);
        let first = self.records.read(self.journal, sequence);
        let (time_ns, who) = first.map_or((0, Who::default()), |stored| {
            let record = stored.record();
            (record.time_ns, known::who_of(&record))
        });
        let length = |piece: &Piece| piece.range.end - piece.range.start;
        let ranges: Vec<(u64, u64)> =
            pieces.iter().map(|piece| (piece.range.start, length(piece))).collect();
        let kept_bytes = ranges.iter().map(|(_, bytes)| bytes).sum();
        let (uid, gid) = (who.uid, who.gid);
        let kept = Kept { sequence, path: &path, time_ns, uid, gid, why, ranges: &ranges };
        let (records, journal) = (&mut self.records, self.journal);
        let unreadable = &mut self.report.unreadable;
        let mut data = pieces.iter().filter_map(|piece| {
            let data = records.data(journal, piece);
            if data.is_none() {
                unreadable.push(piece.sequence);
            }
            Some((piece.range.start, data?.1))
        });
        let file = self.keeper.keep(&kept, &mut data).map_err(ReplayError::Keep)?;
        self.fates.extend(pieces.iter().map(|piece| (piece.sequence, Fate::NotMade)));
        // Once more of the same file: the newer one has it all.
        self.report.conflicts.retain(|one| one.kept_in.as_ref() != Some(&file));
        self.report.conflicts.push(Conflict {
            sequence,
            path: path.to_vec(),
            time_ns,
            uid,
            is_refused,
            why: why.to_owned(),
            kept_in: Some(file),
            kept_bytes,
        });
        Ok(())
    }
}
