//! Mount options: the words of nfs(5) that this client understands.

use std::path::PathBuf;
use std::time::Duration;

/// The largest `rsize` and `wsize`, in bytes: what a request of FUSE can carry.
pub(crate) const TRANSFER_BYTES_MAX: u32 = 1 << 20;
/// The smallest, as nfs(5) says.
pub(crate) const TRANSFER_BYTES_MIN: u32 = 1024;
/// Most connections to a server, as nfs(5) says.
pub(crate) const CONNECTIONS_MAX: u32 = 16;

/// How long mounting is tried again in the background (nfs(5), `retry`).
const BACKGROUND_RETRY: Duration = Duration::from_secs(10_000 * 60);

/// Options with a value, and what the value is, for messages.
const WITH_VALUE: &[&str] = &[
    "timeo=DECISECONDS",
    "retrans=N",
    "rsize=BYTES",
    "wsize=BYTES",
    "acregmin=SECONDS",
    "acregmax=SECONDS",
    "acdirmin=SECONDS",
    "acdirmax=SECONDS",
    "actimeo=SECONDS",
    "nconnect=N",
    "port=N",
    "mountport=N",
    "lockport=N",
    "local_lock=none|flock|posix|all",
    "proto=tcp",
    "nfsvers=3|4|4.1|4.2",
    "minorversion=1|2",
    "sec=sys",
    "journal=DIRECTORY",
    "journal_size=BYTES",
    "journal_sync=always|fsync|SECONDS",
    "retry=MINUTES",
];
const FLAGS: &[&str] = &[
    "ro",
    "rw",
    "sync",
    "async",
    "hard",
    "soft",
    "ac",
    "noac",
    "nolock",
    "lock",
    "resvport",
    "noresvport",
    "suid",
    "nosuid",
    "dev",
    "nodev",
    "exec",
    "noexec",
    "allow_other",
    "compress",
    "adaptive_depth",
    "noadaptive_depth",
    "user",
    "users",
    "owner",
    "group",
    "bg",
    "fg",
    "cto",
    "nocto",
];
/// What is said of versions that are not spoken.
const OTHER_VERSIONS: &str = "nfsvers=3, 4.1 and 4.2 are";
/// What fstab(5), systemd and mount.nfs allow, and what changes nothing here.
const IGNORED: &[&str] = &[
    "defaults",
    "auto",
    "noauto",
    "nouser",
    "nofail",
    "_netdev",
    "intr",
    "nointr",
    "atime",
    "noatime",
    "relatime",
    "norelatime",
    "strictatime",
    "diratime",
    "nodiratime",
    "acl",
    "noacl",
    "rdirplus",
    "tcp",
    "sharecache",
    "nosharecache",
    "fsc",
    "nofsc",
    "silent",
    "loud",
];
const IGNORED_WITH_VALUE: &[&str] =
    &["mountvers", "mountproto", "comment", "addr", "mountaddr", "clientaddr"];

/// How long attributes are believed without asking the server (nfs(5)): after a change that somebody
/// else made `min`, then twice as long as they have not changed, up to `max`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheTimes {
    /// The least, for what is not a directory.
    pub file_min: Duration,
    /// The most, for what is not a directory.
    pub file_max: Duration,
    /// The least, for directories.
    pub directory_min: Duration,
    /// The most, for directories.
    pub directory_max: Duration,
}

impl Default for CacheTimes {
    fn default() -> Self {
        let seconds = Duration::from_secs;
        Self {
            file_min: seconds(3),
            file_max: seconds(60),
            directory_min: seconds(30),
            directory_max: seconds(60),
        }
    }
}

/// When the journal is made stable on this host's disk, beside `fsync`, `close` and synchronous writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JournalSync {
    /// Before each write is acknowledged.
    Always,
    /// At no other time.
    Fsync,
    /// Also after this time.
    Every(Duration),
}

/// Which locks are this host's alone (nfs(5), `local_lock`). The others are the server's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LocalLocks {
    /// Those of fcntl(2).
    pub posix: bool,
    /// Those of flock(2).
    pub flock: bool,
}

impl LocalLocks {
    /// All of them: `nolock`.
    pub const ALL: Self = Self { posix: true, flock: true };
    /// None of them.
    pub const NONE: Self = Self { posix: false, flock: false };
}

/// Which version of NFS is spoken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Version {
    /// 3.
    #[default]
    V3,
    /// 4, with this minor version; `None`: the highest that the server has of those that are possible.
    V4(Option<u32>),
}

