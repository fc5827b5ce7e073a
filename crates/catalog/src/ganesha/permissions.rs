//! What a block says of the rights of clients: in `EXPORT_DEFAULTS`, `EXPORT` and `CLIENT` alike.

use steadfast_shares::{Access, Flavor, Flavors, ShareOptions, Squash, nearest, shown};

use super::text::{Item, Value, Words};
use crate::configuration::{ConfigurationError, Placed};

/// Who nobody is to nfs-ganesha, if it is not told: -2.
const ANONYMOUS: u32 = 4_294_967_294;

/// Whether who has the first options gets nothing that the second do not give.
pub(super) fn is_within(less: &ShareOptions, more: &ShareOptions) -> bool {
    let (less, more) = (less.grants(), more.grants());
    let squash = |squash: Squash| match squash {
        Squash::None => 0,
        Squash::Root => 1,
        Squash::All => 2,
    };
    less.iter().all(|less| {
        more.iter().any(|more| {
            more.flavors.contains(less.flavors)
                && (less.needs_privileged_port || !more.needs_privileged_port)
                && (less.is_read_only || !more.is_read_only)
                && less.looks_up_groups == more.looks_up_groups
                && squash(less.squash) >= squash(more.squash)
                && (squash(less.squash) == 0
                    || (less.anonymous_uid, less.anonymous_gid)
                        == (more.anonymous_uid, more.anonymous_gid))
        })
    })
}

/// The names of what is read here.
pub(super) const NAMES: [&str; 9] = [
    "Access_Type",
    "Protocols",
    "Transports",
    "Anonymous_uid",
    "Anonymous_gid",
    "SecType",
    "PrivilegedPort",
    "Manage_Gids",
    "Squash",
];

/// `Access_Type`
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AccessType {
    None,
    ReadOnly,
    ReadWrite,
}

/// `Squash`
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SquashType {
    No,
    Root,
    /// The superuser's number and his first group, not the others.
    RootId,
    All,
}

/// What a block says; what is `None` it does not.
#[derive(Clone, Debug, Default)]
pub(super) struct Permissions {
    pub(super) access: Option<AccessType>,
    /// Whether it is served by version 3, and by version 4.
    pub(super) versions: Option<[bool; 2]>,
    /// Whether UDP and TCP are both named.
    pub(super) has_all_transports: Option<bool>,
    anonymous: [Option<u32>; 2],
    flavors: Option<Flavors>,
    needs_privileged_port: Option<bool>,
    looks_up_groups: Option<bool>,
    squash: Option<SquashType>,
}

impl Permissions {
    /// These, and what they do not say as others do.
    pub(super) fn or(&self, others: &Self) -> Self {
        let [uid, gid] = self.anonymous;
        let [other_uid, other_gid] = others.anonymous;
        Self {
            access: self.access.or(others.access),
            versions: self.versions.or(others.versions),
            has_all_transports: self.has_all_transports.or(others.has_all_transports),
            anonymous: [uid.or(other_uid), gid.or(other_gid)],
            flavors: self.flavors.or(others.flavors),
            needs_privileged_port: self.needs_privileged_port.or(others.needs_privileged_port),
            looks_up_groups: self.looks_up_groups.or(others.looks_up_groups),
            squash: self.squash.or(others.squash),
        }
    }

    /// Whether only the superuser's number is to be another: here his groups are, too.
    pub(super) fn squashes_root_id(&self) -> bool {
        self.squash == Some(SquashType::RootId)
    }

    /// The options of a share that they come to; what is not said is what nfs-ganesha takes for it.
    ///
    /// # Errors
    /// Why they cannot be taken over.
    pub(super) fn options(&self) -> Result<ShareOptions, String> {
        let [uid, gid] = self.anonymous;
        let squash = self.squash.unwrap_or(SquashType::Root);
        let access_type = self.access.unwrap_or(AccessType::None);
        let access = Access {
            is_denied: access_type == AccessType::None,
            is_read_only: access_type == AccessType::ReadOnly,
            squashes_root: matches!(squash, SquashType::Root | SquashType::RootId),
            squashes_all: squash == SquashType::All,
            anonymous_uid: uid.unwrap_or(ANONYMOUS),
            anonymous_gid: gid.unwrap_or(ANONYMOUS),
            needs_privileged_port: self.needs_privileged_port.unwrap_or(false),
            looks_up_groups: self.looks_up_groups.unwrap_or(false),
            ..Access::default()
        };
        // nfs-ganesha keeps out users whom the server does not know. Here they keep the groups that they claim.
        if access.looks_up_groups && !access.is_denied && !access.squashes_all {
            return Err("Manage_Gids cannot be taken over: users whom the server does not know would be let in. Leave \
                        it out, and add manage_gids to the share if that is meant"
                .to_owned());
        }
        let served = Flavors::NONE | Flavors::SYS;
        let flavors = self.flavors.unwrap_or(served);
        if !flavors.intersects(served) && !access.is_denied {
            return Err("Kerberos is not served yet: SecType needs sys or none, too".to_owned());
        }
        let mut options = ShareOptions { access: access.clone(), ..ShareOptions::default() };
        if flavors != Flavors::default() && !access.is_denied {
            options.alternatives = vec![(flavors, access)];
        }
        Ok(options)
    }

