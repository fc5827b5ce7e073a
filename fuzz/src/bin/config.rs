//! The configuration file: any text gives a configuration, or mistakes that are within it, in
//! order, and each on one line.
#![no_main]

use libfuzzer_sys::fuzz_target;
use steadfast_catalog::Configuration;
use steadfast_catalog::configuration::ERRORS_MAX;

fuzz_target!(|text: &str| {
    let Err(errors) = Configuration::parse(text) else { return };
    assert!(!errors.is_empty() && errors.len() <= ERRORS_MAX);
    assert!(errors.is_sorted_by_key(|error| error.place));
    for error in errors {
        let line = text.split('\n').nth(error.place.line - 1).expect("a line of the text");
        assert!(error.place.column >= 1 && error.place.column <= line.chars().count() + 1);
        assert_eq!(error.to_string().lines().count(), 1);
    }
});
