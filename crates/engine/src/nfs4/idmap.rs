//! Users and groups by name (RFC 8881 §5.9, RFC 7530 §5.9). The storage knows them by number; between
//! both stands the host's name service, which answers from memory or later
//! ([`steadfast_shares::Authority`]).
//!
//! *Taken*: a number is itself, and costs nothing more. For a name of our domain the call waits without a
//! thread (`waits.rs`), and only a caller who may use the share has it looked up.
//!
//! *Told*: numbers, unless names are asked for by configuration. GETATTR waits for a name; where it cannot, it tells
//! the number. READDIR never waits, since a directory may have as many owners as entries: it tells the numbers
//! of those whose names are not known yet, and has these looked up meanwhile. RFC 8881 allows both at any time.

use std::sync::Arc;

use steadfast_shares::{AccountKind, AccountName, Authority, HostName, NameOf, NumberOf, ShareId};
use steadfast_vfs::{Attr, FsError};
use steadfast_wire::nfs4::{Attribute4, Bitmap4, Fattr4, NfsStat4};

use super::fattr::Owners;
use super::fattr_decode::{Numbering, ToSet};
use super::status::status;
use crate::Shared;
use crate::call::Call;
use crate::compound::Run;
use crate::progress::Object;
use crate::waits::WaitFor;

/// Whom a client names.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Named {
    Number(u32),
    Account(AccountName),
}

/// Reads whom a client names. A name without a domain is nobody's.
fn named(text: &[u8], domain: Option<&HostName>) -> Result<Named, NfsStat4> {
    if text.is_empty() {
        return Err(NfsStat4::Inval);
    }
    let is_number = text.iter().all(u8::is_ascii_digit);
    let text = std::str::from_utf8(text).map_err(|_| NfsStat4::BadOwner)?;
    if is_number {
        // A number with leading zeros is a name that looks like one, which nobody has.
        let is_plain = text.len() == 1 || !text.starts_with('0');
        // -1 is nobody to the kernel.
        let number = text.parse().ok().filter(|number| is_plain && *number != u32::MAX);
        return number.map(Named::Number).ok_or(NfsStat4::BadOwner);
    }
    let name = match text.rsplit_once('@') {
        // Nobody says whose name that is: it is not to be taken for one of ours (RFC 8881 §5.9).
        None => "",
        Some((name, of)) => {
            let is_ours = domain.is_some_and(|domain| of.eq_ignore_ascii_case(domain.as_str()));
            if is_ours { name } else { "" }
        }
    };
    AccountName::new(name).map(Named::Account).ok_or(NfsStat4::BadOwner)
}

/// What reads attributes that are to be set.
type Decode = fn(&Fattr4<'_>, u32, &mut Numbering<'_>) -> Result<ToSet, NfsStat4>;

/// Reads what is to be set of the current object, or of what is made in it.
///
/// # Errors
/// Those of `decode`; `BadOwner` for somebody who is nobody; where somebody is named, as [`Run::stored`], and `Delay`
/// while the name is looked up.
pub(super) fn to_set(
    run: &mut Run<'_, '_>,
    attributes: &Fattr4<'_>,
    decode: Decode,
) -> Result<ToSet, NfsStat4> {
    let (shared, minor) = (run.call.shared, run.minor_version);
    let domain = shared.config.idmapping.domain.as_ref();
    let mut has_names = false;
    let set = decode(attributes, minor, &mut |text, _| match named(text, domain)? {
        Named::Number(number) => Ok(number),
        Named::Account(_) => {
            has_names = true;
            Ok(0)
        }
    })?;
    if !has_names {
        return Ok(set);
    }
    // In the pseudo file system nothing is set or made, whoever is named.
    let Object::Stored(share, _) = run.current()? else { return Ok(set) };
    // Who may not use the share does not have name services asked.
    run.stored(NfsStat4::RoFs)?;
    let mut is_waiting = false;
    // All are asked for before any is waited for.
    let set = decode(attributes, minor, &mut |text, kind| match named(text, domain)? {
        Named::Number(number) => Ok(number),
        Named::Account(name) => match shared.authority.number_of(kind, &name) {
            NumberOf::Is(number) if number != u32::MAX => Ok(number),
            NumberOf::Is(_) | NumberOf::Nobody => Err(NfsStat4::BadOwner),
            NumberOf::NotYet => {
                is_waiting = true;
                Ok(0)
            }
        },
    })?;
    if is_waiting { Err(status(run.call.for_names(FsError::TryLater, share))) } else { Ok(set) }
}

/// Finds the names by which owners are told.
pub(super) struct Naming<'n> {
    authority: &'n dyn Authority,
    /// `None` if numbers are told.
    domain: Option<&'n HostName>,
    /// Of a user and of a group: in a directory the next entry has mostly the same.
    last: [Option<(u32, Option<Arc<str>>)>; 2],
    /// Whether a name is not known yet.
    is_waiting: bool,
}

