//! Tables of calls: by operation, client, user, server and file.

use std::collections::HashMap;
use std::fmt;
use std::net::IpAddr;

use super::connection::{Observed, Observer};
use super::handle::Names;
use super::histogram::Histogram;
use super::messages::User;
use super::programs::OperationKey;

/// Rows of one table. When there are more, the eighth with the fewest calls is put together.
const ROWS_MAX: usize = 4096;

/// What a table has its rows by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum By {
    /// Procedures, and operations inside COMPOUNDs.
    Operation,
    /// The client's address.
    Client,
    /// The user's number.
    User,
    /// The server's address, with the share as handles tell it.
    Server,
    /// The file handle.
    File,
}

impl By {
    /// All of them, in the order in which they are shown.
    pub const ALL: [Self; 5] =
        [Self::Operation, Self::Client, Self::User, Self::Server, Self::File];

    /// Its name in lower case.
    pub fn name(self) -> &'static str {
        match self {
            Self::Operation => "operation",
            Self::Client => "client",
            Self::User => "user",
            Self::Server => "server",
            Self::File => "file",
        }
    }
}

/// What a row is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Key {
    /// A procedure, or an operation inside COMPOUNDs.
    Operation(OperationKey),
    /// A client.
    Client(IpAddr),
    /// A user.
    User(User),
    /// A server, and a share if the call had a handle.
    Server(IpAddr, Option<u64>),
    /// A file.
    File(u64),
}

impl Key {
    /// What to show.
    pub fn label(&self, names: &Names) -> String {
        match self {
            Self::Operation(key) => key.to_string(),
            Self::User(User::Uid(uid)) => format!("uid {uid}"),
            Self::User(User::Nobody) => "nobody".to_owned(),
            Self::User(User::Gss) => "kerberos".to_owned(),
            Self::User(User::Other) => "other credentials".to_owned(),
            Self::Client(address) | Self::Server(address, None) => address.to_string(),
            Self::Server(address, Some(share)) => match names.share(*share) {
                Some(name) => format!("{address} {name}"),
                None => format!("{address} {share:016x}"),
            },
            Self::File(file) => match names.file(*file) {
                Some(name) => format!("{file:016x} {name}"),
                None => format!("{file:016x}"),
            },
        }
    }
}

/// What is counted.
#[derive(Clone, Debug, Default)]
pub struct Row {
    /// Calls; in the rows of operations inside COMPOUNDs and of files, operations.
    pub calls: u64,
    /// Calls that failed, with those that RPC refused.
    pub errors: u64,
    /// How often calls were sent again.
    pub retransmissions: u64,
    /// Calls whose reply did not come in time.
    pub unanswered: u64,
    /// Bytes of file data that were read.
    pub read_bytes: u64,
    /// Bytes of file data that were written.
    pub written_bytes: u64,
    /// How long the replies took.
    pub latency: Histogram,
}

impl Row {
    fn add(&mut self, observed: &Observed<'_>) {
        self.calls += 1;
        self.errors += u64::from(observed.status.is_error());
        self.retransmissions += u64::from(observed.retransmissions);
        self.unanswered += u64::from(observed.is_unanswered);
        self.read_bytes += observed.read_bytes;
        self.written_bytes += observed.written_bytes;
        if let Some(latency_ns) = observed.latency_ns {
            self.latency.add(latency_ns);
        }
    }

    fn add_all(&mut self, other: &Self) {
        self.calls += other.calls;
        self.errors += other.errors;
        self.retransmissions += other.retransmissions;
        self.unanswered += other.unanswered;
        self.read_bytes += other.read_bytes;
        self.written_bytes += other.written_bytes;
        self.latency.add_all(&other.latency);
    }
}

/// One table.
#[derive(Clone, Debug, Default)]
pub struct Table {
    rows: HashMap<Key, Row>,
    /// The rows that were put together.
    others: Row,
}

impl Table {
    /// The rows, in no order.
    pub fn rows(&self) -> impl Iterator<Item = (&Key, &Row)> {
        self.rows.iter()
    }

    /// What there was no room for.
    pub fn others(&self) -> &Row {
        &self.others
    }

    fn row(&mut self, key: Key) -> &mut Row {
        if self.rows.len() >= ROWS_MAX && !self.rows.contains_key(&key) {
            self.make_room();
        }
        self.rows.entry(key).or_default()
    }

    fn make_room(&mut self) {
        let mut calls: Vec<u64> = self.rows.values().map(|row| row.calls).collect();
        let (_, limit, _) = calls.select_nth_unstable(ROWS_MAX / 8);
        let limit = *limit;
        let mut room = ROWS_MAX / 8;
        let others = &mut self.others;
        self.rows.retain(|_, row| {
            let goes = row.calls <= limit && room > 0;
            if goes {
                room -= 1;
                others.add_all(row);
            }
            !goes
        });
    }

    fn add_all(&mut self, other: &Self) {
        self.others.add_all(&other.others);
        for (key, row) in &other.rows {
            self.row(*key).add_all(row);
        }
    }
}

/// All tables over the same calls.
#[derive(Clone, Debug, Default)]
pub struct Tables {
    parts: [Table; By::ALL.len()],
    total: Row,
    client: Option<IpAddr>,
}

