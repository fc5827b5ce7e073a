//! A hosts file: what is found in it are addresses of the names and names of the addresses.
#![no_main]

use libfuzzer_sys::fuzz_target;
use steadfast_access::{Fact, HostsFile, Subject};

fuzz_target!(|text: &str| {
    let file = HostsFile::parse(text);
    assert!(file.difference(&file).is_empty());
    for subject in file.difference(&HostsFile::default()) {
        match (&subject, file.find(&subject).expect("it is in the file")) {
            (Subject::Host(host), Fact::Addresses(addresses)) => {
                for address in addresses {
                    assert_eq!(address, address.to_canonical());
                    let Some(Fact::Names(names)) = file.find(&Subject::Client(address)) else {
                        panic!("{address} has no name")
                    };
                    assert!(names.contains(host));
                }
            }
            (Subject::Client(_), Fact::Names(names)) => assert!(!names.is_empty()),
            (subject, fact) => panic!("{fact:?} about {subject}"),
        }
    }
});
