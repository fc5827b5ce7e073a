//! Bounded XDR reader and writer (RFC 4506).
//!
//! [`Reader`] borrows from the bytes it is given and never allocates for a length that was only
//! announced; [`Writer`] appends to a `Vec`. Types of messages implement [`Encode`] and
//! [`Decode`]. This crate knows no protocol and must never panic on any input.
#![forbid(unsafe_code)]

/// Why bytes could not be decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum XdrError {
    /// The bytes end before the value does.
    #[error("the message ends early")]
    Truncated,
    /// A length exceeds its bound.
    #[error("a length of {length} exceeds the bound of {max}")]
    TooLong {
        /// The length announced.
        length: u32,
        /// The bound.
        max: u32,
    },
    /// A number that is none of an enumeration's or union's.
    #[error("{value} is not a value of {what}")]
    BadValue {
        /// The enumeration.
        what: &'static str,
        /// The number.
        value: u32,
    },
}

/// A value that can be written.
pub trait Encode {
    /// Appends the value.
    fn encode(&self, w: &mut Writer<'_>);
}

/// A value that can be read, borrowing from the bytes.
pub trait Decode<'a>: Sized {
    /// Reads the value.
    fn decode(r: &mut Reader<'a>) -> Result<Self, XdrError>;
}

/// Reads from bytes.
#[derive(Clone, Debug)]
pub struct Reader<'a> {
    all: &'a [u8],
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    /// A reader of these bytes.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { all: bytes, rest: bytes }
    }

    /// How many bytes were read.
    pub fn position(&self) -> usize {
        self.all.len() - self.rest.len()
    }

    /// How many bytes remain.
    pub fn remaining(&self) -> usize {
        self.rest.len()
    }

    /// Whether none remain.
    pub fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    #[inline]
    fn take<const N: usize>(&mut self) -> Result<[u8; N], XdrError> {
        let (taken, rest) = self.rest.split_first_chunk::<N>().ok_or(XdrError::Truncated)?;
        self.rest = rest;
        Ok(*taken)
    }

    /// An unsigned integer.
    #[inline]
    pub fn u32(&mut self) -> Result<u32, XdrError> {
        self.take().map(u32::from_be_bytes)
    }

    /// An integer.
    #[inline]
    pub fn i32(&mut self) -> Result<i32, XdrError> {
        self.take().map(i32::from_be_bytes)
    }

    /// An unsigned hyper integer.
    #[inline]
    pub fn u64(&mut self) -> Result<u64, XdrError> {
        self.take().map(u64::from_be_bytes)
    }

    /// A hyper integer.
    #[inline]
    pub fn i64(&mut self) -> Result<i64, XdrError> {
        self.take().map(i64::from_be_bytes)
    }

    /// A boolean: 0 or 1, nothing else.
    #[inline]
    pub fn bool(&mut self) -> Result<bool, XdrError> {
        match self.u32()? {
            0 => Ok(false),
            1 => Ok(true),
            value => Err(XdrError::BadValue { what: "bool", value }),
        }
    }

    /// Fixed-length opaque data, with its padding.
    #[inline]
    pub fn fixed_opaque(&mut self, length: usize) -> Result<&'a [u8], XdrError> {
        let (data, rest) = self.rest.split_at_checked(length).ok_or(XdrError::Truncated)?;
        let padding = length.wrapping_neg() % 4;
        let (_, rest) = rest.split_at_checked(padding).ok_or(XdrError::Truncated)?;
        self.rest = rest;
        Ok(data)
    }

    /// Fixed-length opaque data of a length known to the type.
    #[inline]
    pub fn array<const N: usize>(&mut self) -> Result<[u8; N], XdrError> {
        let data = self.fixed_opaque(N)?;
        data.first_chunk::<N>().copied().ok_or(XdrError::Truncated)
    }

    /// Variable-length opaque data of at most `max` bytes.
    #[inline]
    pub fn opaque(&mut self, max: usize) -> Result<&'a [u8], XdrError> {
        let length = self.u32()?;
        if length as usize > max {
            return Err(XdrError::TooLong { length, max: u32::try_from(max).unwrap_or(u32::MAX) });
        }
        self.fixed_opaque(length as usize)
    }

    /// Optional data.
    #[inline]
    pub fn optional<T>(
        &mut self,
        read: impl FnOnce(&mut Self) -> Result<T, XdrError>,
    ) -> Result<Option<T>, XdrError> {
        if self.bool()? { read(self).map(Some) } else { Ok(None) }
    }
}

