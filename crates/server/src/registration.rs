//! How clients find the port: the host's rpcbind (RFC 1833), or none.
//!
//! We speak version 4 (SET with netid and universal address) and fall back to version 2. The
//! owner that rpcbind notes is `superuser` when the call comes from a port below 1024, which is
//! asked for first; others may only change what they have set themselves.

use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

pub(crate) use steadfast_client::rpcbind::PORT as RPCBIND_PORT;
use steadfast_client::rpcbind::{
    self, Binding, Mapping, PROTOCOL_TCP as TCP, Registration, universal,
};
use steadfast_client::{ClientError, NFS3, RpcConnection};
use steadfast_engine::{Netid, OptionalVersions, ServedVersion, Transports, to_register};

/// A local rpcbind that takes longer is as good as none.
const TIMEOUT: Duration = Duration::from_secs(2);
/// The lock manager, and the monitor that tells it of restarts.
const NLM: (u32, u32) = (100_021, 4);
const NSM: (u32, u32) = (100_024, 1);
/// Whom rpcbind notes as the owner if the call comes from a reserved port.
const OWNER: &[u8] = b"superuser";

/// What was found on port 111.
#[derive(Debug)]
pub(crate) enum Found {
    /// A running rpcbind.
    Running(Rpcbind),
    /// Nobody, and we may have the port.
    Free,
    /// Nobody, or nobody who answers, and the port is not for us: why.
    Unusable(String),
}

/// A connection to the local rpcbind.
#[derive(Debug)]
pub(crate) struct Rpcbind {
    connection: RpcConnection,
}

/// Looks who answers on port 111.
pub(crate) fn find() -> Found {
    find_at(SocketAddr::new(Ipv4Addr::LOCALHOST.into(), RPCBIND_PORT))
}

fn find_at(address: SocketAddr) -> Found {
    match Rpcbind::connect(address) {
        Ok(mut rpcbind) => match rpcbind::null(&mut rpcbind.connection) {
            Ok(()) => Found::Running(rpcbind),
            Err(error) => {
                Found::Unusable(format!("what listens on port 111 is no rpcbind: {error}"))
            }
        },
        Err(_) => {
            match TcpListener::bind(SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), address.port())) {
                Ok(_) => Found::Free,
                Err(error) => Found::Unusable(format!("port 111 cannot be used: {error}")),
            }
        }
    }
}

/// Asks the local rpcbind to forget us, as far as it will. A server that has taken our place
/// keeps it.
pub(crate) fn withdraw(endpoints: &[Endpoint]) {
    if let Found::Running(mut rpcbind) = find()
        && let Err(error) = rpcbind.withdraw(endpoints)
    {
        tracing::warn!("rpcbind may still tell clients of this server: {error}");
    }
}

/// Why a call had no result.
#[derive(Debug)]
enum CallError {
    /// The procedure is not served, or not for us: another version of it may be.
    Refused(String),
    /// The connection is of no use any more.
    Lost(ClientError),
}

impl std::fmt::Display for CallError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Refused(why) => f.write_str(why),
            Self::Lost(error) => error.fmt(f),
        }
    }
}

impl From<ClientError> for CallError {
    fn from(error: ClientError) -> Self {
        match error {
            ClientError::Accepted(why) => Self::Refused(why.to_string()),
            ClientError::Denied(why) => Self::Refused(why.to_string()),
            error => Self::Lost(error),
        }
    }
}

/// Of an UNSET: what rpcbind does not forget was never registered, or is not ours to remove.
fn unless_lost(unset: Result<bool, ClientError>) -> Result<(), CallError> {
    match unset.map_err(CallError::from) {
        Err(lost @ CallError::Lost(_)) => Err(lost),
        _ => Ok(()),
    }
}

/// A transport with the address it is served at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Endpoint {
    netid: Netid,
    address: SocketAddr,
}

impl Endpoint {
    /// The protocol as version 2 has it, which knows IPv4 only.
    fn protocol(self) -> Option<u32> {
        (!self.netid.is_ipv6).then(|| self.netid.protocol())
    }
}

/// Where we listen, by netid: of several addresses of one kind the first, as rpcbind knows only one.
pub(crate) fn endpoints(listen: &[SocketAddr], udp: bool) -> Vec<Endpoint> {
    let mut endpoints: Vec<Endpoint> = Vec::new();
    for address in listen {
        let (ipv4, ipv6) = (address.is_ipv4(), address.is_ipv6());
        for netid in (Transports { udp, ipv4, ipv6 }).netids() {
            if !endpoints.iter().any(|known| known.netid == netid) {
                endpoints.push(Endpoint { netid, address: *address });
            }
        }
    }
    endpoints
}

