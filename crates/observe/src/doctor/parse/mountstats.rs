//! `/proc/self/mountstats`: what the kernel's NFS client knows of each mount.

use super::{lines, number, number_or_zero, unescaped};

/// Kinds of operations of one mount that are read; NFSv4.2 has 76.
const OPERATIONS_MAX: usize = 256;

/// A mount by NFS. Counts are since it was mounted.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NfsMount {
    /// `SERVER:/PATH`.
    pub device: String,
    /// Where it is mounted.
    pub mount_point: String,
    /// `nfs` or `nfs4`.
    pub kind: String,
    /// Options with commas, as they are in force.
    pub options: String,
    /// Seconds since it was mounted.
    pub age_s: u64,
    /// The kernel's counters of events, in the order of `enum nfs_stat_eventcounters`.
    pub events: Vec<u64>,
    /// The kernel's counters of bytes and pages, in the order of `enum nfs_stat_bytecounters`.
    pub bytes: Vec<u64>,
    /// Its connections.
    pub transports: Vec<Transport>,
    /// Its operations that were called.
    pub operations: Vec<MountOperation>,
}

/// A connection.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Transport {
    /// `tcp`, `udp` or `rdma`.
    pub kind: String,
    /// How often it was made.
    pub connects: u64,
    /// Calls that were sent.
    pub sends: u64,
    /// Replies to no call.
    pub bad_xids: u64,
    /// Sum over calls of those in flight.
    pub in_flight_sum: u64,
    /// Sum over calls of those that waited for a slot.
    pub backlog_sum: u64,
    /// Most slots that were used.
    pub slots_max: u64,
}

/// What became of one kind of call.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MountOperation {
    /// Its name in lower case.
    pub name: String,
    /// Calls.
    pub operations: u64,
    /// Times that they were sent.
    pub transmissions: u64,
    /// Times that the kernel gave up waiting, and said so.
    pub major_timeouts: u64,
    /// Bytes that were sent.
    pub sent_bytes: u64,
    /// Bytes that came back.
    pub received_bytes: u64,
    /// Sum of the times until they were sent, in ms.
    pub queue_ms: u64,
    /// Sum of the times from there until their replies came, in ms.
    pub response_ms: u64,
    /// Sum of the times of all that, in ms.
    pub execute_ms: u64,
    /// Those that failed, if the kernel counts them.
    pub errors: u64,
}

/// Which counter of [`NfsMount::events`] (Linux, `include/linux/nfs_iostat.h`).
#[derive(Clone, Copy, Debug)]
pub enum Event {
    /// Names that were checked again.
    DentryRevalidate = 1,
    /// Names that were looked up.
    Lookup = 5,
    /// Rights that were asked for.
    Access = 6,
    /// Replies that asked to try later.
    Delay = 24,
}

/// Which counter of [`NfsMount::bytes`].
#[derive(Clone, Copy, Debug)]
pub enum Bytes {
    /// That programs read through the cache.
    Read = 0,
    /// That programs read past the cache.
    DirectRead = 2,
    /// That were read from the server.
    ServerRead = 4,
}

impl NfsMount {
    /// A counter of events.
    pub fn event(&self, which: Event) -> u64 {
        self.events.get(which as usize).copied().unwrap_or(0)
    }

    /// A counter of bytes.
    pub fn byte_count(&self, which: Bytes) -> u64 {
        self.bytes.get(which as usize).copied().unwrap_or(0)
    }

    /// Whether an option is there, as a word of its own.
    pub fn has_option(&self, word: &str) -> bool {
        self.options.split(',').any(|option| option == word)
    }

    /// The value of an option.
    pub fn option(&self, name: &str) -> Option<&str> {
        self.options
            .split(',')
            .find_map(|option| option.split_once('=').filter(|(key, _)| *key == name))
            .map(|(_, value)| value)
    }

