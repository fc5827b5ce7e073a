//! How attributes that are to be set are read (`fattr4`).

use steadfast_shares::AccountKind;
use steadfast_vfs::{SetAttr, SetTime, Time};
use steadfast_wire::nfs4::{Attribute4, Bitmap4, Fattr4, NfsStat4};
use steadfast_xdr::{Reader, XdrError};

use super::acl;
use super::fattr::supported;
use crate::compound::Versions;

/// What can be set of any object.
const SETTABLE: Bitmap4 = Bitmap4::of(&[
    Attribute4::Size,
    Attribute4::Acl,
    Attribute4::Mode,
    Attribute4::Owner,
    Attribute4::OwnerGroup,
    Attribute4::TimeAccessSet,
    Attribute4::TimeModifySet,
]);

/// What can be set only of what is made, from minor version 2 on.
const ONLY_OF_NEW: Bitmap4 = Bitmap4::of(&[Attribute4::ModeUmask]);

/// What an exclusive create can set: not the times, in which its verifier is kept.
const BY_EXCLUSIVE: Bitmap4 =
    Bitmap4::of(&[Attribute4::Mode, Attribute4::Owner, Attribute4::OwnerGroup]);

/// The same in a minor version.
pub(super) fn settable_by_exclusive(minor: u32) -> Bitmap4 {
    if Versions::FROM_2.has(minor) { BY_EXCLUSIVE.or(&ONLY_OF_NEW) } else { BY_EXCLUSIVE }
}

/// Longest name of an owner that is read, in bytes.
const OWNER_BYTES_MAX: usize = 1024;
const NANOSECONDS_MAX: u32 = 999_999_999;

/// What is to be set of an object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ToSet {
    pub(super) attributes: SetAttr,
    /// The entries of its access control list.
    pub(super) acl: Option<Vec<acl::Entry>>,
}

/// Finds the number of a user or group that a client names.
pub(super) type Numbering<'n> = dyn FnMut(&[u8], AccountKind) -> Result<u32, NfsStat4> + 'n;

/// Reads what is to be set of an object, in a minor version. `number_of` knows who is named.
///
/// # Errors
/// `AttrNotSupp` for attributes and entries of lists that there are not, `Inval` for those that cannot
/// be set and for values that make no sense, `FBig` for too long a list, `BadXdr`; what `number_of` says.
pub(super) fn decode(
    attributes: &Fattr4<'_>,
    minor: u32,
    number_of: &mut Numbering<'_>,
) -> Result<ToSet, NfsStat4> {
    decode_settable(attributes, minor, &SETTABLE, number_of)
}

/// The same for an object that is made.
///
/// # Errors
/// As [`decode`].
pub(super) fn decode_new(
    attributes: &Fattr4<'_>,
    minor: u32,
    number_of: &mut Numbering<'_>,
) -> Result<ToSet, NfsStat4> {
    // Both say what its mode is (RFC 8275 §4).
    if attributes.attrmask.has(Attribute4::Mode) && attributes.attrmask.has(Attribute4::ModeUmask) {
        return Err(NfsStat4::Inval);
    }
    decode_settable(attributes, minor, &SETTABLE.or(&ONLY_OF_NEW), number_of)
}

fn decode_settable(
    attributes: &Fattr4<'_>,
    minor: u32,
    settable: &Bitmap4,
    number_of: &mut Numbering<'_>,
) -> Result<ToSet, NfsStat4> {
    let mask = &attributes.attrmask;
    if !mask.without(&supported(minor)).is_empty() {
        return Err(NfsStat4::AttrNotSupp);
    }
    if !mask.without(settable).is_empty() {
        return Err(NfsStat4::Inval);
    }
    let mut r = Reader::new(attributes.attr_vals);
    let mut set = SetAttr::default();
    if mask.has(Attribute4::Size) {
        set.size = Some(r.u64().map_err(bad)?);
    }
    let acl =
        if mask.has(Attribute4::Acl) { Some(acl::entries(&mut r, &mut *number_of)?) } else { None };
    if mask.has(Attribute4::Mode) {
        set.mode = Some(bits(&mut r, 0o7777)?);
    }
    if mask.has(Attribute4::Owner) {
        let user = r.opaque(OWNER_BYTES_MAX).map_err(bad)?;
        set.uid = Some(number_of(user, AccountKind::User)?);
    }
    if mask.has(Attribute4::OwnerGroup) {
        let group = r.opaque(OWNER_BYTES_MAX).map_err(bad)?;
        set.gid = Some(number_of(group, AccountKind::Group)?);
    }
    if mask.has(Attribute4::TimeAccessSet) {
        set.atime = set_time(&mut r)?;
    }
    if mask.has(Attribute4::TimeModifySet) {
        set.mtime = set_time(&mut r)?;
    }
    if mask.has(Attribute4::ModeUmask) {
        set.mode = Some(bits(&mut r, 0o7777)?);
        set.umask = bits(&mut r, 0o777)?;
    }
    if r.is_empty() { Ok(ToSet { attributes: set, acl }) } else { Err(NfsStat4::BadXdr) }
}

/// Bits of a mode.
fn bits(r: &mut Reader<'_>, known: u32) -> Result<u32, NfsStat4> {
    let bits = r.u32().map_err(bad)?;
    if bits & !known == 0 { Ok(bits) } else { Err(NfsStat4::Inval) }
}