fn mapping(prog: u32, vers: u32, prot: u32, port: u16) -> Mapping {
    Mapping { prog, vers, prot, port: port.into() }
}

fn binding<'a>(prog: u32, vers: u32, netid: &'a str, addr: &'a str) -> Binding<'a> {
    let (netid, addr) = (netid.as_bytes(), addr.as_bytes());
    Binding { prog, vers, netid, addr, owner: OWNER }
}

impl Rpcbind {
    fn connect(address: SocketAddr) -> Result<Self, ClientError> {
        Ok(Self { connection: RpcConnection::connect(address, TIMEOUT)? })
    }

    /// Registers all programs, or none. An NFS server that still runs keeps what it has; what an
    /// earlier one left behind is removed first, and so is whatever is registered for MOUNT, NFSACL
    /// and NLM, which go with NFS. A monitor (NSM) that runs here keeps its place: programs of this
    /// host need it.
    ///
    /// # Errors
    /// What was refused, in words.
    pub(crate) fn set(
        &mut self,
        endpoints: &[Endpoint],
        asked_for: OptionalVersions,
    ) -> Result<(), String> {
        let silent = |error| format!("rpcbind does not answer: {error}");
        let ours = endpoints.first().map_or(0, |endpoint| endpoint.address.port());
        if let Some(theirs) = self.other_port((NFS3, 3), ours).map_err(silent)? {
            return Err(format!("another NFS server is registered here, at port {theirs}"));
        }
        let has_monitor = self.other_port(NSM, ours).map_err(silent)?.is_some();
        let is_to_be = |it: &ServedVersion| !has_monitor || it.program != NSM.0;
        if has_monitor {
            tracing::info!(
                "rpc.statd runs here: it is not told to us when clients of NFSv3 restart, and their \
                 locks stay until they are locked again or this server restarts"
            );
        }
        if let Some(theirs) = self.other_port(NLM, ours).map_err(silent)? {
            tracing::warn!(
                "another lock manager was registered here, at port {theirs}: mounts of this host by \
                 NFSv3 may wait 30 s for a lock that is free"
            );
        }
        for ServedVersion { program, version, .. } in
            to_register(OptionalVersions::ALL).into_iter().filter(is_to_be)
        {
            for endpoint in endpoints {
                self.unset(program, version, *endpoint).map_err(silent)?;
            }
        }
        let served = to_register(asked_for);
        let served = served.iter().filter(|it| is_to_be(it));
        let all = served.flat_map(|served| endpoints.iter().map(|endpoint| (*served, *endpoint)));
        let is_served = |(served, endpoint): &(ServedVersion, Endpoint)| {
            served.over.has(endpoint.netid.transport)
        };
        let mut registered = Vec::new();
        for (ServedVersion { program, version, .. }, endpoint) in all.filter(is_served) {
            let refused = match self.set_one(program, version, endpoint) {
                Ok(true) => {
                    registered.push((program, version, endpoint));
                    continue;
                }
                Ok(false) => {
                    let netid = endpoint.netid.name;
                    format!("rpcbind did not register program {program} for {netid}")
                }
                Err(error) => silent(error),
            };
            // Half of us would send clients to a server that they are told nothing more of.
            for (program, version, endpoint) in registered {
                if self.unset(program, version, endpoint).is_err() {
                    break;
                }
            }
            return Err(refused);
        }
        Ok(())
    }

    /// The TCP port, other than `ours`, at which a program is registered and somebody serves it.
    fn other_port(
        &mut self,
        (program, version): (u32, u32),
        ours: u16,
    ) -> Result<Option<u16>, CallError> {
        let port = rpcbind::port(&mut self.connection, program, version, false)?;
        Ok(port.filter(|port| *port != ours && is_served(*port)))
    }

    fn unset(&mut self, program: u32, version: u32, endpoint: Endpoint) -> Result<(), CallError> {
        let binding = binding(program, version, endpoint.netid.name, "");
        let unset = rpcbind::unset(&mut self.connection, &binding);
        match (unset, endpoint.protocol()) {
            (Err(ClientError::Accepted(_) | ClientError::Denied(_)), Some(protocol)) => {
                self.unset2(program, version, protocol, endpoint.address.port())
            }
            (unset, _) => unless_lost(unset),
        }
    }

    /// Version 2 forgets all protocols of a program's version at once.
    fn unset2(
        &mut self,
        program: u32,
        version: u32,
        protocol: u32,
        port: u16,
    ) -> Result<(), CallError> {
        let mapping = mapping(program, version, protocol, port);
        unless_lost(rpcbind::unset2(&mut self.connection, &mapping))
    }

