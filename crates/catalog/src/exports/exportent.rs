//! What the options of exports(5) come to for one client, word by word as exportfs(8) has it
//! (nfs-utils, `parseopts` in `support/nfs/exports.c`).
//!
//! Words hold for the entry, and for the flavours of the last `sec=` of their list; a flavour begins
//! with what the entry has when it is first named, and what is said afterwards in another list does
//! not reach it.

use steadfast_shares::{
    Access, Flavor, Flavors, NOT_SERVED, OptionError, ShareOptions, nearest, shown,
};

/// Options that can be left out, with what that means.
const LEFT_OUT: [(&str, &str); 12] = [
    ("subtree_check", "is not needed: handles cannot be guessed, and tell their share"),
    ("nohide", "is not taken over: write crossmnt on the outer share to have it seen there"),
    ("hide", "is not needed: it is so unless crossmnt is given"),
    ("no_acl", "is not taken over: ACLs are served where the file system has them"),
    ("acl", "is not needed: ACLs are served where the file system has them"),
    ("no_pnfs", "is not needed: layouts are never given"),
    ("pnfs", "is not taken over: layouts are never given"),
    ("nordirplus", "is not taken over: READDIRPLUS is served"),
    ("security_label", "is not taken over: there are no security labels"),
    ("auth_nlm", "is not needed: locks are always for users who may access the file"),
    ("no_auth_nlm", "is not taken over: locks are for users who may access the file only"),
    ("insecure_locks", "is not taken over: locks are for users who may access the file only"),
];

/// Options that ask for what happens here anyway. `xprtsec` is known since nfs-utils 2.6.3.
const ALWAYS_SO: [&str; 5] =
    ["no_subtree_check", "wdelay", "no_wdelay", "secure_locks", "xprtsec=none"];

/// Options that are understood, for what was probably meant.
const WORDS: [&str; 15] = [
    "rw",
    "ro",
    "sync",
    "async",
    "root_squash",
    "no_root_squash",
    "all_squash",
    "no_all_squash",
    "secure",
    "insecure",
    "crossmnt",
    "nocrossmnt",
    "anonuid=",
    "anongid=",
    "sec=",
];

/// What a word came to.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Word {
    /// It says something, or what is so anyway.
    Taken,
    /// It contradicts this one before it in the same list.
    Overrides(String),
    /// It says something that is not taken over: why.
    LeftOut(String),
    /// The directory is the root that clients of NFSv4 see there (`fsid=0`).
    Root,
}

/// What may differ by flavour there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Flags {
    is_read_only: bool,
    squashes_root: bool,
    squashes_all: bool,
    needs_privileged_port: bool,
}

/// What is said of a flavour.
#[derive(Clone, Debug)]
struct OfFlavor {
    flavor: Flavor,
    flags: Flags,
    /// Whether `secure` or `insecure` is said of it in particular.
    has_port: bool,
}

/// Options as they are read.
#[derive(Clone, Debug)]
pub(super) struct Exportent {
    flags: Flags,
    crosses_mounts: bool,
    /// For all flavours: the kernel has no such flag for one alone.
    is_async: bool,
    anonymous: [u32; 2],
    /// Flavours with their own flags, in the order in which they were named.
    flavors: Vec<OfFlavor>,
    /// Those of the list's last `sec=`.
    active: Vec<Flavor>,
    /// Words of the list since its last `sec=`, by what they are about.
    said: Vec<(&'static str, String)>,
    /// Words that shares here understand beside these.
    further: Vec<String>,
}

impl Default for Exportent {
    /// What an entry means that says nothing.
    fn default() -> Self {
        let access = Access::default();
        Self {
            flags: Flags {
                is_read_only: true,
                squashes_root: true,
                squashes_all: false,
                needs_privileged_port: true,
            },
            crosses_mounts: false,
            is_async: false,
            anonymous: [access.anonymous_uid, access.anonymous_gid],
            flavors: Vec::new(),
            active: Vec::new(),
            said: Vec::new(),
            further: Vec::new(),
        }
    }
}

impl Exportent {
    /// Another list of words comes: one before clients, or a client's own.
    pub(super) fn begin_list(&mut self) {
        self.active.clear();
        self.said.clear();
    }

