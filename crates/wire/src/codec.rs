//! How message types are declared: one list of fields is the type, its reader and its writer, so
//! that the two cannot drift apart.

use std::marker::PhantomData;

use smallvec::{Array, SmallVec};
use steadfast_xdr::{Decode, Encode, Reader, Writer, XdrError};

/// Data whose length has a bound.
///
/// Reading refuses more than the bound; writing writes what it is given, so that tests can make
/// messages that must be refused.
pub(crate) trait Bounded<'a>: Sized {
    fn decode_bounded(r: &mut Reader<'a>, max: usize) -> Result<Self, XdrError>;
    fn encode_bounded(&self, w: &mut Writer<'_>);
}

impl<'a> Bounded<'a> for &'a [u8] {
    #[inline]
    fn decode_bounded(r: &mut Reader<'a>, max: usize) -> Result<Self, XdrError> {
        r.opaque(max)
    }

    #[inline]
    fn encode_bounded(&self, w: &mut Writer<'_>) {
        w.opaque(self);
    }
}

/// A counted array. Room grows with the elements that came, not by the count announced.
impl<'a, T: Decode<'a> + Encode> Bounded<'a> for Vec<T> {
    fn decode_bounded(r: &mut Reader<'a>, max: usize) -> Result<Self, XdrError> {
        let length = r.u32()?;
        if length as usize > max {
            return Err(XdrError::TooLong { length, max: u32::try_from(max).unwrap_or(u32::MAX) });
        }
        let mut elements = Vec::new();
        for _ in 0..length {
            elements.push(T::decode(r)?);
        }
        Ok(elements)
    }

    fn encode_bounded(&self, w: &mut Writer<'_>) {
        w.u32(self.len() as u32);
        for element in self {
            element.encode(w);
        }
    }
}

/// A counted array that is short most of the time.
impl<'a, A: Array<Item: Decode<'a> + Encode>> Bounded<'a> for SmallVec<A> {
    #[inline]
    fn decode_bounded(r: &mut Reader<'a>, max: usize) -> Result<Self, XdrError> {
        let length = r.u32()?;
        if length as usize > max {
            return Err(XdrError::TooLong { length, max: u32::try_from(max).unwrap_or(u32::MAX) });
        }
        let mut elements = Self::new();
        for _ in 0..length {
            elements.push(Decode::decode(r)?);
        }
        Ok(elements)
    }

    #[inline]
    fn encode_bounded(&self, w: &mut Writer<'_>) {
        w.u32(self.len() as u32);
        for element in self {
            element.encode(w);
        }
    }
}

/// A linked list as XDR has it (RFC 4506 §4.19, "optional data"): each element after a `true`,
/// the end a `false`. Bounded by the message it is read from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct List<T>(pub Vec<T>);

impl<'a, T: Decode<'a>> Decode<'a> for List<T> {
    fn decode(r: &mut Reader<'a>) -> Result<Self, XdrError> {
        ListReader::new(r).collect::<Result<_, _>>().map(Self)
    }
}

impl<T: Encode> Encode for List<T> {
    fn encode(&self, w: &mut Writer<'_>) {
        let mut list = ListWriter::new(w);
        for element in &self.0 {
            list.push(element);
        }
        list.end();
    }
}

/// Reads a [`List`] element by element, up to its end or the first error.
#[derive(Debug)]
pub struct ListReader<'r, 'a, T> {
    r: &'r mut Reader<'a>,
    has_ended: bool,
    element: PhantomData<T>,
}

impl<'r, 'a, T: Decode<'a>> ListReader<'r, 'a, T> {
    /// At the list's beginning.
    pub fn new(r: &'r mut Reader<'a>) -> Self {
        Self { r, has_ended: false, element: PhantomData }
    }
}

impl<'a, T: Decode<'a>> Iterator for ListReader<'_, 'a, T> {
    type Item = Result<T, XdrError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.has_ended {
            return None;
        }
        let element = match self.r.bool() {
            Ok(true) => Some(T::decode(self.r)),
            Ok(false) => None,
            Err(error) => Some(Err(error)),
        };
        self.has_ended = !matches!(element, Some(Ok(_)));
        element
    }
}

