//! Which hosts have locks by NLM, as the next start of the server has to know it; and the state
//! number, by which hosts see that this one has restarted.
//!
//! `nsm/hosts` in the state directory has a line for each host: its address and its name. A host
//! is written there before it gets its first lock. A line begins with `lost` if the host has lost its
//! locks and was not told yet. `nsm/state` has the number: it is odd while the server is up, and rises
//! whenever hosts have lost locks.

use std::collections::BTreeSet;
use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use parking_lot::Mutex;
use steadfast_sys::durable_file;

use crate::error::{StartError, Tried};
use crate::written_name::{read_name, write_name};

/// Before the line of a host that has lost its locks and was not told yet.
const LOST: &str = "lost ";
/// Hosts that are recorded at most, and of one address. Those without locks make room; the engine
/// has half as many. Others get no locks.
const HOSTS_MAX: usize = 8_192;
const HOSTS_OF_ADDRESS_MAX: usize = 128;

/// A host that has locks, or had some when it was recorded.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct RecordedHost {
    pub(crate) address: IpAddr,
    pub(crate) name: Vec<u8>,
}

impl From<(Vec<u8>, IpAddr)> for RecordedHost {
    fn from((name, address): (Vec<u8>, IpAddr)) -> Self {
        Self { address, name }
    }
}

impl RecordedHost {
    fn line(&self) -> String {
        let mut line = format!("{} ", self.address);
        write_name(&mut line, &self.name);
        line.push('\n');
        line
    }

    fn of_line(line: &str) -> Option<Self> {
        let (address, written) = line.split_once(' ')?;
        Some(Self { name: read_name(written)?, address: address.parse().ok()? })
    }
}

/// Who is recorded.
#[derive(Debug, Default)]
struct Hosts {
    /// They have locks, or had some since this start.
    current: BTreeSet<RecordedHost>,
    /// They have lost their locks, and were not told yet.
    former: BTreeSet<RecordedHost>,
    /// Counts the changes of both.
    changes: u64,
}

impl Hosts {
    /// Whether no other host of this address may be recorded.
    fn is_crowded(&self, address: IpAddr) -> bool {
        let first = RecordedHost { address, name: Vec::new() };
        let its = self.current.range(first..).take_while(|host| host.address == address);
        self.current.len() >= HOSTS_MAX || its.count() >= HOSTS_OF_ADDRESS_MAX
    }
}

/// The record of hosts.
#[derive(Debug)]
pub(crate) struct Nsm {
    directory: PathBuf,
    state_number: u32,
    hosts: Mutex<Hosts>,
    /// How many changes are on the disk. Who holds it writes for all who wait for it.
    written: Mutex<u64>,
}

