//! A netgroup file: however netgroups are nested, they expand to what is in them, once.
#![no_main]

use libfuzzer_sys::fuzz_target;
use steadfast_access::NetgroupFile;

fuzz_target!(|text: &str| {
    let file = NetgroupFile::parse(text);
    assert!(file.difference(&file).is_empty());
    for netgroup in file.difference(&NetgroupFile::default()) {
        let (members, elsewhere) = file.expand(&netgroup).expect("it is in the file");
        assert!(members.hosts.is_sorted() && members.addresses.is_sorted());
        assert!(members.hosts.windows(2).all(|pair| pair[0] != pair[1]));
        assert!(elsewhere.iter().all(|nested| file.expand(nested).is_none()));
    }
});
