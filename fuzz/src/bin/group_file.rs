//! The file of a group, and operations on it: a batch is done wholly or not at all, what it did
//! can be taken back to the byte, and the text says what is served.
#![no_main]

use libfuzzer_sys::fuzz_target;
use steadfast_catalog::manage::{Batch, DefaultsSpec, Operation};
use steadfast_catalog::{Catalog, GroupFile};

fn catalog(text: &str) -> Catalog {
    let defaults = DefaultsSpec { options: Vec::new(), clients: vec!["*".to_owned()] };
    let mut catalog = Catalog::new("shares.d", defaults, Vec::new());
    catalog.insert(GroupFile::parse("g", text));
    catalog
}

fn text_of(catalog: &Catalog) -> Option<String> {
    catalog.file("g").map(GroupFile::text)
}

fn paths(catalog: &Catalog) -> Vec<String> {
    let mut paths: Vec<_> = catalog.all_served().map(|share| share.path.to_string()).collect();
    paths.sort();
    paths
}

// A text, and behind a zero a batch's operations as JSON.
fuzz_target!(|input: &[u8]| {
    let Ok(input) = std::str::from_utf8(input) else { return };
    let (text, operations) = input.split_once('\0').unwrap_or((input, ""));
    let file = GroupFile::parse("g", text);
    let whole = file.text();
    assert!(whole == text || whole == format!("{text}\n"));
    let lines = whole.split('\n').count();
    for mistake in file.mistakes() {
        assert!(mistake.place.line <= lines, "{mistake}");
        assert!(!mistake.to_string().contains('\n'), "{mistake}");
    }
    let mut catalog = catalog(text);
    for mistake in catalog.mistakes() {
        assert!(!mistake.to_string().contains('\n'), "{mistake}");
    }
    let mut operations: Vec<Operation> = serde_json::from_str(operations).unwrap_or_default();
    // Whatever there is can be switched off.
    for path in paths(&catalog).into_iter().take(3) {
        let set = serde_json::from_str(r#"{"set": {"enabled": false}}"#).expect("changes");
        operations.push(Operation::SetShare { path, changes: set });
    }
    let before = (text_of(&catalog), paths(&catalog));
    match catalog.apply(&Batch { operations, partial: true, comment: None }) {
        Ok(applied) => {
            if let Some(text) = text_of(&catalog) {
                assert_eq!(
                    paths(&self::catalog(&text)),
                    paths(&catalog)
                        .into_iter()
                        .filter(|path| {
                            catalog
                                .shares_at(path)
                                .first()
                                .and_then(|view| view.group.clone())
                                .as_deref()
                                == Some("g")
                        })
                        .collect::<Vec<_>>()
                );
            }
            catalog.take_back(&applied.edits);
        }
        Err(mistakes) => assert!(!mistakes.is_empty()),
    }
    assert_eq!((text_of(&catalog), paths(&catalog)), before);
});