/// What a mount is to be like.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Which version of NFS is spoken.
    pub version: Version,
    /// Nothing may be changed.
    pub is_read_only: bool,
    /// Each write is stable on the server before it is acknowledged.
    pub is_sync: bool,
    /// Calls fail when the server is silent, instead of waiting for it.
    pub is_soft: bool,
    /// How long is waited for a reply before a call is sent again, over a new connection.
    pub timeout: Duration,
    /// How many of these times a `soft` mount waits.
    pub retransmissions: u32,
    /// The largest READ in bytes; `None`: what the server likes.
    pub read_bytes: Option<u32>,
    /// The largest WRITE in bytes; `None`: what the server likes.
    pub write_bytes: Option<u32>,
    /// How long attributes are believed.
    pub cache_times: CacheTimes,
    /// TCP connections to the server.
    pub connections: u32,
    /// The port of NFS; `None`: rpcbind tells.
    pub port: Option<u16>,
    /// The port of MOUNT; `None`: rpcbind tells.
    pub mount_port: Option<u16>,
    /// The port of NLM; `None`: that of NFS, or rpcbind tells.
    pub lock_port: Option<u16>,
    /// Which locks are this host's alone.
    pub local_locks: LocalLocks,
    /// Connections come from ports below 1024 where that is possible.
    pub from_reserved_port: bool,
    /// Set-user-id bits have no effect.
    pub no_suid: bool,
    /// Device nodes cannot be opened.
    pub no_dev: bool,
    /// Programs cannot be executed.
    pub no_exec: bool,
    /// Mounting that fails at first is tried again in the background.
    pub in_background: bool,
    /// How long mounting is tried again while the server cannot be reached; `None`: not at all, or
    /// with `bg` for 10,000 minutes.
    pub retry: Option<Duration>,
    /// Users other than the one who mounts may use the mount. Always so for root.
    pub allow_other: bool,
    /// The directory of the journal; `None`: there is none.
    pub journal: Option<PathBuf>,
    /// The size of a journal that is made, in bytes.
    pub journal_bytes: u64,
    /// When the journal is made stable.
    pub journal_sync: JournalSync,
    /// Data is compressed on its way and in the journal, where that makes it smaller.
    pub compresses: bool,
    /// How many bytes of WRITEs are in flight depends on the queue that is seen on the link.
    pub adapts_depth: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            version: Version::V3,
            is_read_only: false,
            is_sync: false,
            is_soft: false,
            timeout: Duration::from_secs(60),
            retransmissions: 2,
            read_bytes: None,
            write_bytes: None,
            cache_times: CacheTimes::default(),
            connections: 1,
            port: None,
            mount_port: None,
            lock_port: None,
            local_locks: LocalLocks::NONE,
            from_reserved_port: true,
            no_suid: false,
            no_dev: false,
            no_exec: false,
            in_background: false,
            retry: None,
            allow_other: false,
            journal: None,
            journal_bytes: steadfast_journal::Options::RING_BYTES,
            journal_sync: JournalSync::Fsync,
            compresses: false,
            adapts_depth: false,
        }
    }
}

/// Why options cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OptionError {
    /// The word is none of ours.
    #[error("unknown mount option {word:?}; options are {known}")]
    Unknown {
        /// As it was written.
        word: String,
        /// Those that there are.
        known: String,
    },
    /// The option is known, its value is not possible.
    #[error("mount option {word:?}: {why}")]
    BadValue {
        /// As it was written.
        word: String,
        /// What would be possible.
        why: String,
    },
    /// The option asks for something that this client cannot do.
    #[error("mount option {word:?} is not supported: {why}")]
    Unsupported {
        /// As it was written.
        word: String,
        /// What is there instead.
        why: &'static str,
    },
}

fn bad(word: &str, why: impl Into<String>) -> OptionError {
    OptionError::BadValue { word: word.to_owned(), why: why.into() }
}

fn unsupported(word: &str, why: &'static str) -> OptionError {
    OptionError::Unsupported { word: word.to_owned(), why }
}

fn number(word: &str, value: &str, low: u32, high: u32) -> Result<u32, OptionError> {
    let number = value.parse().ok().filter(|number| (low..=high).contains(number));
    number.ok_or_else(|| bad(word, format!("write a number from {low} to {high}")))
}

