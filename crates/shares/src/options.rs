//! Option words of a share, as exports(5) has them.

use crate::model::{Rights, Squash};
use crate::suggestion::nearest;

/// Words that are understood; those that end in `=` take a number.
const WORDS: [&str; 10] = [
    "rw",
    "ro",
    "root_squash",
    "no_root_squash",
    "all_squash",
    "no_all_squash",
    "anonuid=",
    "anongid=",
    "crossmnt",
    "nocrossmnt",
];

/// Words of other servers that ask for what happens here anyway.
const ALWAYS_SO: [&str; 6] =
    ["sync", "no_subtree_check", "insecure", "sec=sys", "wdelay", "no_wdelay"];

/// Words of other servers that ask for what is not served here, with the reason.
const NOT_SERVED: [(&str, &str); 18] = [
    ("async", "every acknowledged change is stable here; leave it out"),
    ("subtree_check", "a handle already tells its share; leave it out"),
    (
        "secure",
        "a source port below 1024 proves nothing about a client; restrict `clients` instead",
    ),
    ("nohide", "use crossmnt on the outer share"),
    ("hide", "it is so unless crossmnt is given; leave it out"),
    ("no_acl", "ACLs are always served where the file system has them; leave it out"),
    ("fsid", "write `id = NUMBER` in the share"),
    ("mp", "a share whose directory is missing is faulty alone; leave it out"),
    ("mountpoint", "a share whose directory is missing is faulty alone; leave it out"),
    ("refer", "referrals belong to NFSv4, which is not served yet"),
    ("replicas", "replicas belong to NFSv4, which is not served yet"),
    ("pnfs", "layouts belong to NFSv4.1, which is not served yet"),
    ("no_pnfs", "layouts belong to NFSv4.1, which is not served yet; leave it out"),
    ("security_label", "labels belong to NFSv4.2, which is not served yet"),
    ("auth_nlm", "locks over NLM are not served yet; leave it out"),
    ("no_auth_nlm", "locks over NLM are not served yet; leave it out"),
    ("insecure_locks", "locks over NLM are not served yet; leave it out"),
    ("secure_locks", "locks over NLM are not served yet; leave it out"),
];

/// What the options of a share, or of one of its rules, say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShareOptions {
    /// `ro`: no changes.
    pub is_read_only: bool,
    /// `root_squash`: the superuser becomes anonymous.
    pub squashes_root: bool,
    /// `all_squash`: everybody becomes anonymous.
    pub squashes_all: bool,
    /// `anonuid=`
    pub anonymous_uid: u32,
    /// `anongid=`
    pub anonymous_gid: u32,
    /// `crossmnt`: file systems mounted below the directory are served too.
    pub crosses_mounts: bool,
}

impl Default for ShareOptions {
    fn default() -> Self {
        let rights = Rights::default();
        Self {
            is_read_only: rights.is_read_only,
            squashes_root: true,
            squashes_all: false,
            anonymous_uid: rights.anonymous_uid,
            anonymous_gid: rights.anonymous_gid,
            crosses_mounts: false,
        }
    }
}

/// Why an option word was refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OptionError {
    /// What is wrong with it.
    pub what: String,
    /// What was probably meant.
    pub suggestion: Option<String>,
}

impl ShareOptions {
    /// The rights that these options give.
    pub fn rights(&self) -> Rights {
        Rights {
            is_read_only: self.is_read_only,
            squash: match (self.squashes_all, self.squashes_root) {
                (true, _) => Squash::All,
                (false, true) => Squash::Root,
                (false, false) => Squash::None,
            },
            anonymous_uid: self.anonymous_uid,
            anonymous_gid: self.anonymous_gid,
            ..Rights::default()
        }
    }

    /// Does what one word says.
    pub fn apply(&mut self, word: &str) -> Result<(), OptionError> {
        match word {
            "rw" => self.is_read_only = false,
            "ro" => self.is_read_only = true,
            "root_squash" => self.squashes_root = true,
            "no_root_squash" => self.squashes_root = false,
            "all_squash" => self.squashes_all = true,
            "no_all_squash" => self.squashes_all = false,
            "crossmnt" => self.crosses_mounts = true,
            "nocrossmnt" => self.crosses_mounts = false,
            _ if ALWAYS_SO.contains(&word) => {}
            _ => return self.apply_value(word),
        }
        Ok(())
    }

    fn apply_value(&mut self, word: &str) -> Result<(), OptionError> {
        let (name, value) = word.split_once('=').map_or((word, None), |(n, v)| (n, Some(v)));
        match (name, value) {
            ("anonuid", Some(value)) => self.anonymous_uid = id(word, value)?,
            ("anongid", Some(value)) => self.anonymous_gid = id(word, value)?,
            ("anonuid" | "anongid", None) => {
                return Err(OptionError {
                    what: format!("the option {name} needs a number"),
                    suggestion: Some(format!("{name}=65534")),
                });
            }
            ("sec" | "xprtsec", _) => {
                return Err(OptionError {
                    what: format!("{} is not served yet, only sec=sys is", shown(word)),
                    suggestion: None,
                });
            }
            _ => return Err(unknown(word, name)),
        }
        Ok(())
    }
}