    /// Version 2 knows IPv4 only; what it does not know is not needed.
    fn set_one(
        &mut self,
        program: u32,
        version: u32,
        endpoint: Endpoint,
    ) -> Result<bool, CallError> {
        let address = universal(endpoint.address.ip(), endpoint.address.port());
        let binding = binding(program, version, endpoint.netid.name, &address);
        match rpcbind::set(&mut self.connection, &binding) {
            Err(ClientError::Accepted(_) | ClientError::Denied(_)) => {}
            result => return Ok(result?),
        }
        let Some(protocol) = endpoint.protocol() else {
            return Ok(true);
        };
        let mapping = mapping(program, version, protocol, endpoint.address.port());
        Ok(rpcbind::set2(&mut self.connection, &mapping)?)
    }

    /// Removes what is registered for these netids at our ports.
    fn withdraw(&mut self, endpoints: &[Endpoint]) -> Result<(), CallError> {
        let is_ours = |known: &Registration| {
            endpoints.iter().any(|Endpoint { netid, address }| {
                netid.name.as_bytes() == known.netid && address.port() == known.port
            })
        };
        let known = match rpcbind::dump(&mut self.connection) {
            Err(ClientError::Accepted(_) | ClientError::Denied(_)) => {
                return self.withdraw2(is_ours);
            }
            known => known?,
        };
        let served = to_register(OptionalVersions::ALL);
        let is_a_program = |known: &&Registration| {
            served.iter().any(|it| (it.program, it.version) == (known.program, known.version))
        };
        for known in known.iter().filter(is_a_program).filter(|known| is_ours(known)) {
            let netid = std::str::from_utf8(&known.netid).unwrap_or_default();
            let binding = binding(known.program, known.version, netid, "");
            unless_lost(rpcbind::unset(&mut self.connection, &binding))?;
        }
        Ok(())
    }

    /// As [`Rpcbind::withdraw`]. Where another server has one protocol of a program's version, it
    /// keeps both.
    fn withdraw2(&mut self, is_ours: impl Fn(&Registration) -> bool) -> Result<(), CallError> {
        let known = rpcbind::dump2(&mut self.connection)?;
        for ServedVersion { program, version, .. } in to_register(OptionalVersions::ALL) {
            let of_program =
                |known: &&Registration| (known.program, known.version) == (program, version);
            let mut of_program = known.iter().filter(of_program).peekable();
            if let Some(port) = of_program.peek().map(|known| known.port)
                && of_program.all(&is_ours)
            {
                self.unset2(program, version, TCP, port)?;
            }
        }
        Ok(())
    }
}

