//! exports(5): whatever is imported is served, and means the same when it is exported and
//! imported again, unless something is said about it.
#![no_main]

use libfuzzer_sys::fuzz_target;
use steadfast_catalog::Catalog;
use steadfast_catalog::exports::{export, import};
use steadfast_catalog::manage::{Batch, DefaultsSpec};
use steadfast_shares::{Inherited, Share};

fn made(text: &str) -> (Vec<Share>, usize) {
    let imported = import(&[("exports", text)], "g", true, &Inherited::default(), &|_| None);
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
    let shares = catalog.all_served().map(|share| Share::clone(share)).collect();
    (shares, imported.mistakes.len())
}

fuzz_target!(|text: &str| {
    let (shares, _) = made(text);
    let exported = export(&shares);
    if exported.warnings.is_empty() {
        let (again, mistakes) = made(&exported.text);
        assert_eq!(mistakes, 0, "{}", exported.text);
        assert_eq!(again, shares, "{}", exported.text);
    }
});