    /// Reads a parameter; `None` if it is not one of [`NAMES`].
    pub(super) fn take(&mut self, item: &Item) -> Option<Result<(), ConfigurationError>> {
        let name = NAMES.into_iter().find(|name| name.eq_ignore_ascii_case(&item.name.value))?;
        Some(self.read(name, item))
    }

    fn read(&mut self, name: &str, item: &Item) -> Result<(), ConfigurationError> {
        match name {
            "Access_Type" => set(&mut self.access, item, access_type(item)?),
            "Protocols" => set(&mut self.versions, item, versions(item)?),
            "Transports" => set(&mut self.has_all_transports, item, has_all_transports(item)?),
            "Anonymous_uid" => set(&mut self.anonymous[0], item, anonymous(item)?),
            "Anonymous_gid" => set(&mut self.anonymous[1], item, anonymous(item)?),
            "SecType" => set(&mut self.flavors, item, flavors(item)?),
            "PrivilegedPort" => set(&mut self.needs_privileged_port, item, boolean(item)?),
            "Manage_Gids" => set(&mut self.looks_up_groups, item, boolean(item)?),
            _ => set(&mut self.squash, item, squash(item)?),
        }
    }
}

fn set<T>(place: &mut Option<T>, item: &Item, value: T) -> Result<(), ConfigurationError> {
    if place.replace(value).is_some() {
        return Err(mistake(item, format!("{} is set twice", item.name.value)));
    }
    Ok(())
}

pub(super) fn mistake(item: &Item, what: String) -> ConfigurationError {
    ConfigurationError { place: item.name.place, what, suggestion: None }
}

/// The words of a parameter.
pub(super) fn words(item: &Item) -> Result<&[Placed<String>], ConfigurationError> {
    match &item.value {
        Value::Words(Words { words, .. }) if !words.is_empty() => Ok(words),
        Value::Words(_) => Err(mistake(item, format!("{} has no value", item.name.value))),
        Value::Block(_) => Err(mistake(item, format!("{} is no block", item.name.value))),
    }
}

/// The only word of a parameter.
pub(super) fn word(item: &Item) -> Result<&Placed<String>, ConfigurationError> {
    match words(item)? {
        [word] => Ok(word),
        _ => Err(mistake(item, format!("{} has one value, not several", item.name.value))),
    }
}

/// Fails if a value is in quotation marks, which nfs-ganesha takes for no number, address or truth value.
pub(super) fn unquoted(item: &Item) -> Result<(), ConfigurationError> {
    match &item.value {
        Value::Words(Words { has_quoted: true, .. }) => {
            let what = format!("the value of {} must be without quotation marks", item.name.value);
            Err(mistake(item, what))
        }
        _ => Ok(()),
    }
}

/// `yes`, `true`, `on`, or their opposites.
pub(super) fn boolean(item: &Item) -> Result<bool, ConfigurationError> {
    unquoted(item)?;
    let choices = [
        ("yes", true),
        ("true", true),
        ("on", true),
        ("no", false),
        ("false", false),
        ("off", false),
    ];
    choice(item, word(item)?, &choices)
}

/// One of these words, in capitals or small letters.
fn choice<T: Copy>(
    item: &Item,
    word: &Placed<String>,
    choices: &[(&str, T)],
) -> Result<T, ConfigurationError> {
    let known = choices.iter().find(|(known, _)| known.eq_ignore_ascii_case(&word.value));
    known.map(|(_, value)| *value).ok_or_else(|| ConfigurationError {
        place: word.place,
        what: format!("{} is no value of {}", shown(&word.value), item.name.value),
        suggestion: nearest(&word.value, choices.iter().map(|(known, _)| *known)).map(String::from),
    })
}