/// Writes a [`List`] of elements that are made one by one.
#[derive(Debug)]
pub struct ListWriter<'w, 'b>(&'w mut Writer<'b>);

impl<'w, 'b> ListWriter<'w, 'b> {
    /// At the list's beginning.
    pub fn new(w: &'w mut Writer<'b>) -> Self {
        Self(w)
    }

    /// The next element.
    #[inline]
    pub fn push(&mut self, element: &impl Encode) {
        self.0.bool(true);
        element.encode(self.0);
    }

    /// No element follows. A list without this is none.
    pub fn end(self) {
        self.0.bool(false);
    }
}

/// Declares a structure whose fields follow each other on the wire. `field: TYPE; max BYTES`
/// bounds opaque data and counted arrays. `bytes BYTES;` before it says how long each value is: then
/// the reader looks once whether all is there, and not at each field. Of attributes that is the most of
/// the time that they take.
macro_rules! structure {
    (
        $(bytes $bytes:literal;)?
        $(#[$meta:meta])*
        pub struct $name:ident $(<$life:lifetime>)? {
            $($(#[$field_meta:meta])* pub $field:ident: $type:ty $(; max $max:expr)?,)*
        }
    ) => {
        $(#[$meta])*
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub struct $name $(<$life>)? {
            $($(#[$field_meta])* pub $field: $type,)*
        }

        impl<'a> ::steadfast_xdr::Decode<'a> for $name $(<$life>)? {
            #[inline]
            fn decode(
                r: &mut ::steadfast_xdr::Reader<'a>,
            ) -> Result<Self, ::steadfast_xdr::XdrError> {
                $crate::codec::piece!(r $(, $bytes)?);
                Ok(Self { $($field: $crate::codec::read!(r $(, $max)?),)* })
            }
        }

        impl $(<$life>)? ::steadfast_xdr::Encode for $name $(<$life>)? {
            #[inline]
            fn encode(&self, w: &mut ::steadfast_xdr::Writer<'_>) {
                $($crate::codec::write!(w, self.$field $(, $max)?);)*
            }
        }
    };
}

/// Makes the reader one of so many bytes alone.
macro_rules! piece {
    ($r:ident) => {};
    ($r:ident, $bytes:expr) => {
        let bytes: [u8; $bytes] = $r.array()?;
        let mut piece = ::steadfast_xdr::Reader::new(&bytes);
        let $r = &mut piece;
    };
}

macro_rules! read {
    ($r:ident) => {
        ::steadfast_xdr::Decode::decode($r)?
    };
    ($r:ident, $max:expr) => {
        $crate::codec::Bounded::decode_bounded($r, $max)?
    };
}

macro_rules! write {
    ($w:ident, $value:expr) => {
        ::steadfast_xdr::Encode::encode(&$value, $w)
    };
    ($w:ident, $value:expr, $max:expr) => {
        $crate::codec::Bounded::encode_bounded(&$value, $w)
    };
}

/// Declares an enumeration: its numbers, and nothing else, are read.
macro_rules! numbers {
    (
        $(#[$meta:meta])*
        pub enum $name:ident, $what:literal {
            $($(#[$variant_meta:meta])* $variant:ident = $value:literal,)*
        }
    ) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u32)]
        pub enum $name { $($(#[$variant_meta])* $variant = $value,)* }

        impl $name {
            /// Every value.
            pub const ALL: &'static [Self] = &[$(Self::$variant),*];
        }

        impl<'a> ::steadfast_xdr::Decode<'a> for $name {
            #[inline]
            fn decode(
                r: &mut ::steadfast_xdr::Reader<'a>,
            ) -> Result<Self, ::steadfast_xdr::XdrError> {
                match r.u32()? {
                    $($value => Ok(Self::$variant),)*
                    value => Err(::steadfast_xdr::XdrError::BadValue { what: $what, value }),
                }
            }
        }

        impl ::steadfast_xdr::Encode for $name {
            #[inline]
            fn encode(&self, w: &mut ::steadfast_xdr::Writer<'_>) {
                w.u32(*self as u32);
            }
        }
    };
}

pub(crate) use {numbers, piece, read, structure, write};
