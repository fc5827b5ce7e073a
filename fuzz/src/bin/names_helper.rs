//! Lines between a server and its helper: what is read is written alike.
#![no_main]

use libfuzzer_sys::fuzz_target;
use steadfast_access::helper::{Answer, Question};

fuzz_target!(|bytes: &[u8]| {
    if let Ok(question) = Question::of_line(bytes) {
        let line = question.to_line();
        assert_eq!(Question::of_line(line.strip_suffix(b"\n").expect("its end")), Ok(question));
    }
    if let Ok(answer) = Answer::of_line(bytes) {
        let line = answer.to_line();
        assert!(!line[..line.len() - 1].contains(&b'\n'), "one line");
        assert_eq!(Answer::of_line(line.strip_suffix(b"\n").expect("its end")), Ok(answer));
    }
});