/// Appends to bytes.
#[derive(Debug)]
pub struct Writer<'b> {
    bytes: &'b mut Vec<u8>,
}

impl<'b> Writer<'b> {
    /// A writer that appends to `bytes`.
    #[inline]
    pub fn new(bytes: &'b mut Vec<u8>) -> Self {
        Self { bytes }
    }

    /// How many bytes there are.
    pub fn position(&self) -> usize {
        self.bytes.len()
    }

    /// An unsigned integer.
    #[inline]
    pub fn u32(&mut self, value: u32) {
        self.bytes.extend_from_slice(&value.to_be_bytes());
    }

    /// An integer.
    #[inline]
    pub fn i32(&mut self, value: i32) {
        self.bytes.extend_from_slice(&value.to_be_bytes());
    }

    /// An unsigned hyper integer.
    #[inline]
    pub fn u64(&mut self, value: u64) {
        self.bytes.extend_from_slice(&value.to_be_bytes());
    }

    /// A hyper integer.
    #[inline]
    pub fn i64(&mut self, value: i64) {
        self.bytes.extend_from_slice(&value.to_be_bytes());
    }

    /// A boolean.
    #[inline]
    pub fn bool(&mut self, value: bool) {
        self.u32(u32::from(value));
    }

    /// This many bytes of zero.
    #[inline]
    pub fn zeros(&mut self, count: usize) {
        self.bytes.resize(self.bytes.len() + count, 0);
    }

    /// Fixed-length opaque data, with its padding.
    #[inline]
    pub fn fixed_opaque(&mut self, data: &[u8]) {
        self.bytes.extend_from_slice(data);
        self.zeros(data.len().wrapping_neg() % 4);
    }

    /// Variable-length opaque data that is written piece by piece.
    #[inline]
    pub fn opaque_of(&mut self, write: impl FnOnce(&mut Self)) {
        self.u32(0);
        let start = self.bytes.len();
        write(self);
        let length = self.bytes.len().saturating_sub(start);
        let place = self.bytes.get_mut(start.saturating_sub(4)..);
        if let Some(place) = place.and_then(<[u8]>::first_chunk_mut::<4>) {
            *place = (length as u32).to_be_bytes();
        }
        self.zeros(length.wrapping_neg() % 4);
    }

    /// Variable-length opaque data.
    #[inline]
    pub fn opaque(&mut self, data: &[u8]) {
        self.u32(data.len() as u32);
        self.fixed_opaque(data);
    }
}

macro_rules! primitives {
    ($($type:ident)*) => {$(
        impl Encode for $type {
            #[inline]
            fn encode(&self, w: &mut Writer<'_>) {
                w.$type(*self);
            }
        }

        impl<'a> Decode<'a> for $type {
            #[inline]
            fn decode(r: &mut Reader<'a>) -> Result<Self, XdrError> {
                r.$type()
            }
        }
    )*};
}

primitives! { u32 i32 u64 i64 bool }

/// Fixed-length opaque data, padded.
impl<const N: usize> Encode for [u8; N] {
    #[inline]
    fn encode(&self, w: &mut Writer<'_>) {
        w.fixed_opaque(self);
    }
}

impl<'a, const N: usize> Decode<'a> for [u8; N] {
    #[inline]
    fn decode(r: &mut Reader<'a>) -> Result<Self, XdrError> {
        r.array()
    }
}

/// Optional data: a boolean, and the value after `true`.
impl<T: Encode> Encode for Option<T> {
    #[inline]
    fn encode(&self, w: &mut Writer<'_>) {
        w.bool(self.is_some());
        if let Some(value) = self {
            value.encode(w);
        }
    }
}

impl<'a, T: Decode<'a>> Decode<'a> for Option<T> {
    #[inline]
    fn decode(r: &mut Reader<'a>) -> Result<Self, XdrError> {
        r.optional(T::decode)
    }
}

#[cfg(test)]
mod tests;
