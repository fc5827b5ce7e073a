//! The XDR reader: the first bytes, up to a zero, are steps; the rest is read by them.
#![no_main]

use libfuzzer_sys::fuzz_target;
use steadfast_xdr::Reader;

fuzz_target!(|input: &[u8]| {
    let end = input.iter().position(|byte| *byte == 0).unwrap_or(input.len());
    let (steps, bytes) = input.split_at(end);
    let mut r = Reader::new(bytes);
    for step in steps {
        let before = r.position();
        let bound = usize::from(step >> 4);
        let bound = if bound == 15 { usize::MAX } else { bound };
        let padded = |length: usize| length.div_ceil(4) * 4;
        let read = match step & 0xf {
            0 | 1 => r.u32().map(|_| 4),
            2 => r.i32().map(|_| 4),
            3 => r.u64().map(|_| 8),
            4 => r.i64().map(|_| 8),
            5 => r.bool().map(|_| 4),
            6 | 7 => r.fixed_opaque(bound).map(|data| {
                assert_eq!(data.len(), bound);
                padded(bound)
            }),
            8 => r.array::<5>().map(|_| 8),
            9..=12 => r.opaque(bound).map(|data| {
                assert!(data.len() <= bound);
                4 + padded(data.len())
            }),
            _ => r.optional(|r| r.opaque(bound)).map(|value| match value {
                Some(data) => 8 + padded(data.len()),
                None => 4,
            }),
        };
        assert_eq!(r.position() + r.remaining(), bytes.len());
        match read {
            Ok(read) => assert_eq!(r.position() - before, read),
            Err(_) => assert!(r.position() >= before),
        }
    }
});