fn access_type(item: &Item) -> Result<AccessType, ConfigurationError> {
    let word = word(item)?;
    if word.value.to_ascii_uppercase().starts_with("MDONLY") {
        let what = format!(
            "{}: rights to names and attributes without data are not served",
            shown(&word.value)
        );
        return Err(ConfigurationError { place: word.place, what, suggestion: None });
    }
    let choices =
        [("None", AccessType::None), ("RO", AccessType::ReadOnly), ("RW", AccessType::ReadWrite)];
    choice(item, word, &choices)
}

/// Those of the whole server: what is no version of NFS counts for none.
pub(super) fn versions_of_server(item: &Item) -> Result<[bool; 2], ConfigurationError> {
    let others = ["none", "9P", "RDMA", "NFSRDMA", "RPCRDMA", "NFSVSOCK", "VSOCK"];
    let is_other =
        |word: &&Placed<String>| others.iter().any(|other| other.eq_ignore_ascii_case(&word.value));
    let words = words(item)?.iter().filter(|word| !is_other(word)).cloned().collect();
    let words = Words { words, has_quoted: false };
    match &words.words[..] {
        [] => Ok([false, false]),
        _ => versions(&Item { name: item.name.clone(), value: Value::Words(words) }),
    }
}

fn versions(item: &Item) -> Result<[bool; 2], ConfigurationError> {
    let (three, four) = ([true, false], [false, true]);
    let choices = [
        ("3", three),
        ("NFS3", three),
        ("V3", three),
        ("NFSv3", three),
        ("4", four),
        ("NFS4", four),
        ("V4", four),
        ("NFSv4", four),
        ("9P", [false, false]),
    ];
    let mut versions = [false, false];
    for word in words(item)? {
        let [by_3, by_4] = choice(item, word, &choices)?;
        versions = [versions[0] || by_3, versions[1] || by_4];
    }
    Ok(versions)
}

fn has_all_transports(item: &Item) -> Result<bool, ConfigurationError> {
    let choices = [("UDP", [true, false]), ("TCP", [false, true])];
    let mut has = [false, false];
    for word in words(item)? {
        let [udp, tcp] = choice(item, word, &choices)?;
        has = [has[0] || udp, has[1] || tcp];
    }
    Ok(has == [true, true])
}

fn flavors(item: &Item) -> Result<Flavors, ConfigurationError> {
    let mut flavors = Flavors::empty();
    let choices = Flavor::ALL.map(|flavor| (flavor.word(), flavor));
    for word in words(item)? {
        flavors |= choice(item, word, &choices)?.into();
    }
    Ok(flavors)
}

fn squash(item: &Item) -> Result<SquashType, ConfigurationError> {
    let choices = [
        ("Root", SquashType::Root),
        ("Root_Squash", SquashType::Root),
        ("RootSquash", SquashType::Root),
        ("RootId", SquashType::RootId),
        ("Root_Id_Squash", SquashType::RootId),
        ("RootIdSquash", SquashType::RootId),
        ("All", SquashType::All),
        ("All_Squash", SquashType::All),
        ("AllSquash", SquashType::All),
        ("All_Anonymous", SquashType::All),
        ("AllAnonymous", SquashType::All),
        ("No_Root_Squash", SquashType::No),
        ("None", SquashType::No),
        ("NoIdSquash", SquashType::No),
    ];
    choice(item, word(item)?, &choices)
}

/// A number, which counts from the largest one down if it is negative. The largest means nobody in particular to the
/// kernel, so that root would stay root.
fn anonymous(item: &Item) -> Result<u32, ConfigurationError> {
    unquoted(item)?;
    let word = word(item)?;
    let number = match word.value.strip_prefix('-') {
        Some(digits) if digits.starts_with('+') => None,
        Some(digits) => number(digits)
            .and_then(|number| i32::try_from(number).ok())
            .map(|number| (-number).cast_unsigned()),
        None => number(&word.value),
    };
    number.filter(|number| *number != u32::MAX).ok_or_else(|| ConfigurationError {
        place: word.place,
        what: format!(
            "{} needs a number from 0 to {}, not {}",
            item.name.value,
            u32::MAX - 1,
            shown(&word.value)
        ),
        suggestion: None,
    })
}

/// A number in decimal, octal (`0…`) or hexadecimal (`0x…`) digits.
pub(super) fn number(text: &str) -> Option<u32> {
    if text.starts_with('+') {
        return None;
    }
    if let Some(digits) = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        return (!digits.starts_with('+')).then(|| u32::from_str_radix(digits, 16).ok())?;
    }
    match text.strip_prefix('0') {
        Some(digits) if !digits.is_empty() => {
            (!digits.starts_with('+')).then(|| u32::from_str_radix(digits, 8).ok())?
        }
        _ => text.parse().ok(),
    }
}