fn bad(_: XdrError) -> NfsStat4 {
    NfsStat4::BadXdr
}

/// `settime4`.
fn set_time(r: &mut Reader<'_>) -> Result<SetTime, NfsStat4> {
    match r.u32().map_err(bad)? {
        0 => Ok(SetTime::ServerTime),
        1 => {
            let seconds = r.i64().map_err(bad)?;
            let nanoseconds = r.u32().map_err(bad)?;
            if nanoseconds > NANOSECONDS_MAX {
                return Err(NfsStat4::Inval);
            }
            Ok(SetTime::To(Time { seconds, nanoseconds }))
        }
        _ => Err(NfsStat4::BadXdr),
    }
}

#[cfg(test)]
mod tests {
    use steadfast_xdr::Writer;

    use super::*;

    fn decode(attributes: &Fattr4<'_>, minor: u32) -> Result<ToSet, NfsStat4> {
        super::decode(attributes, minor, &mut |_, _| Err(NfsStat4::BadOwner))
    }

    fn decode_new(attributes: &Fattr4<'_>, minor: u32) -> Result<ToSet, NfsStat4> {
        super::decode_new(attributes, minor, &mut |_, _| Err(NfsStat4::BadOwner))
    }

    #[test]
    fn whoever_is_named_is_asked_for_by_kind() {
        let mask = Bitmap4::of(&[Attribute4::Owner, Attribute4::OwnerGroup]);
        let mut vals = Vec::new();
        let mut w = Writer::new(&mut vals);
        w.opaque(b"jane");
        w.opaque(b"staff");
        let attributes = Fattr4 { attrmask: mask, attr_vals: &vals };
        let set = super::decode(&attributes, 1, &mut |who, kind| match (who, kind) {
            (b"jane", AccountKind::User) => Ok(7),
            (b"staff", AccountKind::Group) => Ok(8),
            _ => Err(NfsStat4::BadOwner),
        });
        let set = set.unwrap().attributes;
        assert_eq!((set.uid, set.gid), (Some(7), Some(8)));
        assert_eq!(decode(&attributes, 1), Err(NfsStat4::BadOwner));
    }

    #[test]
    fn values_are_read_in_the_order_of_their_numbers_and_to_the_end() {
        let mask = Bitmap4::of(&[Attribute4::Size, Attribute4::Mode, Attribute4::TimeModifySet]);
        let mut vals = Vec::new();
        let mut w = Writer::new(&mut vals);
        w.u64(7);
        w.u32(0o640);
        w.u32(1);
        w.i64(-5);
        w.u32(9);
        let of = |attr_vals: &[u8]| decode(&Fattr4 { attrmask: mask, attr_vals }, 1);
        let set = of(&vals).unwrap().attributes;
        assert_eq!((set.size, set.mode, set.atime), (Some(7), Some(0o640), SetTime::Keep));
        assert_eq!(set.mtime, SetTime::To(Time { seconds: -5, nanoseconds: 9 }));
        for cut in (0..vals.len()).step_by(4) {
            assert_eq!(of(&vals[..cut]), Err(NfsStat4::BadXdr));
        }
        vals.extend([0; 4]);
        assert_eq!(of(&vals), Err(NfsStat4::BadXdr));
    }

    #[test]
    fn what_cannot_be_set_is_refused() {
        let of = |attribute| Fattr4 { attrmask: Bitmap4::of(&[attribute]), attr_vals: &[] };
        assert_eq!(decode(&of(Attribute4::Type), 1), Err(NfsStat4::Inval));
        assert_eq!(decode(&of(Attribute4::Archive), 1), Err(NfsStat4::AttrNotSupp));
        assert_eq!(decode(&of(Attribute4::Acl), 1), Err(NfsStat4::BadXdr));
        let unknown = Fattr4 { attrmask: Bitmap4::from_words([0, 0, 1 << 31]), attr_vals: &[] };
        assert_eq!(decode(&unknown, 2), Err(NfsStat4::AttrNotSupp));
    }

    #[test]
    fn a_mode_with_a_umask_is_of_new_objects_and_of_minor_version_2() {
        let vals = b"\0\0\x0f\xff\0\0\0\x12";
        let mask = Bitmap4::of(&[Attribute4::ModeUmask]);
        let of = |attr_vals: &'static [u8]| Fattr4 { attrmask: mask, attr_vals };
        let set = decode_new(&of(vals), 2).unwrap().attributes;
        assert_eq!((set.mode, set.umask), (Some(0o7777), 0o22));
        assert_eq!(decode_new(&of(vals), 1), Err(NfsStat4::AttrNotSupp));
        assert_eq!(decode(&of(vals), 2), Err(NfsStat4::Inval));
        let both = Bitmap4::of(&[Attribute4::Mode, Attribute4::ModeUmask]);
        let both = Fattr4 { attrmask: both, attr_vals: &[0; 12] };
        assert_eq!(decode_new(&both, 2), Err(NfsStat4::Inval));
        for wrong in [b"\0\0\x10\0\0\0\0\0", b"\0\0\0\0\0\0\x02\0"] {
            assert_eq!(decode_new(&of(wrong), 2), Err(NfsStat4::Inval));
        }
        assert_eq!(decode_new(&of(&vals[..4]), 2), Err(NfsStat4::BadXdr));
    }
}