    /// Reads a word.
    ///
    /// # Errors
    /// If it is unknown, refused by exportfs(8), or not served here.
    pub(super) fn apply(&mut self, text: &str) -> Result<Word, OptionError> {
        type Change = fn(&mut Flags);
        let (about, change): (&'static str, Change) = match text {
            "rw" => ("access", |flags| flags.is_read_only = false),
            "ro" => ("access", |flags| flags.is_read_only = true),
            "root_squash" => ("root", |flags| flags.squashes_root = true),
            "no_root_squash" => ("root", |flags| flags.squashes_root = false),
            "all_squash" => ("all", |flags| flags.squashes_all = true),
            "no_all_squash" => ("all", |flags| flags.squashes_all = false),
            "secure" => ("port", |flags| flags.needs_privileged_port = true),
            "insecure" => ("port", |flags| flags.needs_privileged_port = false),
            "crossmnt" | "nocrossmnt" => {
                self.crosses_mounts = text == "crossmnt";
                return Ok(self.note("mounts", text));
            }
            "sync" | "async" => {
                self.is_async = text == "async";
                return Ok(self.note("stability", text));
            }
            _ if ALWAYS_SO.contains(&text) => return Ok(Word::Taken),
            _ => return self.apply_other(text),
        };
        change(&mut self.flags);
        for known in self.flavors.iter_mut().filter(|known| self.active.contains(&known.flavor)) {
            change(&mut known.flags);
            known.has_port |= about == "port";
        }
        Ok(self.note(about, text))
    }

    fn apply_other(&mut self, text: &str) -> Result<Word, OptionError> {
        match text.split_once('=') {
            Some((name @ ("anonuid" | "anongid"), value)) => {
                let (at, about) = if name == "anonuid" { (0, "anonuid") } else { (1, "anongid") };
                let id = anonymous(text, value)?;
                if let Some(place) = self.anonymous.get_mut(at) {
                    *place = id;
                }
                return Ok(self.note(about, text));
            }
            Some(("sec", value)) => return self.begin_flavors(text, value),
            Some(("fsid", value)) => return fsid(text, value),
            _ => {}
        }
        if let Some((_, meaning)) = LEFT_OUT.iter().find(|(known, _)| *known == text) {
            return Ok(Word::LeftOut(format!("{} {meaning}", shown(text))));
        }
        let name = text.split('=').next().unwrap_or(text);
        if let "mp" | "mountpoint" = name {
            // Without it what is below a mount point is served while nothing is mounted there.
            let word = text.replacen("mountpoint", "mp", 1);
            if let Some((_, error)) = ShareOptions::default().with(&[&word]).1.pop() {
                return Err(error);
            }
            self.further.push(word);
            return Ok(Word::Taken);
        }
        if let ("refer" | "replicas" | "xprtsec", Some((_, why))) =
            (name, NOT_SERVED.iter().find(|(known, _)| *known == name))
        {
            let what = format!("the option {} is not served: {why}", shown(text));
            return Err(OptionError { what, suggestion: None });
        }
        let known = WORDS.into_iter().chain(ALWAYS_SO).chain(LEFT_OUT.map(|(word, _)| word));
        Err(OptionError {
            what: format!("unknown option {}", shown(text)),
            suggestion: nearest(text, known).map(String::from),
        })
    }

    /// Notes what a word is about; what it overrides.
    fn note(&mut self, about: &'static str, text: &str) -> Word {
        let Some((_, known)) = self.said.iter_mut().find(|(known, _)| *known == about) else {
            self.said.push((about, text.to_owned()));
            return Word::Taken;
        };
        let known = std::mem::replace(known, text.to_owned());
        if known == text { Word::Taken } else { Word::Overrides(known) }
    }

    /// `sec=`
    fn begin_flavors(&mut self, text: &str, value: &str) -> Result<Word, OptionError> {
        let mut named = Vec::new();
        for name in value.split(':') {
            let name = match name {
                "unix" => "sys",
                "null" => "none",
                name => name,
            };
            let Some(flavor) = Flavor::ALL.into_iter().find(|flavor| flavor.word() == name) else {
                let words = Flavor::ALL.into_iter().map(Flavor::word);
                return Err(OptionError {
                    what: format!("{} is no flavour in {}", shown(name), shown(text)),
                    suggestion: nearest(name, words).map(String::from),
                });
            };
            named.push(flavor);
        }
        for flavor in &named {
            if !self.flavors.iter().any(|known| known.flavor == *flavor) {
                let (flavor, flags) = (*flavor, self.flags);
                self.flavors.push(OfFlavor { flavor, flags, has_port: false });
            }
        }
        self.active = named;
        // What was said for all may be said otherwise for some.
        self.said
            .retain(|(about, _)| matches!(*about, "mounts" | "stability" | "anonuid" | "anongid"));
        Ok(Word::Taken)
    }

