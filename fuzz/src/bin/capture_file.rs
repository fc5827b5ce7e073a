//! Files of packets, pcap and pcapng: packets lie inside the file, and reading ends.
#![no_main]

use libfuzzer_sys::fuzz_target;
use steadfast_observe::capture::file::PacketFile;

fuzz_target!(|input: &[u8]| {
    let Ok(mut file) = PacketFile::new(input) else { return };
    let mut bytes = 0;
    while let Ok(Some(packet)) = file.next_packet() {
        // Each has a head of 16 bytes at the least.
        bytes += 16 + packet.bytes.len();
        assert!(bytes <= input.len());
    }
    let _ = (file.dropped(), file.left_out(), file.is_cut());
});