fn port(word: &str, value: &str) -> Result<Option<u16>, OptionError> {
    // 0 asks rpcbind, as with mount.nfs.
    let port = number(word, value, 0, u32::from(u16::MAX))?;
    Ok(u16::try_from(port).ok().filter(|port| *port != 0))
}

fn seconds(word: &str, value: &str) -> Result<Duration, OptionError> {
    // The bound keeps sums of times far from overflow: 100 days.
    number(word, value, 0, 8_640_000).map(|seconds| Duration::from_secs(u64::from(seconds)))
}

/// A size as mount.nfs rounds it: to a multiple of 4096, or of 1024 below that.
fn transfer(word: &str, value: &str) -> Result<Option<u32>, OptionError> {
    let bytes = number(word, value, 0, u32::MAX)?;
    if bytes == 0 {
        return Ok(None);
    }
    let bytes = bytes.clamp(TRANSFER_BYTES_MIN, TRANSFER_BYTES_MAX);
    Ok(Some(if bytes >= 4096 { bytes & !4095 } else { bytes & !1023 }))
}

/// The size of a ring: bytes, or a number with K, M or G.
fn ring_bytes(word: &str, value: &str) -> Result<u64, OptionError> {
    let (low, high) = (steadfast_journal::RING_BYTES_MIN, steadfast_journal::RING_BYTES_MAX);
    let (digits, shift) = match value.as_bytes().last() {
        Some(b'k' | b'K') => (&value[..value.len() - 1], 10),
        Some(b'm' | b'M') => (&value[..value.len() - 1], 20),
        Some(b'g' | b'G') => (&value[..value.len() - 1], 30),
        _ => (value, 0),
    };
    let bytes = digits.parse::<u64>().ok().and_then(|number| number.checked_mul(1 << shift));
    let bytes = bytes.filter(|bytes| (low..=high).contains(bytes));
    bytes.ok_or_else(|| {
        bad(word, format!("write {low} to {high} bytes, also as a number with K, M or G"))
    })
}

impl Options {
    /// The words that a replay of the journal needs to find the server.
    pub(crate) fn for_replay(&self) -> String {
        let ports = [("port", self.port), ("mountport", self.mount_port)];
        let ports = ports.iter().filter_map(|(word, port)| Some(format!("{word}={}", (*port)?)));
        let flag = (!self.from_reserved_port).then(|| "noresvport".to_owned());
        let bytes = self.write_bytes.map(|bytes| format!("wsize={bytes}"));
        ports.chain(flag).chain(bytes).collect::<Vec<_>>().join(",")
    }

    /// How long mounting is tried again while the server cannot be reached.
    #[must_use]
    pub fn retries_for(&self) -> Duration {
        let usual = if self.in_background { BACKGROUND_RETRY } else { Duration::ZERO };
        self.retry.unwrap_or(usual)
    }

    /// Parses the text after `-o`; later words outweigh earlier ones.
    ///
    /// # Errors
    /// For the first word that is unknown, impossible or unsupported.
    pub fn parse(text: &str) -> Result<Self, OptionError> {
        let mut options = Self::default();
        let (mut version, mut minor) = (None, None);
        for word in text.split(',').map(str::trim).filter(|word| !word.is_empty()) {
            match word.split_once('=') {
                Some((name, value)) => {
                    options.set(word, name, value)?;
                    match name {
                        "nfsvers" | "vers" => version = Some(value),
                        "minorversion" => minor = Some(value),
                        _ => {}
                    }
                }
                None => options.flag(word)?,
            }
        }
        let is_told_so = |minor: &str| match version.and_then(|version| version.strip_prefix("4")) {
            Some(rest) => rest.is_empty() || rest.strip_prefix('.') == Some(minor),
            None => false,
        };
        if minor.is_some_and(|minor| !is_told_so(minor)) {
            return Err(bad(
                text,
                "minorversion= is for nfsvers=4: write nfsvers=4.1 or 4.2 instead",
            ));
        }
        let times = &options.cache_times;
        if times.file_min > times.file_max || times.directory_min > times.directory_max {
            return Err(bad(text, "the least cache time is above the most"));
        }
        let default = Self::default();
        let of_journal = (options.journal_bytes, options.journal_sync);
        if options.journal.is_none() && of_journal != (default.journal_bytes, default.journal_sync)
        {
            return Err(bad(text, "journal_size and journal_sync need journal=DIRECTORY"));
        }
        if matches!(options.version, Version::V4(_)) && options.journal.is_some() {
            let why = "a journal needs nfsvers=3: leave out journal= or nfsvers=4";
            return Err(bad(text, why));
        }
        if matches!(options.version, Version::V4(_)) && options.compresses {
            let why = "compress needs nfsvers=3: leave out compress or nfsvers=4";
            return Err(bad(text, why));
        }
        Ok(options)
    }