/// Whether somebody accepts connections at this port.
fn is_served(port: u16) -> bool {
    let address = SocketAddr::new(Ipv4Addr::LOCALHOST.into(), port);
    TcpStream::connect_timeout(&address, TIMEOUT).is_ok()
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};

    use steadfast_client::rpcbind::PROTOCOL_UDP as UDP;
    use steadfast_wire::List;
    use steadfast_xdr::{Encode, Reader, Writer};

    use super::*;

    /// Set in the mark of a record's last fragment.
    const LAST_FRAGMENT: u32 = 0x8000_0000;

    #[test]
    fn each_netid_is_registered_once() {
        let listen = ["10.0.0.1:2049", "[::]:2049", "10.0.0.2:2049"];
        let listen: Vec<_> = listen.iter().map(|text| text.parse().expect("an address")).collect();
        let names =
            |udp| endpoints(&listen, udp).iter().map(|it| it.netid.name).collect::<Vec<_>>();
        assert_eq!(names(true), ["tcp", "udp", "tcp6", "udp6"]);
        assert_eq!(names(false), ["tcp", "tcp6"]);
        assert_eq!(endpoints(&listen, false)[0].address, listen[0]);
    }

    /// A call that the stand-in got.
    #[derive(Debug, PartialEq, Eq)]
    struct Call {
        version: u32,
        procedure: u32,
        program: Option<u32>,
    }

    /// Versions and procedures.
    fn kinds(calls: &[Call]) -> Vec<(u32, u32)> {
        calls.iter().map(|call| (call.version, call.procedure)).collect()
    }

    /// What the stand-in says.
    #[derive(Clone)]
    enum Answer {
        Results(Vec<u8>),
        /// `PROG_MISMATCH`: it is too old for that.
        Mismatch,
    }

    /// Results of one word.
    fn word(value: u32) -> Answer {
        Answer::Results(value.to_be_bytes().to_vec())
    }

    /// A stand-in for rpcbind that answers each call with the next of `answers`; when
    /// there are no more it hangs up. Returns what was called.
    fn stand_in(answers: Vec<Answer>) -> (SocketAddr, std::thread::JoinHandle<Vec<Call>>) {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        let thread = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().expect("a connection");
            let mut calls = Vec::new();
            for answer in answers {
                let mut mark = [0; 4];
                if stream.read_exact(&mut mark).is_err() {
                    break;
                }
                let length = (u32::from_be_bytes(mark) & !LAST_FRAGMENT) as usize;
                let mut call = vec![0; length];
                stream.read_exact(&mut call).expect("a call");
                let mut r = Reader::new(&call);
                let words: Vec<_> = std::iter::from_fn(|| r.u32().ok()).collect();
                let program = words.get(10).copied();
                calls.push(Call { version: words[4], procedure: words[5], program });
                let mut reply = vec![words[0], 1, 0, 0, 0];
                let results = match answer {
                    Answer::Results(results) => {
                        reply.push(0);
                        results
                    }
                    Answer::Mismatch => {
                        reply.extend([2, 2, 2]);
                        Vec::new()
                    }
                };
                let mut bytes: Vec<u8> = reply.iter().flat_map(|word| word.to_be_bytes()).collect();
                bytes.extend(results);
                // In two fragments, as a peer may.
                let (first, second) = bytes.split_at(8);
                stream.write_all(&(first.len() as u32).to_be_bytes()).expect("sent");
                stream.write_all(first).expect("sent");
                stream
                    .write_all(&(LAST_FRAGMENT | second.len() as u32).to_be_bytes())
                    .expect("sent");
                stream.write_all(second).expect("sent");
            }
            calls
        });
        (address, thread)
    }

    fn tcp() -> Vec<Endpoint> {
        endpoints(&["0.0.0.0:2049".parse().expect("an address")], false)
    }

    #[test]
    fn programs_are_unset_and_set() {
        let of = |nfs2, nfs4| OptionalVersions { nfs2, nfs4 };
        for (asked_for, set) in [
            (of(false, false), 9),
            (of(false, true), 10),
            (of(true, false), 10),
            (of(true, true), 11),
        ] {
            let (address, thread) = stand_in([vec![word(0); 3], vec![word(1); 11 + set]].concat());
            let mut rpcbind = Rpcbind::connect(address).expect("connected");
            rpcbind.set(&tcp(), asked_for).expect("registered");
            drop(rpcbind);
            let calls = thread.join().expect("no panic");
            // Also NFSv2 and NFSv4 are unset: an earlier server may have had them.
            let sets = vec![(4, 1); set];
            assert_eq!(kinds(&calls), [&[(2, 3); 3][..], &[(4, 2); 11], &sets].concat());
        }
    }

    #[test]
    fn nfs4_is_registered_for_tcp_alone() {
        let both = endpoints(&["0.0.0.0:2049".parse().expect("an address")], true);
        let (address, thread) = stand_in([vec![word(0); 3], vec![word(1); 22 + 21]].concat());
        let mut rpcbind = Rpcbind::connect(address).expect("connected");
        rpcbind.set(&both, OptionalVersions::ALL).expect("registered");
        drop(rpcbind);
        let calls = thread.join().expect("no panic");
        assert_eq!(kinds(&calls[25..]), [(4, 1); 21]);
    }

    #[test]
    fn an_old_rpcbind_gets_version_2() {
        let answers = [vec![word(0); 3], vec![[Answer::Mismatch, word(1)]; 20].concat()].concat();
        let (address, thread) = stand_in(answers);
        Rpcbind::connect(address)
            .expect("connected")
            .set(&tcp(), OptionalVersions::default())
            .expect("registered");
        let calls = kinds(&thread.join().expect("no panic"));
        assert_eq!(calls[3..25], [[(4, 2), (2, 2)]; 11].concat());
        assert_eq!(calls[25..], [[(4, 1), (2, 1)]; 9].concat());
    }

    #[test]
    fn a_refusal_is_told() {
        let (address, thread) = stand_in(vec![word(0); 15]);
        let error = Rpcbind::connect(address)
            .expect("connected")
            .set(&tcp(), OptionalVersions::default())
            .expect_err("refused");
        assert_eq!(error, "rpcbind did not register program 100003 for tcp");
        thread.join().expect("no panic");
    }

    #[test]
    fn after_a_refusal_nothing_stays_registered() {
        let sets = vec![word(1), word(1), word(0)];
        let (address, thread) = stand_in([vec![word(0); 14], sets, vec![word(1); 5]].concat());
        let error = Rpcbind::connect(address)
            .expect("connected")
            .set(&tcp(), OptionalVersions::default())
            .expect_err("refused");
        assert_eq!(error, "rpcbind did not register program 100005 for tcp");
        let calls = thread.join().expect("no panic");
        assert_eq!(kinds(&calls[17..]), [(4, 2), (4, 2)]);
        let programs: Vec<_> = calls[17..].iter().filter_map(|call| call.program).collect();
        assert_eq!(programs, [100_003, 100_005]);
    }

    #[test]
    fn an_rpcbind_that_hangs_up_is_asked_nothing_more() {
        let (address, thread) = stand_in(vec![word(0); 5]);
        let error = Rpcbind::connect(address)
            .expect("connected")
            .set(&tcp(), OptionalVersions::default())
            .expect_err("gone");
        assert!(error.starts_with("rpcbind does not answer: "), "{error}");
        thread.join().expect("no panic");
    }

    #[test]
    fn a_server_that_runs_keeps_its_registration() {
        let other = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = other.local_addr().expect("an address").port();
        let (address, thread) = stand_in(vec![word(port.into())]);
        let error = Rpcbind::connect(address)
            .expect("connected")
            .set(&tcp(), OptionalVersions::default())
            .expect_err("refused");
        assert!(error.contains("another NFS server"), "{error}");
        assert_eq!(kinds(&thread.join().expect("no panic")), [(2, 3)]);
    }

    #[test]
    fn a_monitor_that_runs_keeps_its_place() {
        let other = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = word(other.local_addr().expect("an address").port().into());
        let answers = [vec![word(0), port, word(0)], vec![word(1); 10 + 8]].concat();
        let (address, thread) = stand_in(answers);
        let mut rpcbind = Rpcbind::connect(address).expect("connected");
        rpcbind.set(&tcp(), OptionalVersions::default()).expect("registered");
        drop(rpcbind);
        let calls = thread.join().expect("no panic");
        assert_eq!(calls.len(), 21);
        let of_monitor = |call: &&Call| call.program == Some(NSM.0);
        assert_eq!(calls.iter().filter(of_monitor).count(), 1, "only asked for");
    }

    /// The results of DUMP of version 4.
    fn dump4(entries: &[(u32, u32, &str, &str)]) -> Answer {
        let entries = entries
            .iter()
            .map(|(prog, vers, netid, address)| binding(*prog, *vers, netid, address));
        let mut bytes = Vec::new();
        List(entries.collect()).encode(&mut Writer::new(&mut bytes));
        Answer::Results(bytes)
    }

    #[test]
    fn only_what_still_names_our_port_is_withdrawn() {
        let known = dump4(&[
            (100_000, 4, "tcp", "0.0.0.0.0.111"),
            // Another server has taken our place for NFS; what it has not is still ours.
            (100_003, 3, "tcp", "0.0.0.0.80.1"),
            (100_003, 3, "tcp6", "::.8.1"),
            (100_005, 3, "tcp", "0.0.0.0.8.1"),
            (100_005, 3, "udp", "0.0.0.0.8.1"),
            (100_011, 1, "tcp", "0.0.0.0.8.1"),
        ]);
        let (address, thread) = stand_in([vec![known], vec![word(1); 10]].concat());
        let mut rpcbind = Rpcbind::connect(address).expect("connected");
        rpcbind.withdraw(&tcp()).expect("withdrawn");
        drop(rpcbind);
        let calls = thread.join().expect("no panic");
        assert_eq!(kinds(&calls), [(4, 4), (4, 2)]);
        assert_eq!(calls[1].program, Some(100_005));
    }

    #[test]
    fn an_old_rpcbind_is_asked_in_version_2_to_forget() {
        let mut known = Vec::new();
        let mappings = [
            mapping(100_003, 3, TCP, 2049),
            mapping(100_005, 3, TCP, 2049),
            // It would be forgotten with ours.
            mapping(100_005, 3, UDP, 20_048),
        ];
        List(mappings.to_vec()).encode(&mut Writer::new(&mut known));
        let (address, thread) =
            stand_in([vec![Answer::Mismatch, Answer::Results(known)], vec![word(1); 10]].concat());
        let mut rpcbind = Rpcbind::connect(address).expect("connected");
        rpcbind.withdraw(&tcp()).expect("withdrawn");
        drop(rpcbind);
        let calls = thread.join().expect("no panic");
        assert_eq!(kinds(&calls), [(4, 4), (2, 4), (2, 2)]);
        assert_eq!(calls[2].program, Some(100_003));
    }
}