    /// Whether something that was said last of access does not hold for the flavours: they were named
    /// in an earlier list, or have a `sec=` of their own. `insecure` depends on the kernel there.
    pub(super) fn has_words_without_effect(&self) -> bool {
        let entry = self.flags;
        let by_port = |known: &OfFlavor| {
            !known.has_port && known.flags.needs_privileged_port && !entry.needs_privileged_port
        };
        let by_access = |known: &OfFlavor| {
            let needs_privileged_port = entry.needs_privileged_port;
            Flags { needs_privileged_port, ..known.flags } != entry
        };
        self.flavors.iter().any(by_port)
            || (!self.flavors.is_empty() && self.flavors.iter().all(by_access))
    }

    /// What it comes to. Without `sec=` it is for `sys` alone.
    ///
    /// # Errors
    /// When no flavour of it is served, or a word that shares here have is wrong.
    pub(super) fn options(&self) -> Result<ShareOptions, OptionError> {
        let [anonymous_uid, anonymous_gid] = self.anonymous;
        let access = |flags: &Flags| Access {
            is_read_only: flags.is_read_only,
            is_async: self.is_async,
            squashes_root: flags.squashes_root,
            squashes_all: flags.squashes_all,
            // By which of both it goes depends on the kernel.
            needs_privileged_port: flags.needs_privileged_port || self.flags.needs_privileged_port,
            anonymous_uid,
            anonymous_gid,
            ..Access::default()
        };
        let mut alternatives: Vec<(Flavors, Access)> = Vec::new();
        for OfFlavor { flavor, flags, .. } in &self.flavors {
            let access = access(flags);
            // Not with an earlier one: an export gives the flavours in their order.
            match alternatives.last_mut().filter(|(_, known)| known.comes_to_same(&access)) {
                Some((flavors, _)) => *flavors |= Flavors::from(*flavor),
                None => alternatives.push(((*flavor).into(), access)),
            }
        }
        let served = Flavors::NONE | Flavors::SYS;
        if !alternatives.is_empty() && !alternatives.iter().any(|(f, _)| f.intersects(served)) {
            let what = "Kerberos is not served yet: give sec=sys or sec=none too".to_owned();
            return Err(OptionError { what, suggestion: None });
        }
        let mut options = ShareOptions {
            access: access(&self.flags),
            crosses_mounts: self.crosses_mounts,
            ..ShareOptions::default()
        };
        match &*alternatives {
            [(flavors, access)] if *flavors == Flavors::default() => {
                options.access = access.clone();
            }
            _ => options.alternatives = alternatives,
        }
        let (options, errors) = options.with(&self.further);
        match errors.into_iter().next() {
            Some((_, error)) => Err(error),
            None => Ok(options),
        }
    }
}

/// An anonymous id, of which the last 32 bits count: -2 is nobody on some systems. The largest one
/// means nobody in particular to the kernel, so that root would stay root.
fn anonymous(text: &str, value: &str) -> Result<u32, OptionError> {
    let id = match value.strip_prefix('-') {
        Some(number) if number.starts_with('+') => None,
        Some(number) => number.parse::<u32>().ok().filter(|n| *n > 1).map(u32::wrapping_neg),
        None => value.parse::<u32>().ok().filter(|id| *id != u32::MAX),
    };
    id.ok_or_else(|| OptionError {
        what: format!("{} needs a number from 0 to {}", shown(text), u32::MAX - 1),
        suggestion: None,
    })
}

/// `fsid=`: a number, `root`, or a UUID of 32 digits.
fn fsid(text: &str, value: &str) -> Result<Word, OptionError> {
    let has_digits = |digits: &str, is_digit: fn(&u8) -> bool| {
        !digits.is_empty() && digits.as_bytes().iter().all(is_digit)
    };
    let number = match value.strip_prefix("0x").or_else(|| value.strip_prefix("0X")) {
        Some(digits) => has_digits(digits, u8::is_ascii_hexdigit),
        None if value.starts_with('0') => has_digits(value, |b| (b'0'..=b'7').contains(b)),
        None => has_digits(value, u8::is_ascii_digit),
    };
    let is_uuid = value.bytes().filter(u8::is_ascii_hexdigit).count() == 32;
    if !(number || is_uuid || value == "root") {
        let what = format!("{} needs a number, root, or a UUID", shown(text));
        return Err(OptionError { what, suggestion: None });
    }
    let zeros = value.strip_prefix("0x").or_else(|| value.strip_prefix("0X")).unwrap_or(value);
    if value == "root" || (!is_uuid && zeros.bytes().all(|digit| digit == b'0')) {
        return Ok(Word::Root);
    }
    let meaning = "is not taken over: handles have the share's own id, and clients mount anew";
    Ok(Word::LeftOut(format!("{} {meaning}", shown(text))))
}