impl Nsm {
    /// Reads the record. `is_lost`: what clients had locked was lost. If there are hosts in it then,
    /// the state number rises.
    ///
    /// # Errors
    /// When it cannot be read or written.
    pub(crate) fn open(state_directory: &Path, is_lost: bool) -> Result<Self, StartError> {
        let directory = state_directory.join("nsm");
        let shown = directory.display();
        std::fs::create_dir_all(&directory).tried_with(|| format!("cannot make {shown}"))?;
        let read = |name: &str| {
            let path = directory.join(name);
            match std::fs::read_to_string(&path) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(String::new()),
                read => read.tried_with(|| format!("cannot read {}", path.display())),
            }
        };
        let (mut current, mut former) = (BTreeSet::new(), BTreeSet::new());
        for line in read("hosts")?.lines() {
            let of_former = line.strip_prefix(LOST);
            let Some(host) = RecordedHost::of_line(of_former.unwrap_or(line)) else {
                tracing::warn!("{shown}/hosts has a line that names no host: {line:?}");
                continue;
            };
            if is_lost || of_former.is_some() {
                former.insert(host);
            } else {
                current.insert(host);
            }
        }
        let last = read("state")?.trim().parse::<u32>().unwrap_or(0);
        let rises = is_lost && !former.is_empty();
        let next = if rises { last.wrapping_add(2) } else { last };
        let state_number = next | 1;
        if state_number != last {
            durable_file::replace(&directory.join("state"), format!("{state_number}\n").as_bytes())
                .tried_with(|| format!("cannot write {shown}/state"))?;
        }
        // Another start may come before they are told, and must know of it.
        let changes = u64::from(rises);
        let hosts = Mutex::new(Hosts { current, former, changes });
        let nsm = Self { directory, state_number, hosts, written: Mutex::new(0) };
        nsm.write_until(changes).tried_with(|| "cannot write nsm/hosts".to_owned())?;
        Ok(nsm)
    }

    /// Odd, and another one after each start at which hosts had lost locks.
    pub(crate) fn state_number(&self) -> u32 {
        self.state_number
    }

    /// Hosts that have lost the locks that they had before this start.
    pub(crate) fn former(&self) -> Vec<RecordedHost> {
        self.hosts.lock().former.iter().cloned().collect()
    }

    /// Records a host. It is on the disk when this returns. `in_use` says who must stay recorded, this
    /// one among them, if anybody knows: it is asked when there are too many.
    ///
    /// # Errors
    /// When it cannot be written, or too many are recorded.
    pub(crate) fn record(
        &self,
        host: RecordedHost,
        in_use: impl FnOnce() -> Option<BTreeSet<RecordedHost>>,
    ) -> io::Result<()> {
        let change = {
            let mut hosts = self.hosts.lock();
            if !hosts.current.contains(&host) {
                // Nobody is recorded meanwhile, whom it would not name.
                if hosts.is_crowded(host.address)
                    && let Some(in_use) = in_use()
                {
                    hosts.current.retain(|host| in_use.contains(host));
                }
                if hosts.is_crowded(host.address) {
                    return Err(io::Error::other("too many hosts have locks"));
                }
                hosts.current.insert(host);
                hosts.changes += 1;
            }
            hosts.changes
        };
        self.write_until(change)
    }

    /// Those of before were told, and have had their time to take their locks again.
    ///
    /// # Errors
    /// When it cannot be written.
    pub(crate) fn forget_former(&self) -> io::Result<()> {
        let change = {
            let mut hosts = self.hosts.lock();
            if hosts.former.is_empty() {
                return Ok(());
            }
            hosts.former.clear();
            hosts.changes += 1;
            hosts.changes
        };
        self.write_until(change)
    }

    /// The server stops: only hosts that have locks now are to be told at the next start. Those of
    /// before stay, if they are recorded still.
    ///
    /// # Errors
    /// When it cannot be written.
    pub(crate) fn keep(&self, having_locks: &[RecordedHost]) -> io::Result<()> {
        let change = {
            let mut hosts = self.hosts.lock();
            let count = hosts.current.len();
            hosts.current.retain(|host| having_locks.contains(host));
            hosts.changes += u64::from(hosts.current.len() != count);
            hosts.changes
        };
        self.write_until(change)
    }

    /// Writes unless somebody else has written that change.
    fn write_until(&self, change: u64) -> io::Result<()> {
        let mut written = self.written.lock();
        if *written >= change {
            return Ok(());
        }
        let (text, changes) = {
            let hosts = self.hosts.lock();
            let mut text: String = hosts.current.iter().map(RecordedHost::line).collect();
            for host in &hosts.former {
                text.push_str(LOST);
                text.push_str(&host.line());
            }
            (text, hosts.changes)
        };
        durable_file::replace(&self.directory.join("hosts"), text.as_bytes())?;
        *written = changes;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(address: &str, name: &[u8]) -> RecordedHost {
        RecordedHost { address: address.parse().expect("an address"), name: name.to_vec() }
    }

    #[test]
    fn any_name_is_read_as_it_was_written() {
        for name in [&b"a.example"[..], b"", b"100%", b"two words\n", b"\xff\0"] {
            for address in ["10.0.0.1", "fe80::1"] {
                let host = host(address, name);
                let line = host.line();
                assert_eq!(line.lines().count(), 1);
                assert_eq!(RecordedHost::of_line(line.trim_end_matches('\n')), Some(host));
            }
        }
        for line in ["", "10.0.0.1", "x y", "10.0.0.1 %4", "10.0.0.1 %zz"] {
            assert_eq!(RecordedHost::of_line(line), None, "{line}");
        }
    }

    #[test]
    fn hosts_are_told_after_the_next_start() {
        let place = tempfile::tempdir().expect("a directory");
        let open =
            || Nsm::open(place.path(), true).map_err(|error| error.to_string()).expect("opened");
        let first = open();
        assert_eq!((first.state_number(), first.former()), (1, vec![]));
        assert_eq!(open().state_number(), 1, "nobody has lost anything");
        let (one, two) = (host("10.0.0.1", b"one"), host("10.0.0.2", b"two"));
        first.record(one.clone(), || None).expect("recorded");
        first.record(one.clone(), || None).expect("recorded");
        first.record(two.clone(), || None).expect("recorded");

        let second = open();
        assert_eq!((second.state_number(), second.former()), (3, vec![one.clone(), two.clone()]));
        second.record(two.clone(), || None).expect("recorded");
        // A stop or crash before all were told.
        second.keep(&[]).expect("kept");
        let third = open();
        assert_eq!((third.state_number(), third.former().len()), (5, 2));
        third.record(two.clone(), || None).expect("recorded");
        third.forget_former().expect("forgotten");
        third.keep(std::slice::from_ref(&two)).expect("kept");
        assert_eq!(open().former(), [two]);
        let last = open();
        last.forget_former().expect("forgotten");
        assert_eq!((open().state_number(), open().former()), (9, vec![]));
    }

    #[test]
    fn a_start_that_lost_nothing_tells_nobody_but_who_was_to_be_told() {
        let place = tempfile::tempdir().expect("a directory");
        let open = |is_lost| {
            Nsm::open(place.path(), is_lost).map_err(|error| error.to_string()).expect("opened")
        };
        let (one, two) = (host("10.0.0.1", b"one"), host("10.0.0.2", b"two"));
        open(true).record(one.clone(), || None).expect("recorded");
        let second = open(false);
        assert_eq!((second.state_number(), second.former()), (1, vec![]));
        let third = open(true);
        assert_eq!((third.state_number(), third.former()), (3, vec![one.clone()]));
        assert_eq!(
            open(false).former(),
            std::slice::from_ref(&one),
            "also if nobody was recorded since"
        );
        third.record(two.clone(), || None).expect("recorded");
        // Killed before the first one was told.
        let fourth = open(false);
        assert_eq!((fourth.state_number(), fourth.former()), (3, vec![one.clone()]));
        fourth.forget_former().expect("forgotten");
        assert_eq!(open(false).former(), []);
        assert_eq!(open(true).former(), [two]);
    }

    #[test]
    fn names_without_locks_make_room() {
        let place = tempfile::tempdir().expect("a directory");
        let open = |is_lost| {
            Nsm::open(place.path(), is_lost).map_err(|error| error.to_string()).expect("opened")
        };
        let nsm = open(true);
        let (busy, other) = (host("10.0.0.1", b"busy"), host("10.0.0.2", b"other"));
        let in_use = || Some(BTreeSet::from([busy.clone(), other.clone()]));
        for host in [&busy, &other] {
            nsm.record(host.clone(), in_use).expect("recorded");
        }
        for number in 0..HOSTS_OF_ADDRESS_MAX + 20 {
            let name = format!("name{number}");
            nsm.record(host("10.0.0.1", name.as_bytes()), in_use).expect("recorded");
        }
        let left = open(true).former();
        assert!(left.len() < 2 + HOSTS_OF_ADDRESS_MAX);
        assert!(left.contains(&busy) && left.contains(&other));
        // If all have locks, none more is recorded.
        for number in 0..=HOSTS_OF_ADDRESS_MAX {
            let name = format!("name{number}");
            let recorded = nsm.record(host("10.0.0.3", name.as_bytes()), || None);
            assert_eq!(recorded.is_ok(), number < HOSTS_OF_ADDRESS_MAX);
        }
    }

    /// A thread of the engine still has the identity of the user whose call it did last.
    #[test]
    fn a_host_is_recorded_by_whatever_thread() {
        if !rustix::process::geteuid().is_root() {
            println!("skipped: needs root");
            return;
        }
        let place = tempfile::tempdir().expect("a directory");
        let open = || Nsm::open(place.path(), true).map_err(|error| error.to_string());
        let nsm = open().expect("opened");
        let host = host("10.0.0.1", b"one");
        std::thread::scope(|scope| {
            scope.spawn(|| {
                steadfast_sys::identity::assume(1234, 1234, &[]).expect("root's to take");
                nsm.record(host.clone(), || None).expect("recorded");
            });
        });
        assert_eq!(open().expect("opened").former(), [host]);
    }

    #[test]
    fn those_who_come_at_once_are_all_on_the_disk() {
        let place = tempfile::tempdir().expect("a directory");
        let open =
            || Nsm::open(place.path(), true).map_err(|error| error.to_string()).expect("opened");
        let nsm = open();
        std::thread::scope(|scope| {
            for number in 0..8 {
                let nsm = &nsm;
                scope.spawn(move || {
                    nsm.record(host(&format!("10.0.0.{number}"), b"h"), || None).expect("recorded");
                });
            }
        });
        assert_eq!(open().former().len(), 8);
    }
}
