//! The history of shares: a line that is right is read as it was written, and nothing of a damaged
//! one is believed.
#![no_main]

use libfuzzer_sys::fuzz_target;
use steadfast_catalog::manage::DefaultsSpec;
use steadfast_catalog::{Catalog, planned};
use steadfast_fuzz::history::{Line, scan};

// A file; behind a zero lines without checksums, which get them.
fuzz_target!(|input: &[u8]| {
    let mut parts = input.splitn(2, |byte| *byte == 0);
    let mut file = parts.next().unwrap_or_default().to_vec();
    for line in parts.next().unwrap_or_default().split(|byte| *byte == b'\n') {
        if let Ok(line) = serde_json::from_slice::<Line>(line) {
            let encoded = line.encode().expect("a line");
            assert_eq!(Line::decode(&encoded[..encoded.len() - 1]), Ok(line));
            file.extend(encoded);
        }
    }
    let scanned = scan(&file);
    assert!(scanned.valid_bytes as usize <= file.len());
    let mut catalog = Catalog::new("shares.d", DefaultsSpec::default(), Vec::new());
    for found in scanned.lines {
        let bytes = &file[found.offset as usize..(found.offset + found.bytes) as usize];
        assert_eq!(Line::decode(&bytes[..bytes.len() - 1]).as_ref(), Ok(&found.line));
        if let Line::Record(record) = found.line {
            planned(&record.edits);
            catalog.put_all(&record.edits);
        }
    }
    catalog.mistakes();
});