    fn flag(&mut self, word: &str) -> Result<(), OptionError> {
        match word {
            "ro" => self.is_read_only = true,
            "rw" => self.is_read_only = false,
            "sync" => self.is_sync = true,
            "async" => self.is_sync = false,
            "hard" => self.is_soft = false,
            "soft" | "softerr" => self.is_soft = true,
            "ac" => self.cache_times = CacheTimes::default(),
            "noac" => {
                let zero = Duration::ZERO;
                self.cache_times = CacheTimes {
                    file_min: zero,
                    file_max: zero,
                    directory_min: zero,
                    directory_max: zero,
                };
                // As nfs(5) says: other clients shall see each write at once.
                self.is_sync = true;
            }
            "nolock" => self.local_locks = LocalLocks::ALL,
            "lock" => self.local_locks = LocalLocks::NONE,
            "resvport" => self.from_reserved_port = true,
            "noresvport" => self.from_reserved_port = false,
            "suid" => self.no_suid = false,
            "nosuid" => self.no_suid = true,
            "dev" => self.no_dev = false,
            "nodev" => self.no_dev = true,
            "exec" => self.no_exec = false,
            "noexec" => self.no_exec = true,
            "allow_other" => self.allow_other = true,
            "compress" => self.compresses = true,
            "nocompress" => self.compresses = false,
            "adaptive_depth" => self.adapts_depth = true,
            "noadaptive_depth" => self.adapts_depth = false,
            // What they let a user mount is no way to more rights (mount(8)); later words may undo that.
            "user" | "users" => (self.no_suid, self.no_dev, self.no_exec) = (true, true, true),
            "owner" | "group" => (self.no_suid, self.no_dev) = (true, true),
            "bg" => self.in_background = true,
            "fg" => self.in_background = false,
            // Files are always checked when they are opened, which nocto allows too.
            "cto" | "nocto" => {}
            "remount" => {
                return Err(unsupported(word, "unmount, and mount again with other options"));
            }
            "udp" => return Err(unsupported(word, "only proto=tcp is")),
            _ if IGNORED.contains(&word) || word.starts_with("x-") => {}
            _ => return Err(unknown(word)),
        }
        Ok(())
    }

