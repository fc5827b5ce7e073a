//! The configuration of nfs-ganesha: whatever is imported is served, and whatever is told has its place.
#![no_main]

use libfuzzer_sys::fuzz_target;
use steadfast_catalog::Catalog;
use steadfast_catalog::ganesha::{import, included};
use steadfast_catalog::manage::{Batch, DefaultsSpec};
use steadfast_shares::Inherited;

fuzz_target!(|text: &str| {
    let imported = import(&[("ganesha.conf", text)], "g", true, &Inherited::default());
    let lines = text.split('\n').count();
    for mistake in imported.mistakes.iter().chain(&imported.warnings) {
        let line: usize =
            mistake.place.split(':').nth(1).expect("a line").parse().expect("a number");
        assert!((1..=lines).contains(&line), "{mistake}");
        assert!(!mistake.to_string().contains('\n'), "{mistake}");
    }
    let mut catalog = Catalog::new("shares.d", DefaultsSpec::default(), Vec::new());
    let batch = Batch { operations: imported.operations, ..Batch::default() };
    catalog.apply(&batch).expect("what is imported has no mistakes");
    for file in included(text) {
        assert!((1..=lines).contains(&file.name.place.line), "{file:?}");
    }
});
