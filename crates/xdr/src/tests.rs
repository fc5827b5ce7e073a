//! Property ring of the primitives: what is written is read again, everything cut off is
//! refused, and no bytes at all make the reader panic or read beyond its end.
#![allow(clippy::unwrap_used)]

use proptest::prelude::*;

use super::{Decode, Encode, Reader, Writer, XdrError};

fn written(value: &impl Encode) -> Vec<u8> {
    let mut bytes = Vec::new();
    value.encode(&mut Writer::new(&mut bytes));
    bytes
}

fn there_and_back<T>(value: T) -> Result<(), TestCaseError>
where
    T: Encode + for<'a> Decode<'a> + PartialEq + std::fmt::Debug,
{
    let bytes = written(&value);
    prop_assert_eq!(bytes.len() % 4, 0);
    let mut r = Reader::new(&bytes);
    prop_assert_eq!(T::decode(&mut r), Ok(value));
    prop_assert!(r.is_empty());
    for cut in 0..bytes.len() {
        let result = T::decode(&mut Reader::new(&bytes[..cut]));
        prop_assert_eq!(result.unwrap_err(), XdrError::Truncated);
    }
    Ok(())
}

/// One step of reading, whatever the bytes are.
#[derive(Clone, Copy, Debug)]
enum Step {
    U32,
    I32,
    U64,
    I64,
    Bool,
    Fixed(usize),
    Array,
    Opaque(usize),
    Optional,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        Just(Step::U32),
        Just(Step::I32),
        Just(Step::U64),
        Just(Step::I64),
        Just(Step::Bool),
        prop_oneof![0_usize..40, Just(usize::MAX), Just(usize::MAX - 3)].prop_map(Step::Fixed),
        Just(Step::Array),
        prop_oneof![0_usize..40, Just(usize::MAX)].prop_map(Step::Opaque),
        Just(Step::Optional),
    ]
}

proptest! {
    #[test]
    fn numbers_come_back(a: u32, b: i32, c: u64, d: i64, e: bool) {
        there_and_back(a)?;
        there_and_back(b)?;
        there_and_back(c)?;
        there_and_back(d)?;
        there_and_back(e)?;
        there_and_back(Some(a))?;
        there_and_back(Some(Some(c)))?;
        there_and_back(None::<u64>)?;
    }

    #[test]
    fn fixed_opaque_data_comes_back(a: [u8; 1], b: [u8; 7], c: [u8; 8]) {
        there_and_back(a)?;
        there_and_back(b)?;
        there_and_back(c)?;
    }

    #[test]
    fn opaque_data_comes_back_and_no_longer_than_its_bound(
        data in prop::collection::vec(any::<u8>(), 0..70),
        room in 0_usize..8,
    ) {
        let mut bytes = Vec::new();
        Writer::new(&mut bytes).opaque(&data);
        prop_assert_eq!(bytes.len() % 4, 0);
        let mut r = Reader::new(&bytes);
        prop_assert_eq!(r.opaque(data.len() + room), Ok(&data[..]));
        prop_assert!(r.is_empty());
        for cut in 0..bytes.len() {
            prop_assert_eq!(Reader::new(&bytes[..cut]).opaque(100), Err(XdrError::Truncated));
        }
        if let Some(max) = data.len().checked_sub(room + 1) {
            let refused = Err(XdrError::TooLong { length: data.len() as u32, max: max as u32 });
            prop_assert_eq!(Reader::new(&bytes).opaque(max), refused);
        }
    }

    #[test]
    fn any_bytes_can_be_read(
        bytes in prop::collection::vec(prop_oneof![3 => Just(0_u8), 1 => 0_u8..4, 1 => any::<u8>()], 0..80),
        steps in prop::collection::vec(step(), 0..20),
    ) {
        let mut r = Reader::new(&bytes);
        for step in steps {
            let before = r.position();
            let result = match step {
                Step::U32 => r.u32().map(|_| 4),
                Step::I32 => r.i32().map(|_| 4),
                Step::U64 => r.u64().map(|_| 8),
                Step::I64 => r.i64().map(|_| 8),
                Step::Bool => r.bool().map(|_| 4),
                Step::Fixed(length) => r.fixed_opaque(length).map(|data| data.len().div_ceil(4) * 4),
                Step::Array => r.array::<6>().map(|_| 8),
                Step::Opaque(max) => r.opaque(max).map(|data| 4 + data.len().div_ceil(4) * 4),
                Step::Optional => r.optional(Reader::u64).map(|v| if v.is_some() { 12 } else { 4 }),
            };
            prop_assert_eq!(r.position() + r.remaining(), bytes.len());
            match result {
                Ok(read) => prop_assert_eq!(r.position() - before, read),
                Err(_) => prop_assert!(r.position() >= before),
            }
        }
    }
}

#[test]
fn a_boolean_is_zero_or_one() {
    let two = 2_u32.to_be_bytes();
    let refused = XdrError::BadValue { what: "bool", value: 2 };
    assert_eq!(Reader::new(&two).bool(), Err(refused));
    assert_eq!(Reader::new(&two).optional(Reader::u32), Err(refused));
}

#[test]
fn bytes_are_as_rfc_4506_has_them() {
    let mut bytes = Vec::new();
    let mut w = Writer::new(&mut bytes);
    w.i32(-2);
    w.u64(0x0102_0304_0506_0708);
    w.opaque(b"hello");
    assert_eq!(
        bytes,
        *b"\xff\xff\xff\xfe\x01\x02\x03\x04\x05\x06\x07\x08\x00\x00\x00\x05hello\x00\x00\x00"
    );
}