    fn set(&mut self, word: &str, name: &str, value: &str) -> Result<(), OptionError> {
        let times = &mut self.cache_times;
        match name {
            "timeo" => {
                let deciseconds = number(word, value, 1, 6000)?;
                self.timeout = Duration::from_millis(u64::from(deciseconds) * 100);
            }
            "retrans" => self.retransmissions = number(word, value, 0, 100)?,
            "rsize" => self.read_bytes = transfer(word, value)?,
            "wsize" => self.write_bytes = transfer(word, value)?,
            "acregmin" => times.file_min = seconds(word, value)?,
            "acregmax" => times.file_max = seconds(word, value)?,
            "acdirmin" => times.directory_min = seconds(word, value)?,
            "acdirmax" => times.directory_max = seconds(word, value)?,
            "actimeo" => {
                let time = seconds(word, value)?;
                *times = CacheTimes {
                    file_min: time,
                    file_max: time,
                    directory_min: time,
                    directory_max: time,
                };
            }
            "nconnect" => self.connections = number(word, value, 1, CONNECTIONS_MAX)?,
            "port" => self.port = port(word, value)?,
            "mountport" => self.mount_port = port(word, value)?,
            "lockport" => self.lock_port = port(word, value)?,
            "proto" => match value {
                "tcp" | "tcp6" => {}
                "udp" | "udp6" => return Err(unsupported(word, "only proto=tcp is")),
                _ => return Err(bad(word, "write proto=tcp")),
            },
            "nfsvers" | "vers" => match value {
                "3" => self.version = Version::V3,
                "4" if matches!(self.version, Version::V4(_)) => {}
                "4" => self.version = Version::V4(None),
                "4.1" => self.version = Version::V4(Some(1)),
                "4.2" => self.version = Version::V4(Some(2)),
                "2" | "4.0" => return Err(unsupported(word, OTHER_VERSIONS)),
                _ => return Err(bad(word, "write nfsvers=3, 4.1 or 4.2")),
            },
            "minorversion" => match value {
                "1" | "2" => {
                    self.version = Version::V4(Some(number(word, value, 1, 2)?));
                }
                "0" => return Err(unsupported(word, OTHER_VERSIONS)),
                _ => return Err(bad(word, "write minorversion=1 or 2")),
            },
            "sec" => match value {
                "sys" => {}
                "none" | "krb5" | "krb5i" | "krb5p" => {
                    return Err(unsupported(word, "only sec=sys is, so far"));
                }
                _ => return Err(bad(word, "write sec=sys")),
            },
            "local_lock" => match value {
                "all" => self.local_locks = LocalLocks::ALL,
                "none" => self.local_locks = LocalLocks::NONE,
                "posix" => self.local_locks = LocalLocks { posix: true, flock: false },
                "flock" => self.local_locks = LocalLocks { posix: false, flock: true },
                _ => return Err(bad(word, "write local_lock=none, flock, posix or all")),
            },
            "retry" => {
                // As nfs(5) has it, with a bound that keeps sums of times far from overflow.
                let minutes = u64::from(number(word, value, 0, 1_000_000)?);
                self.retry = Some(Duration::from_secs(60 * minutes));
            }
            "lookupcache" if value == "all" => {}
            "journal" => {
                // The process that stays has another working directory.
                if !value.starts_with('/') {
                    return Err(bad(word, "write the directory's whole path, from /"));
                }
                self.journal = Some(PathBuf::from(value));
            }
            "journal_size" => self.journal_bytes = ring_bytes(word, value)?,
            "journal_sync" => {
                self.journal_sync = match value {
                    "always" => JournalSync::Always,
                    "fsync" => JournalSync::Fsync,
                    _ => JournalSync::Every(Duration::from_secs(u64::from(
                        number(word, value, 1, 3600).map_err(|_| {
                            bad(word, "write always, fsync, or a number of seconds from 1 to 3600")
                        })?,
                    ))),
                };
            }
            _ if IGNORED_WITH_VALUE.contains(&name) || name.starts_with("x-") => {}
            _ => return Err(unknown(word)),
        }
        Ok(())
    }
}

