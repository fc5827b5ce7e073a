//! A wanted state: once its operations are done, nothing is left to do.
#![no_main]

use libfuzzer_sys::fuzz_target;
use steadfast_catalog::manage::{Batch, DefaultsSpec};
use steadfast_catalog::{Catalog, GroupFile, Wanted};

// A file, and behind a zero the text of a group that is there before.
fuzz_target!(|input: &[u8]| {
    let Ok(input) = std::str::from_utf8(input) else { return };
    let (text, before) = input.split_once('\0').unwrap_or((input, ""));
    let (wanted, errors) = Wanted::parse(text);
    assert!(errors.is_sorted_by_key(|error| error.place));
    let lines = text.split('\n').count();
    for error in errors {
        assert!(error.place.line <= lines, "{error}");
        assert!(!error.to_string().contains('\n'), "{error}");
    }
    let mut catalog = Catalog::new("shares.d", DefaultsSpec::default(), Vec::new());
    catalog.insert(GroupFile::parse("g", before));
    let operations = wanted.operations(&catalog);
    if catalog.apply(&Batch { operations, ..Batch::default() }).is_ok() {
        assert_eq!(wanted.operations(&catalog), []);
    }
});