impl Tables {
    /// Empty ones, for the calls of one client or of all.
    pub fn new(client: Option<IpAddr>) -> Self {
        Self { client, ..Self::default() }
    }

    /// One of them.
    pub fn by(&self, by: By) -> &Table {
        let [operation, client, user, server, file] = &self.parts;
        match by {
            By::Operation => operation,
            By::Client => client,
            By::User => user,
            By::Server => server,
            By::File => file,
        }
    }

    /// All calls; operations inside COMPOUNDs are not counted beside their COMPOUND.
    pub fn total(&self) -> &Row {
        &self.total
    }

    /// Adds what others have.
    pub fn add_all(&mut self, other: &Self) {
        self.total.add_all(&other.total);
        for (mine, its) in self.parts.iter_mut().zip(&other.parts) {
            mine.add_all(its);
        }
    }
}

impl Observer for Tables {
    fn observe(&mut self, observed: &Observed<'_>) {
        let client = observed.client.ip();
        if self.client.is_some_and(|wanted| wanted != client) {
            return;
        }
        let [operations, clients, users, servers, files] = &mut self.parts;
        operations.row(Key::Operation(observed.key)).add(observed);
        // A COMPOUND is counted by the files of its operations.
        let is_compound = observed.key.minor.is_some() && !observed.key.is_part;
        if let Some(handle) = observed.handle.filter(|_| !is_compound) {
            files.row(Key::File(handle.file)).add(observed);
        }
        if observed.key.is_part {
            return;
        }
        self.total.add(observed);
        clients.row(Key::Client(client)).add(observed);
        users.row(Key::User(observed.user)).add(observed);
        let share = observed.handle.map(|handle| handle.share);
        servers.row(Key::Server(observed.server.ip(), share)).add(observed);
    }
}

impl fmt::Display for By {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    //! Unit ring.
    use std::net::{IpAddr, Ipv4Addr, SocketAddr};

    use super::{By, Key, ROWS_MAX, Tables};
    use crate::capture::{Handle, Names, Observed, Observer, OperationKey, Status, User};

    fn observed(client: u32, file: u64, is_part: bool) -> Observed<'static> {
        let address = |number: u32| SocketAddr::new(IpAddr::V4(Ipv4Addr::from(number)), 2049);
        Observed {
            time_ns: 0,
            key: OperationKey { program: 100_003, version: 4, minor: Some(1), is_part, number: 1 },
            client: address(client),
            server: address(1),
            user: User::Uid(7),
            handle: Some(Handle { file, share: 3 }),
            name: None,
            read_bytes: 10,
            written_bytes: 1,
            latency_ns: Some(1_000_000),
            status: Status::Failed(2),
            retransmissions: 1,
            is_unanswered: false,
        }
    }

    #[test]
    fn a_compound_is_one_call_and_its_operations_are_of_their_files() {
        let mut tables = Tables::default();
        tables.observe(&observed(5, 8, true));
        tables.observe(&observed(5, 9, true));
        tables.observe(&observed(5, 8, false));
        let calls = |by: By| {
            let mut calls: Vec<u64> = tables.by(by).rows().map(|(_, row)| row.calls).collect();
            calls.sort_unstable();
            calls
        };
        assert_eq!(calls(By::Operation), [1, 2]);
        assert_eq!(calls(By::File), [1, 1]);
        assert_eq!(
            (calls(By::Client), calls(By::User), calls(By::Server)),
            (vec![1], vec![1], vec![1])
        );
        let total = tables.total();
        assert_eq!(
            (total.calls, total.errors, total.retransmissions, total.read_bytes),
            (1, 1, 1, 10)
        );
        let label = |key: Key| key.label(&Names::default());
        assert_eq!(label(Key::User(User::Uid(7))), "uid 7");
        assert_eq!(label(Key::File(255)), "00000000000000ff");
    }

    #[test]
    fn one_client_can_be_taken_apart() {
        let mut tables = Tables::new(Some(Ipv4Addr::from(5).into()));
        tables.observe(&observed(5, 8, false));
        tables.observe(&observed(6, 8, false));
        assert_eq!(tables.total().calls, 1);
    }

    #[test]
    fn rows_are_bounded_and_nothing_is_lost() {
        let mut tables = Tables::default();
        let all = 3 * ROWS_MAX as u64;
        for client in 0..all {
            tables.observe(&observed(client as u32, client, false));
            tables.observe(&observed(1, client, true));
            // The busiest stays.
            tables.observe(&observed(1, 1, false));
        }
        let mut sum = Tables::default();
        sum.add_all(&tables);
        sum.add_all(&tables);
        for (tables, times) in [(&tables, 1), (&sum, 2)] {
            for by in [By::Client, By::File] {
                let table = tables.by(by);
                assert!(table.rows().count() <= ROWS_MAX);
                assert!(table.others().calls > 0);
                let calls: u64 = table.rows().map(|(_, row)| row.calls).sum();
                let expected = if by == By::Client { 2 * all } else { all };
                assert_eq!(calls + table.others().calls, times * expected);
            }
            let busiest = Key::Client(Ipv4Addr::from(1).into());
            assert!(
                tables.by(By::Client).rows().any(|(key, row)| *key == busiest && row.calls > all)
            );
        }
    }
}