/// Refuses two words of one list that contradict each other; the later one is refused.
#[derive(Debug, Default)]
pub(crate) struct Contradictions<'a> {
    seen: Vec<(&'static str, &'a str)>,
}

impl<'a> Contradictions<'a> {
    /// Notes a word; an error if it contradicts an earlier one.
    pub(crate) fn check(&mut self, word: &'a str) -> Result<(), OptionError> {
        let subject = match word {
            "rw" | "ro" => "access",
            "root_squash" | "no_root_squash" => "root",
            "all_squash" | "no_all_squash" => "all",
            "crossmnt" | "nocrossmnt" => "mounts",
            _ if word.starts_with("anonuid=") => "anonuid",
            _ if word.starts_with("anongid=") => "anongid",
            _ => return Ok(()),
        };
        match self.seen.iter().find(|(seen, _)| *seen == subject) {
            Some((_, earlier)) if *earlier != word => Err(OptionError {
                what: format!("{} contradicts {} before it", shown(word), shown(earlier)),
                suggestion: None,
            }),
            Some(_) => Ok(()),
            None => {
                self.seen.push((subject, word));
                Ok(())
            }
        }
    }
}

/// A user or group id. The largest 32-bit number is refused: to the kernel it means "leave the
/// identity as it is", so squashing to it would leave root being root.
fn id(word: &str, value: &str) -> Result<u32, OptionError> {
    match value.parse::<u32>() {
        Ok(id) if id != u32::MAX => Ok(id),
        _ => Err(OptionError {
            what: format!("{} needs a number from 0 to {}", shown(word), u32::MAX - 1),
            suggestion: None,
        }),
    }
}

fn unknown(word: &str, name: &str) -> OptionError {
    if let Some((_, reason)) = NOT_SERVED.iter().find(|(known, _)| *known == name) {
        return OptionError {
            what: format!("the option {} is not served: {reason}", shown(word)),
            suggestion: None,
        };
    }
    OptionError {
        what: format!("unknown option {}", shown(word)),
        suggestion: nearest(word, WORDS.into_iter().chain(ALWAYS_SO)).map(String::from),
    }
}

/// A word of the file, quoted, escaped and bounded.
pub(crate) fn shown(word: &str) -> String {
    const CHARS_MAX: usize = 100;
    if word.chars().count() <= CHARS_MAX {
        return format!("{word:?}");
    }
    let start: String = word.chars().take(CHARS_MAX).collect();
    format!("{start:?}…")
}

#[cfg(test)]
mod tests {
    use super::{Contradictions, ShareOptions};
    use crate::model::{Rights, Squash};

    fn all(words: &[&str]) -> ShareOptions {
        let mut options = ShareOptions::default();
        for word in words {
            options.apply(word).expect("a known word");
        }
        options
    }

    #[test]
    fn nothing_said_is_the_default() {
        assert_eq!(ShareOptions::default().rights(), Rights::default());
    }

    #[test]
    fn squashing_everybody_includes_root() {
        assert_eq!(all(&["no_root_squash"]).rights().squash, Squash::None);
        assert_eq!(all(&["no_root_squash", "all_squash"]).rights().squash, Squash::All);
        assert_eq!(all(&["all_squash", "no_all_squash"]).rights().squash, Squash::Root);
    }

    #[test]
    fn values_are_read() {
        let options = all(&["ro", "anonuid=1000", "anongid=1001", "crossmnt", "sync", "sec=sys"]);
        assert!(options.is_read_only && options.crosses_mounts);
        assert_eq!((options.anonymous_uid, options.anonymous_gid), (1000, 1001));
    }

    #[test]
    fn an_anonymous_id_that_the_kernel_would_ignore_is_refused() {
        let mut options = ShareOptions::default();
        for word in ["anonuid=4294967295", "anongid=-1", "anonuid=", "anonuid=x", "anonuid"] {
            assert!(options.apply(word).is_err(), "{word}");
        }
        assert_eq!(options, ShareOptions::default());
    }

    #[test]
    fn what_is_not_served_is_explained() {
        let mut options = ShareOptions::default();
        let what = options.apply("async").unwrap_err().what;
        assert!(what.contains("every acknowledged change is stable"), "{what}");
        let what = options.apply("sec=krb5p").unwrap_err().what;
        assert!(what.contains("sec=sys"), "{what}");
        let what = options.apply("fsid=0").unwrap_err().what;
        assert!(what.contains("id = NUMBER"), "{what}");
        let error = options.apply("rot_squash").unwrap_err();
        assert_eq!(error.suggestion.as_deref(), Some("root_squash"));
    }

    #[test]
    fn contradictions_are_refused_and_repetitions_are_not() {
        let mut seen = Contradictions::default();
        assert!(seen.check("rw").is_ok());
        assert!(seen.check("rw").is_ok());
        assert!(seen.check("anonuid=1").is_ok());
        assert!(seen.check("ro").is_err());
        assert!(seen.check("anonuid=2").is_err());
        assert!(seen.check("anongid=2").is_ok());
    }
}
