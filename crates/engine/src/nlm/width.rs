//! The two forms of NLM's messages: numbers of 32 bits (versions 1 and 3) and of 64 (version 4).

use steadfast_wire::nlm::{v1, v4};
use steadfast_xdr::{Decode, Encode, Reader, Writer, XdrError};

/// A form of the messages. All arguments are read as those of version 4.
pub(super) trait Width {
    fn test_args<'a>(r: &mut Reader<'a>) -> Result<v4::TestArgs<'a>, XdrError>;
    fn lock_args<'a>(r: &mut Reader<'a>) -> Result<v4::LockArgs<'a>, XdrError>;
    fn cancel_args<'a>(r: &mut Reader<'a>) -> Result<v4::CancelArgs<'a>, XdrError>;
    fn unlock_args<'a>(r: &mut Reader<'a>) -> Result<v4::UnlockArgs<'a>, XdrError>;
    fn share_args<'a>(r: &mut Reader<'a>) -> Result<v4::ShareArgs<'a>, XdrError>;
    fn test_res(res: &v4::TestRes<'_>, w: &mut Writer<'_>);
    fn res(res: &v4::Res<'_>, w: &mut Writer<'_>);
}

/// Version 4.
pub(super) struct Wide;

impl Width for Wide {
    fn test_args<'a>(r: &mut Reader<'a>) -> Result<v4::TestArgs<'a>, XdrError> {
        Decode::decode(r)
    }

    fn lock_args<'a>(r: &mut Reader<'a>) -> Result<v4::LockArgs<'a>, XdrError> {
        Decode::decode(r)
    }

    fn cancel_args<'a>(r: &mut Reader<'a>) -> Result<v4::CancelArgs<'a>, XdrError> {
        Decode::decode(r)
    }

    fn unlock_args<'a>(r: &mut Reader<'a>) -> Result<v4::UnlockArgs<'a>, XdrError> {
        Decode::decode(r)
    }

    fn share_args<'a>(r: &mut Reader<'a>) -> Result<v4::ShareArgs<'a>, XdrError> {
        Decode::decode(r)
    }

    fn test_res(res: &v4::TestRes<'_>, w: &mut Writer<'_>) {
        res.encode(w);
    }

    fn res(res: &v4::Res<'_>, w: &mut Writer<'_>) {
        res.encode(w);
    }
}

/// Versions 1 and 3, which know fewer statuses.
pub(super) struct Narrow;

impl Width for Narrow {
    fn test_args<'a>(r: &mut Reader<'a>) -> Result<v4::TestArgs<'a>, XdrError> {
        v1::TestArgs::decode(r).map(Into::into)
    }

    fn lock_args<'a>(r: &mut Reader<'a>) -> Result<v4::LockArgs<'a>, XdrError> {
        v1::LockArgs::decode(r).map(Into::into)
    }

    fn cancel_args<'a>(r: &mut Reader<'a>) -> Result<v4::CancelArgs<'a>, XdrError> {
        v1::CancelArgs::decode(r).map(Into::into)
    }

    fn unlock_args<'a>(r: &mut Reader<'a>) -> Result<v4::UnlockArgs<'a>, XdrError> {
        v1::UnlockArgs::decode(r).map(Into::into)
    }

    fn share_args<'a>(r: &mut Reader<'a>) -> Result<v4::ShareArgs<'a>, XdrError> {
        v1::ShareArgs::decode(r).map(Into::into)
    }

    fn test_res(res: &v4::TestRes<'_>, w: &mut Writer<'_>) {
        match *res {
            v4::TestRes::Denied { cookie, holder } => {
                v1::TestRes::Denied { cookie, holder: holder.into() }.encode(w);
            }
            v4::TestRes::Other(res) => Self::res(&res, w),
        }
    }

    fn res(res: &v4::Res<'_>, w: &mut Writer<'_>) {
        v4::Res { stat: res.stat.narrowed(), ..*res }.encode(w);
    }
}

/// Declares arguments of a procedure that come in both forms.
macro_rules! arguments {
    ($($name:ident: $read:ident;)*) => {$(
        pub(super) struct $name<'a, W>(pub(super) v4::$name<'a>, std::marker::PhantomData<W>);

        impl<'a, W: Width> Decode<'a> for $name<'a, W> {
            fn decode(r: &mut Reader<'a>) -> Result<Self, XdrError> {
                W::$read(r).map(|arguments| Self(arguments, std::marker::PhantomData))
            }
        }
    )*};
}

arguments! {
    TestArgs: test_args;
    LockArgs: lock_args;
    CancelArgs: cancel_args;
    UnlockArgs: unlock_args;
    ShareArgs: share_args;
}