fn unknown(word: &str) -> OptionError {
    let known = FLAGS.iter().chain(WITH_VALUE).copied().collect::<Vec<_>>().join(", ");
    OptionError::Unknown { word: word.to_owned(), known }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Options {
        Options::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"))
    }

    #[test]
    fn good_options_mean_what_nfs_5_says() {
        assert_eq!(parsed(""), Options::default());
        assert_eq!(
            parsed("defaults,_netdev,fg,nocto,intr,x-systemd.automount,rw,noatime"),
            Options::default()
        );
        assert!(parsed("rw,ro").is_read_only);
        assert!(!parsed("ro,rw").is_read_only);
        assert_eq!(parsed("timeo=7,retrans=3,soft").timeout, Duration::from_millis(700));
        assert!(parsed("soft").is_soft && !parsed("soft,hard").is_soft);
        assert_eq!(parsed("rsize=8192").read_bytes, Some(8192));
        assert_eq!(parsed("rsize=9000,wsize=1").read_bytes, Some(8192));
        assert_eq!(parsed("wsize=1").write_bytes, Some(1024));
        assert_eq!(parsed("wsize=99999999").write_bytes, Some(TRANSFER_BYTES_MAX));
        assert_eq!(parsed("wsize=0").write_bytes, None);
        assert_eq!(parsed("actimeo=5").cache_times.directory_max, Duration::from_secs(5));
        assert_eq!(parsed("acregmin=1,acregmax=2").cache_times.file_max, Duration::from_secs(2));
        let none = parsed("noac");
        assert!(none.is_sync && none.cache_times.file_max.is_zero());
        assert_eq!(parsed("nconnect=4").connections, 4);
        assert_eq!((parsed("port=2049").port, parsed("port=0").port), (Some(2049), None));
        assert_eq!(parsed("mountport=99").mount_port, Some(99));
        assert_eq!(parsed("lockport=98").lock_port, Some(98));
        for (text, posix, flock) in [
            ("", false, false),
            ("nolock", true, true),
            ("nolock,lock", false, false),
            ("local_lock=all", true, true),
            ("local_lock=posix", true, false),
            ("local_lock=flock", false, true),
            ("local_lock=all,local_lock=none", false, false),
        ] {
            assert_eq!(parsed(text).local_locks, LocalLocks { posix, flock }, "{text}");
        }
        assert!(parsed("nosuid,nodev,noexec").no_exec);
        let user = parsed("user");
        assert!(user.no_suid && user.no_dev && user.no_exec && !parsed("users,exec").no_exec);
        assert!(parsed("owner").no_suid && parsed("group").no_dev && !parsed("owner").no_exec);
        assert_eq!(parsed("").retries_for(), Duration::ZERO);
        assert_eq!(parsed("bg").retries_for(), Duration::from_secs(600_000));
        assert_eq!(parsed("bg,retry=2").retries_for(), Duration::from_secs(120));
        assert!(!parsed("bg,fg").in_background);
        assert!(!parsed("").adapts_depth && parsed("adaptive_depth").adapts_depth);
        assert!(!parsed("adaptive_depth,noadaptive_depth").adapts_depth);
        assert_eq!(parsed("proto=tcp,nfsvers=3,vers=3,sec=sys"), Options::default());
        for (text, minor) in [
            ("nfsvers=4", None),
            ("vers=4.1", Some(1)),
            ("nfsvers=4.2", Some(2)),
            ("nfsvers=4,minorversion=1", Some(1)),
            ("minorversion=1,vers=4", Some(1)),
            ("vers=4.2,minorversion=2", Some(2)),
        ] {
            let version = parsed(&format!("nolock,{text}")).version;
            assert_eq!(version, Version::V4(minor), "{text}");
        }
        assert!(parsed("compress").compresses && !parsed("compress,nocompress").compresses);
        let journal = parsed("journal=/j/k,journal_size=32M,journal_sync=always,compress");
        assert_eq!(journal.journal.as_deref(), Some(std::path::Path::new("/j/k")));
        assert_eq!((journal.journal_bytes, journal.compresses), (32 << 20, true));
        assert_eq!(journal.journal_sync, JournalSync::Always);
        let every = JournalSync::Every(Duration::from_secs(5));
        assert_eq!(parsed("journal=/j,journal_sync=5").journal_sync, every);
    }

    #[test]
    fn bad_options_are_named_with_what_is_possible() {
        for (text, part) in [
            ("fast", "unknown mount option \"fast\"; options are ro, rw"),
            ("rw,hrad", "\"hrad\""),
            ("bandwidth=3", "\"bandwidth=3\""),
            ("timeo=0", "from 1 to 6000"),
            ("timeo=x", "from 1 to 6000"),
            ("retrans=-1", "from 0 to 100"),
            ("nconnect=17", "from 1 to 16"),
            ("port=65536", "from 0 to 65535"),
            ("rsize=4k", "write a number"),
            ("acregmin=60,acregmax=3", "above the most"),
            ("proto=udp", "only proto=tcp"),
            ("udp", "only proto=tcp"),
            ("proto=rdma", "write proto=tcp"),
            ("nfsvers=4.0", "nfsvers=3, 4.1 and 4.2 are"),
            ("nfsvers=4,minorversion=0", "nfsvers=3, 4.1 and 4.2 are"),
            ("vers=5", "write nfsvers=3, 4.1 or 4.2"),
            ("vers=3,minorversion=1", "minorversion= is for nfsvers=4"),
            ("minorversion=2,nfsvers=3", "minorversion= is for nfsvers=4"),
            ("minorversion=1", "minorversion= is for nfsvers=4"),
            ("minorversion=2,nfsvers=4.1", "minorversion= is for nfsvers=4"),
            ("nfsvers=4.1,minorversion=2", "minorversion= is for nfsvers=4"),
            ("nolock,nfsvers=4.2,journal=/j", "a journal needs nfsvers=3"),
            ("compress,nfsvers=4.2", "compress needs nfsvers=3"),
            ("sec=krb5p", "only sec=sys"),
            ("journal=var/x", "whole path, from /"),
            ("journal_sync=3", "need journal="),
            ("journal=/j,journal_size=1", "as a number with K, M or G"),
            ("journal=/j,journal_size=M", "as a number with K, M or G"),
            ("journal=/j,journal_sync=0", "always, fsync, or a number of seconds"),
            ("local_lock=some", "none, flock, posix or all"),
            ("remount,ro", "unmount, and mount again"),
            ("retry=x", "from 0 to"),
        ] {
            let error = Options::parse(text).expect_err(text).to_string();
            assert!(error.contains(part), "{text}: {error}");
        }
    }
}
