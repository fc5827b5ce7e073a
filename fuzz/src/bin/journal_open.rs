//! A client's journal with anything in its ring, and the same bytes as a manifest: what is opened has
//! records that can be read, works, and opens again with all of them. See `steadfast_fuzz::journal`
//! for the shape of inputs.
#![no_main]

use std::sync::Arc;

use libfuzzer_sys::fuzz_target;
use steadfast_fuzz::journal::{expand, options};
use steadfast_intent_log::testing::MemoryMedium;
use steadfast_journal::{AppendError, Change, Journal, Record, Recovered, manifest};

fn open(medium: &Arc<MemoryMedium>) -> Option<(Journal, Recovered)> {
    Journal::on_medium(Arc::clone(medium) as _, &options(), [2; 16]).ok()
}

fuzz_target!(|input: &[u8]| {
    let read = manifest::read(input);
    assert!(read.lines.len() <= input.len());
    let Some((image, is_forged)) = expand(input) else { return };
    let medium = Arc::new(MemoryMedium::from_image(image));
    let Some((journal, recovered)) = open(&medium) else { return };
    let pending = journal.pending();
    assert!(pending.windows(2).all(|two| two[0].sequence < two[1].sequence));
    for one in &pending {
        let _ = manifest::line(one);
        // A hash that is wrong though the checksum is right is an error, and no more.
        let _ = journal.read(one.sequence);
        if let [Some(file), _] = &one.objects {
            let _ = journal.read_pending(file, 0..u64::MAX);
            assert!(!journal.pending_of(file).is_empty());
        }
    }
    let data = [1; 100];
    let change = Change::Write { file: b"a file of ours", offset: 0, data: &data };
    let record =
        Record { time_ns: 0, uid: 0, gid: 0, groups: &[], order: None, path: b"p", change };
    let ours = match journal.append(&record) {
        Ok(sequence) => sequence,
        Err(AppendError::Full { .. } | AppendError::TooLarge { .. } | AppendError::Failed(_)) => {
            return;
        }
        Err(AppendError::Unfit(unfit)) => panic!("{unfit}"),
    };
    assert!(pending.iter().all(|one| one.sequence < ours));
    // Ours may supersede something.
    let expected: Vec<_> = journal.pending().iter().map(|one| one.sequence).collect();
    // The ring may be recorded larger than the medium is.
    if journal.sync(ours).is_err() || journal.close().is_err() {
        return;
    }
    // Its numbers may have come to their end.
    let Some((again, _)) = open(&medium) else { return };
    let found: Vec<_> = again.pending().iter().map(|one| one.sequence).collect();
    // A forged epoch, of a superblock or a frame, can hide frames from one opening and not from the next:
    // then they were reported as missing.
    if is_forged || !recovered.damage.is_empty() {
        return;
    }
    assert_eq!(found, expected);
    assert!(again.read(ours).expect("it reads").is_some());
});