    /// The number of an option.
    pub fn option_number(&self, name: &str) -> Option<u64> {
        self.option(name)?.parse().ok()
    }

    /// Whether its calls are datagrams.
    pub fn is_udp(&self) -> bool {
        self.option("proto").is_some_and(|proto| proto.starts_with("udp"))
    }

    /// The first retransmission of a call comes after this, in seconds (nfs(5), `timeo`).
    pub fn timer_s(&self) -> f64 {
        let tenths = self.option_number("timeo").unwrap_or(if self.is_udp() { 11 } else { 600 });
        tenths.max(1) as f64 / 10.0
    }

    /// An operation by its name.
    pub fn operation(&self, name: &str) -> Option<&MountOperation> {
        self.operations.iter().find(|operation| operation.name == name)
    }

    /// Sums of all operations, without a name.
    pub fn total(&self) -> MountOperation {
        let mut sum = MountOperation::default();
        for one in &self.operations {
            sum.add(one);
        }
        sum
    }

    /// What happened since another time, if that was of the same mount.
    #[must_use]
    pub fn since(&self, before: &Self) -> Self {
        if self.age_s < before.age_s {
            return self.clone();
        }
        let less = |now: &[u64], then: &[u64]| -> Vec<u64> {
            let then = then.iter().copied().chain(std::iter::repeat(0));
            now.iter().zip(then).map(|(now, then)| now.saturating_sub(then)).collect()
        };
        Self {
            events: less(&self.events, &before.events),
            bytes: less(&self.bytes, &before.bytes),
            operations: self
                .operations
                .iter()
                .map(|one| match before.operation(&one.name) {
                    Some(before) => one.since(before),
                    None => one.clone(),
                })
                .collect(),
            transports: self
                .transports
                .iter()
                .enumerate()
                .map(|(index, one)| match before.transports.get(index) {
                    Some(before) => one.since(before),
                    None => one.clone(),
                })
                .collect(),
            age_s: self.age_s.saturating_sub(before.age_s),
            ..self.clone()
        }
    }
}

impl Transport {
    fn since(&self, before: &Self) -> Self {
        Self {
            connects: self.connects.saturating_sub(before.connects),
            sends: self.sends.saturating_sub(before.sends),
            bad_xids: self.bad_xids.saturating_sub(before.bad_xids),
            in_flight_sum: self.in_flight_sum.saturating_sub(before.in_flight_sum),
            backlog_sum: self.backlog_sum.saturating_sub(before.backlog_sum),
            ..self.clone()
        }
    }
}

impl MountOperation {
    fn add(&mut self, other: &Self) {
        let sum = |one: u64, other: u64| one.saturating_add(other);
        *self = Self {
            name: String::new(),
            operations: sum(self.operations, other.operations),
            transmissions: sum(self.transmissions, other.transmissions),
            major_timeouts: sum(self.major_timeouts, other.major_timeouts),
            sent_bytes: sum(self.sent_bytes, other.sent_bytes),
            received_bytes: sum(self.received_bytes, other.received_bytes),
            queue_ms: sum(self.queue_ms, other.queue_ms),
            response_ms: sum(self.response_ms, other.response_ms),
            execute_ms: sum(self.execute_ms, other.execute_ms),
            errors: sum(self.errors, other.errors),
        };
    }

    fn since(&self, before: &Self) -> Self {
        let less = |now: u64, then: u64| now.saturating_sub(then);
        Self {
            name: self.name.clone(),
            operations: less(self.operations, before.operations),
            transmissions: less(self.transmissions, before.transmissions),
            major_timeouts: less(self.major_timeouts, before.major_timeouts),
            sent_bytes: less(self.sent_bytes, before.sent_bytes),
            received_bytes: less(self.received_bytes, before.received_bytes),
            queue_ms: less(self.queue_ms, before.queue_ms),
            response_ms: less(self.response_ms, before.response_ms),
            execute_ms: less(self.execute_ms, before.execute_ms),
            errors: less(self.errors, before.errors),
        }
    }