impl<'n> Naming<'n> {
    pub(super) fn new(shared: &'n Shared) -> Self {
        let idmapping = &shared.config.idmapping;
        let domain = idmapping.domain.as_ref().filter(|_| idmapping.tells_names);
        Self { authority: &*shared.authority, domain, last: [None, None], is_waiting: false }
    }

    /// The names of an object's owner and group, as far as they are wanted and known.
    pub(super) fn owners(&mut self, wanted: &Bitmap4, attr: &Attr) -> Owners {
        if self.domain.is_none() {
            return Owners::NUMBERS;
        }
        let mut of = |attribute, kind, number| {
            if wanted.has(attribute) { self.name_of(kind, number) } else { None }
        };
        Owners {
            user: of(Attribute4::Owner, AccountKind::User, attr.uid),
            group: of(Attribute4::OwnerGroup, AccountKind::Group, attr.gid),
        }
    }

    /// The name of a user or group; `None` if the number is to be told.
    pub(super) fn name_of(&mut self, kind: AccountKind, number: u32) -> Option<Arc<str>> {
        let domain = self.domain?;
        let [user, group] = &mut self.last;
        let last = match kind {
            AccountKind::User => user,
            AccountKind::Group => group,
        };
        if let Some((known, name)) = last
            && *known == number
        {
            return name.clone();
        }
        let name = match self.authority.name_of(kind, number) {
            NameOf::Is(name) => Some(format!("{name}@{domain}").into()),
            NameOf::None => None,
            NameOf::NotYet => {
                self.is_waiting = true;
                None
            }
        };
        *last = Some((number, name.clone()));
        name
    }

    /// Has the call wait for names that are not known yet, if it may. If not, their numbers are told.
    ///
    /// # Errors
    /// `Delay` if the operation is to be executed again.
    pub(super) fn wait(&self, call: &mut Call<'_>, share: ShareId) -> Result<(), NfsStat4> {
        if !self.is_waiting {
            return Ok(());
        }
        let error = call.wait_for(WaitFor::Names(share));
        if call.wait.is_due_again() { Err(status(error)) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &[u8]) -> Result<Named, NfsStat4> {
        named(text, HostName::new("Example.COM").as_ref())
    }

    fn account(text: &str) -> Named {
        Named::Account(AccountName::new(text).expect("a name"))
    }

    #[test]
    fn digits_are_a_number_and_never_a_name() {
        assert_eq!(read(b"0"), Ok(Named::Number(0)));
        assert_eq!(read(b"1000"), Ok(Named::Number(1000)));
        assert_eq!(read(b"4294967294"), Ok(Named::Number(4_294_967_294)));
        assert_eq!(read(b""), Err(NfsStat4::Inval));
        for nobody in [
            &b"-1"[..],
            b"+1",
            b" 1",
            b"01",
            b"00",
            b"4294967295",
            b"4294967296",
            b"99999999999999999999",
            b"1000@example.com",
            b"\xff",
        ] {
            assert_eq!(read(nobody), Err(NfsStat4::BadOwner), "{}", nobody.escape_ascii());
        }
    }

    #[test]
    fn names_are_those_of_our_domain() {
        for (text, name) in [
            ("jane@example.com", "jane"),
            ("jane@EXAMPLE.com", "jane"),
            ("Jane@example.com", "Jane"),
            ("domain users@example.com", "domain users"),
            ("jane@ad.example@example.com", "jane@ad.example"),
            ("ad\\jane@example.com", "ad\\jane"),
        ] {
            assert_eq!(read(text.as_bytes()), Ok(account(name)), "{text}");
        }
        for nobody in [
            "jane",
            "jane@example.org",
            "jane@sub.example.com",
            "jane@example.com.",
            "jane@",
            "@example.com",
            "@",
            "jane@example.com@example.org",
            "a:b@example.com",
            "../jane@example.com",
            "jane\n@example.com",
            "jane\0",
        ] {
            assert_eq!(read(nobody.as_bytes()), Err(NfsStat4::BadOwner), "{nobody:?}");
        }
        let long = [&[b'a'; 257][..], b"@example.com"].concat();
        assert_eq!(read(&long), Err(NfsStat4::BadOwner));
        assert_eq!(read(&long[1..]), Ok(account(&"a".repeat(256))));
    }

    #[test]
    fn without_a_domain_names_with_one_are_nobodys() {
        assert_eq!(named(b"jane@localdomain", None), Err(NfsStat4::BadOwner));
        assert_eq!(named(b"jane", None), Err(NfsStat4::BadOwner));
        assert_eq!(named(b"7", None), Ok(Named::Number(7)));
    }
}
