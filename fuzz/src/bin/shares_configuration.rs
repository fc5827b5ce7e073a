//! The configuration file's text, and client patterns.
#![no_main]

use libfuzzer_sys::fuzz_target;
use steadfast_catalog::Configuration;
use steadfast_catalog::configuration::ERRORS_MAX;
use steadfast_shares::ClientPattern;

fuzz_target!(|input: &[u8]| {
    let Ok(text) = std::str::from_utf8(input) else { return };
    match Configuration::parse(text) {
        Ok(configuration) => {
            let mut paths: Vec<_> =
                configuration.shares.iter().map(|settings| &settings.share.path).collect();
            paths.sort();
            assert!(paths.windows(2).all(|pair| pair[0] != pair[1]), "a path shared twice");
            assert!(paths.iter().all(|path| path.starts_with('/')), "a path without root");
        }
        Err(errors) => {
            assert!((1..=ERRORS_MAX).contains(&errors.len()));
            assert!(errors.is_sorted_by_key(|error| error.place));
            let lines = text.split('\n').count();
            for error in &errors {
                assert!((1..=lines).contains(&error.place.line), "{error}");
                assert!(error.place.column >= 1);
                assert!(!error.to_string().contains('\n'), "{error}");
            }
        }
    }
    for line in text.lines() {
        if let Ok(pattern) = line.parse::<ClientPattern>() {
            assert_eq!(pattern.to_string().parse(), Ok(pattern));
        }
    }
});