    /// Times that calls were sent again.
    pub fn retransmissions(&self) -> u64 {
        self.transmissions.saturating_sub(self.operations)
    }
}

/// Reads `/proc/self/mountstats`: its mounts by NFS.
pub fn mountstats(text: &str) -> Vec<NfsMount> {
    let mut mounts: Vec<NfsMount> = Vec::new();
    // Lines of other file systems belong to no mount of ours.
    let mut is_nfs = false;
    let mut is_in_operations = false;
    for line in lines(text) {
        if line.starts_with("device ") {
            is_in_operations = false;
            let mount = head(line);
            is_nfs = mount.is_some();
            mounts.extend(mount);
            continue;
        }
        let Some(mount) = mounts.last_mut().filter(|_| is_nfs) else { continue };
        let line = line.trim();
        if line == "per-op statistics" {
            is_in_operations = true;
            continue;
        }
        let Some((key, rest)) = line.split_once(':') else { continue };
        if is_in_operations {
            // Each has one line, and no version of NFS as many.
            if mount.operations.len() < OPERATIONS_MAX
                && mount.operation(&key.to_ascii_lowercase()).is_none()
            {
                mount.operations.extend(operation(key, rest));
            }
            continue;
        }
        let numbers = || rest.split_whitespace().map_while(|word| word.parse().ok()).collect();
        match key {
            "opts" => rest.trim().clone_into(&mut mount.options),
            "age" => mount.age_s = rest.trim().parse().unwrap_or(0),
            "events" => mount.events = numbers(),
            "bytes" => mount.bytes = numbers(),
            "xprt" => mount.transports.extend(transport(rest)),
            _ => {}
        }
    }
    mounts
}

/// `device SERVER:/PATH mounted on DIR with fstype nfs4 statvers=1.1`
fn head(line: &str) -> Option<NfsMount> {
    let (device, rest) = line.strip_prefix("device ")?.split_once(" mounted on ")?;
    let (mount_point, rest) = rest.rsplit_once(" with fstype ")?;
    let kind = rest.split_whitespace().next()?;
    let is_nfs = matches!(kind, "nfs" | "nfs4");
    is_nfs.then(|| NfsMount {
        device: unescaped(device),
        mount_point: unescaped(mount_point),
        kind: kind.to_owned(),
        ..NfsMount::default()
    })
}

/// Columns of `net/sunrpc/xprtsock.c`, `xs_tcp_print_stats` and `xs_udp_print_stats`.
fn transport(rest: &str) -> Option<Transport> {
    let mut words = rest.split_whitespace();
    let kind = words.next()?.to_owned();
    let mut next = || number_or_zero(&mut words);
    let _port = next();
    let _binds = next();
    let connects = if kind == "udp" { 0 } else { next() };
    if kind != "udp" {
        let _connect_time = next();
        let _idle_time = next();
    }
    let sends = next();
    let _receives = next();
    let bad_xids = next();
    let in_flight_sum = next();
    let backlog_sum = next();
    let slots_max = next();
    Some(Transport { kind, connects, sends, bad_xids, in_flight_sum, backlog_sum, slots_max })
}

