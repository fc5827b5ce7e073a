//! Segments of the reply store: whatever their bytes, what is read of them is written alike, and
//! read again.
#![no_main]

use libfuzzer_sys::fuzz_target;
use steadfast_intent_log::replies::{Segment, write_entry, write_segment_head};

fuzz_target!(|bytes: &[u8]| {
    let Ok(segment) = Segment::new(bytes) else { return };
    let mut again = Vec::new();
    write_segment_head(&mut again, segment.sequence);
    let entries: Vec<_> = segment.collect();
    for entry in &entries {
        assert!(write_entry(&mut again, entry.uptime_ms, entry.payload));
    }
    assert!(again.len() <= bytes.len() + 7);
    let mut read = Segment::new(&again).expect("it was just written");
    assert!(read.by_ref().eq(entries));
    assert_eq!(read.damaged_bytes(), 0);
});
