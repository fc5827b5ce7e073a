//! Captured packets, from link headers to the operations of COMPOUNDs: rows of packets with whatever bytes, and of
//! messages by UDP and by a TCP stream that has gaps. No more calls than messages are told.
#![no_main]

use libfuzzer_sys::fuzz_target;
use steadfast_fuzz::capture;

fuzz_target!(|input: &[u8]| capture::packets(input));