fn operation(name: &str, rest: &str) -> Option<MountOperation> {
    let mut words = rest.split_whitespace();
    let operations = number(&mut words)?;
    if operations == 0 {
        return None;
    }
    let mut next = || number_or_zero(&mut words);
    Some(MountOperation {
        name: name.to_ascii_lowercase(),
        operations,
        transmissions: next(),
        major_timeouts: next(),
        sent_bytes: next(),
        received_bytes: next(),
        queue_ms: next(),
        response_ms: next(),
        execute_ms: next(),
        errors: next(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "device proc mounted on /proc with fstype proc\n\
device server:/home mounted on /home\\040dir with fstype nfs4 statvers=1.1\n\
\topts:\trw,vers=4.2,rsize=1048576,wsize=1048576,hard,proto=tcp,timeo=600,local_lock=none\n\
\tage:\t3600\n\
\tcaps:\tcaps=0x3ffdf\n\
\tsec:\tflavor=1,pseudoflavor=1\n\
\tevents:\t10 20 3 4 5 60 70 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 0 0 \n\
\tbytes:\t1000 2000 30 40 500 600 7 8 \n\
\tRPC iostats version: 1.1  p/v: 100003/4 (nfs)\n\
\txprt:\ttcp 812 1 2 0 5 100 100 3 150 40 64 0 0\n\
\tper-op statistics\n\
\t        NULL: 1 1 0 44 24 0 0 0 0\n\
\t        READ: 100 103 1 20000 800000 50 400 460 2\n\
\t       WRITE: 0 0 0 0 0 0 0 0 0\n\
\n\
device /dev/vda mounted on / with fstype ext4\n\
\topts:\tignored\n";

    #[test]
    fn a_mount_is_read() {
        let mounts = mountstats(TEXT);
        let [mount] = mounts.as_slice() else { panic!("{mounts:?}") };
        assert_eq!(
            (mount.device.as_str(), mount.mount_point.as_str()),
            ("server:/home", "/home dir")
        );
        assert_eq!((mount.age_s, mount.option_number("rsize")), (3600, Some(1_048_576)));
        assert!(mount.has_option("hard") && !mount.has_option("har") && !mount.is_udp());
        assert!((mount.timer_s() - 60.0).abs() < 1e-9);
        assert_eq!((mount.event(Event::Lookup), mount.event(Event::Access)), (60, 70));
        assert_eq!((mount.event(Event::DentryRevalidate), mount.event(Event::Delay)), (20, 25));
        assert_eq!(
            (mount.byte_count(Bytes::Read), mount.byte_count(Bytes::ServerRead)),
            (1000, 500)
        );
        let transport = &mount.transports[0];
        assert_eq!((transport.connects, transport.sends, transport.bad_xids), (2, 100, 3));
        assert_eq!((transport.backlog_sum, transport.slots_max), (40, 64));
        let read = mount.operation("read").expect("one");
        assert_eq!((read.operations, read.retransmissions(), read.major_timeouts), (100, 3, 1));
        assert_eq!((read.response_ms, read.execute_ms, read.errors), (400, 460, 2));
        assert!(mount.operation("write").is_none());
        // A line that comes twice is the first one's.
        let doubled = TEXT.replace("       WRITE: 0", "        READ: 9");
        assert_eq!(mountstats(&doubled)[0].total().operations, 101);
        assert_eq!(mount.total().operations, 101);
    }

    #[test]
    fn an_interval_is_the_difference_unless_it_was_mounted_anew() {
        let before = mountstats(TEXT).remove(0);
        let mut after = before.clone();
        after.age_s += 5;
        after.operations[1].operations += 10;
        after.operations[1].transmissions += 12;
        after.bytes[0] += 9;
        let between = after.since(&before);
        assert_eq!((between.total().operations, between.total().retransmissions()), (10, 2));
        assert_eq!(between.byte_count(Bytes::Read), 9);
        after.age_s = 1;
        assert_eq!(after.since(&before).total().operations, 111);
    }

    #[test]
    fn datagrams_have_fewer_columns() {
        let text = "device s:/x mounted on /x with fstype nfs statvers=1.1\n\
                    \topts:\trw,vers=3,proto=udp,timeo=7\n\txprt:\tudp 812 1 100 99 1 150 3 16 0 0\n";
        let mount = mountstats(text).remove(0);
        let transport = &mount.transports[0];
        assert_eq!((transport.sends, transport.bad_xids, transport.backlog_sum), (100, 1, 3));
        assert!(mount.is_udp() && (mount.timer_s() - 0.7).abs() < 1e-9);
    }
}
