//! How clients find the port: the host's rpcbind (RFC 1833), or none.
//!
//! We speak version 4 (SET with netid and universal address) and fall back to version 2. The
//! owner that rpcbind notes is `superuser` when the call comes from a port below 1024, which is
//! asked for first; others may only change what they have set themselves.

use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use socket2::{Domain, Protocol, Socket, Type};
use steadfast_client::{Identity, Procedure, ReplyBody, append_call, parse_reply};
use steadfast_xdr::{Reader, Writer};

/// The port of rpcbind.
pub(crate) const RPCBIND_PORT: u16 = 111;
const RPCBIND: u32 = 100_000;
/// Programs and versions that are registered: NFS, MOUNT, NFSACL.
const PROGRAMS: [(u32, u32); 5] =
    [(100_003, 3), (100_005, 1), (100_005, 2), (100_005, 3), (100_227, 3)];
/// A local rpcbind that takes longer is as good as none.
const TIMEOUT: Duration = Duration::from_secs(2);
const LAST_FRAGMENT: u32 = 0x8000_0000;
const REPLY_BYTES_MAX: usize = 4096;
/// Source ports to try for being the superuser, downwards.
const PRIVILEGED_PORTS: std::ops::RangeInclusive<u16> = 600..=1023;

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
    stream: TcpStream,
    xid: u32,
}

/// Looks who answers on port 111.
pub(crate) fn find() -> Found {
    find_at(SocketAddr::new(Ipv4Addr::LOCALHOST.into(), RPCBIND_PORT))
}

fn find_at(address: SocketAddr) -> Found {
    match Rpcbind::connect(address) {
        Ok(mut rpcbind) => match rpcbind.call(2, 0, &[]) {
            Ok(_) => Found::Running(rpcbind),
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

/// Asks the local rpcbind to forget us, as far as it will.
pub(crate) fn withdraw(netids: &[Netid]) {
    if let Found::Running(mut rpcbind) = find() {
        rpcbind.unset(netids);
    }
}

/// A transport with the address it is served at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Netid {
    name: &'static str,
    address: SocketAddr,
}

/// The netids of what we listen on: of several addresses of one kind the first, as rpcbind knows
/// only one.
pub(crate) fn netids(listen: &[SocketAddr], udp: bool) -> Vec<Netid> {
    let mut netids: Vec<Netid> = Vec::new();
    for address in listen {
        let names: &[_] = match (address.is_ipv4(), udp) {
            (true, true) => &["tcp", "udp"],
            (true, false) => &["tcp"],
            (false, true) => &["tcp6", "udp6"],
            (false, false) => &["tcp6"],
        };
        for name in names {
            if !netids.iter().any(|known| known.name == *name) {
                netids.push(Netid { name, address: *address });
            }
        }
    }
    netids
}

/// RFC 5665 §5.2.3
fn universal_address(address: SocketAddr) -> String {
    format!("{}.{}.{}", address.ip(), address.port() >> 8, address.port() & 0xff)
}

impl Rpcbind {
    fn connect(address: SocketAddr) -> io::Result<Self> {
        let stream = PRIVILEGED_PORTS
            .rev()
            .map_while(|port| match connect_from(port, address) {
                // Taken, as a source or for this destination: the next one.
                Err(error)
                    if matches!(
                        error.kind(),
                        io::ErrorKind::AddrInUse | io::ErrorKind::AddrNotAvailable
                    ) =>
                {
                    Some(None)
                }
                Ok(stream) => Some(Some(stream)),
                Err(_) => None,
            })
            .flatten()
            .next()
            .map_or_else(|| TcpStream::connect_timeout(&address, TIMEOUT), Ok)?;
        stream.set_read_timeout(Some(TIMEOUT))?;
        stream.set_write_timeout(Some(TIMEOUT))?;
        stream.set_nodelay(true)?;
        Ok(Self { stream, xid: std::process::id() })
    }

    /// Registers all programs; what an earlier server left behind is removed first, but not
    /// what belongs to one that still runs.
    ///
    /// # Errors
    /// What was refused, in words.
    pub(crate) fn set(&mut self, netids: &[Netid]) -> Result<(), String> {
        let ours = netids.first().map_or(0, |netid| netid.address.port());
        let theirs =
            self.nfs_port().map_err(|error| format!("rpcbind does not answer: {error}"))?;
        if theirs != 0 && theirs != ours && is_served(theirs) {
            return Err(format!("another NFS server is registered here, at port {theirs}"));
        }
        self.unset(netids);
        for (program, version) in PROGRAMS {
            for netid in netids {
                let is_set = self
                    .set4(program, version, *netid)
                    .or_else(|_| self.set2(program, version, *netid));
                match is_set {
                    Ok(true) => {}
                    Ok(false) => {
                        return Err(format!(
                            "rpcbind did not register program {program} for {}",
                            netid.name
                        ));
                    }
                    Err(error) => return Err(format!("rpcbind does not answer: {error}")),
                }
            }
        }
        Ok(())
    }

    /// The TCP port at which NFSv3 is registered (GETPORT of version 2); 0 for none.
    fn nfs_port(&mut self) -> io::Result<u16> {
        let (program, version) = (100_003, 3);
        let port = self.call(2, 3, &mapping(program, version, 6, 0))?;
        u16::try_from(port).map_err(|_| io::Error::other("the reply has a port above 65535"))
    }

    fn unset(&mut self, netids: &[Netid]) {
        for (program, version) in PROGRAMS {
            for netid in netids {
                // Nothing registered, or not ours to remove: registering will tell.
                let _ = self.call(4, 2, &binding(program, version, netid.name, ""));
            }
        }
    }

    fn set4(&mut self, program: u32, version: u32, netid: Netid) -> io::Result<bool> {
        let address = universal_address(netid.address);
        Ok(self.call(4, 1, &binding(program, version, netid.name, &address))? != 0)
    }

    /// Version 2 knows IPv4 only; what it does not know is not needed.
    fn set2(&mut self, program: u32, version: u32, netid: Netid) -> io::Result<bool> {
        let protocol = match netid.name {
            "tcp" => 6,
            "udp" => 17,
            _ => return Ok(true),
        };
        let arguments = mapping(program, version, protocol, netid.address.port());
        Ok(self.call(2, 1, &arguments)? != 0)
    }

    /// Calls a procedure whose result is a number, a boolean, or nothing (which counts as 1).
    fn call(&mut self, version: u32, number: u32, arguments: &[u8]) -> io::Result<u32> {
        self.xid = self.xid.wrapping_add(1);
        let procedure = Procedure { program: RPCBIND, version, number, name: "rpcbind" };
        let mut record = vec![0; 4];
        append_call(&mut record, self.xid, procedure, &Identity::None, arguments);
        let mark = LAST_FRAGMENT | (record.len() - 4) as u32;
        record.splice(..4, mark.to_be_bytes());
        self.stream.write_all(&record)?;
        let reply = self.record()?;
        let damaged = |_| io::Error::new(io::ErrorKind::InvalidData, "the reply is no RPC reply");
        let (xid, body) = parse_reply(&reply).map_err(damaged)?;
        match body {
            ReplyBody::Success { results_at } if xid == self.xid => {
                let mut results = Reader::new(reply.get(results_at..).unwrap_or(&[]));
                if results.is_empty() { Ok(1) } else { results.u32().map_err(damaged) }
            }
            ReplyBody::Success { .. } => Err(io::Error::other("the reply is to another call")),
            ReplyBody::Accepted(error) => Err(io::Error::other(error)),
            ReplyBody::Denied(error) => Err(io::Error::other(error)),
        }
    }

    fn record(&mut self) -> io::Result<Vec<u8>> {
        let mut record = Vec::new();
        loop {
            let mut mark = [0; 4];
            self.stream.read_exact(&mut mark)?;
            let mark = u32::from_be_bytes(mark);
            let length = (mark & !LAST_FRAGMENT) as usize;
            if length > REPLY_BYTES_MAX - record.len() {
                return Err(io::Error::new(io::ErrorKind::InvalidData, "the reply is too long"));
            }
            let start = record.len();
            record.resize(start + length, 0);
            self.stream.read_exact(record.get_mut(start..).unwrap_or(&mut []))?;
            if mark & LAST_FRAGMENT != 0 {
                return Ok(record);
            }
            // Fragments without bytes would let a peer keep us here.
            if length == 0 {
                return Err(io::Error::new(io::ErrorKind::InvalidData, "an empty fragment"));
            }
        }
    }
}

fn connect_from(port: u16, address: SocketAddr) -> io::Result<TcpStream> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    let source: IpAddr = Ipv4Addr::LOCALHOST.into();
    socket.bind(&SocketAddr::new(source, port).into())?;
    socket.connect_timeout(&address.into(), TIMEOUT)?;
    Ok(socket.into())
}

/// Whether somebody accepts connections at this port.
fn is_served(port: u16) -> bool {
    let address = SocketAddr::new(Ipv4Addr::LOCALHOST.into(), port);
    TcpStream::connect_timeout(&address, TIMEOUT).is_ok()
}

/// `mapping` (RFC 1833 §3.1).
fn mapping(program: u32, version: u32, protocol: u32, port: u16) -> Vec<u8> {
    let mut arguments = Vec::new();
    let mut w = Writer::new(&mut arguments);
    for word in [program, version, protocol, u32::from(port)] {
        w.u32(word);
    }
    arguments
}

/// `rpcb` (RFC 1833 §2.1).
fn binding(program: u32, version: u32, netid: &str, address: &str) -> Vec<u8> {
    let mut arguments = Vec::new();
    let mut w = Writer::new(&mut arguments);
    w.u32(program);
    w.u32(version);
    w.opaque(netid.as_bytes());
    w.opaque(address.as_bytes());
    w.opaque(b"superuser");
    arguments
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn universal_addresses_have_the_port_in_two_parts() {
        let of = |text: &str| universal_address(text.parse().expect("an address"));
        assert_eq!(of("0.0.0.0:2049"), "0.0.0.0.8.1");
        assert_eq!(of("[::]:2049"), "::.8.1");
    }

    #[test]
    fn each_netid_is_registered_once() {
        let listen = ["10.0.0.1:2049", "[::]:2049", "10.0.0.2:2049"];
        let listen: Vec<_> = listen.iter().map(|text| text.parse().expect("an address")).collect();
        let names = |udp| netids(&listen, udp).iter().map(|n| n.name).collect::<Vec<_>>();
        assert_eq!(names(true), ["tcp", "udp", "tcp6", "udp6"]);
        assert_eq!(names(false), ["tcp", "tcp6"]);
        assert_eq!(netids(&listen, false)[0].address, listen[0]);
    }

    /// A stand-in for rpcbind that answers each call with the next of `answers`: `None` is
    /// `PROG_MISMATCH`. Returns (version, procedure) of what was called.
    fn stand_in(
        answers: Vec<Option<u32>>,
    ) -> (SocketAddr, std::thread::JoinHandle<Vec<(u32, u32)>>) {
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
                let words: Vec<_> = (0..6).map(|_| r.u32().expect("a word")).collect();
                calls.push((words[4], words[5]));
                let mut reply = vec![words[0], 1, 0, 0, 0];
                match answer {
                    Some(value) => reply.extend([0, value]),
                    None => reply.extend([2, 2, 2]),
                }
                let bytes: Vec<u8> = reply.iter().flat_map(|word| word.to_be_bytes()).collect();
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

    fn tcp() -> Vec<Netid> {
        netids(&["0.0.0.0:2049".parse().expect("an address")], false)
    }

    #[test]
    fn programs_are_unset_and_set() {
        let (address, thread) = stand_in([vec![Some(0)], vec![Some(1); 10]].concat());
        let mut rpcbind = Rpcbind::connect(address).expect("connected");
        rpcbind.set(&tcp()).expect("registered");
        drop(rpcbind);
        let calls = thread.join().expect("no panic");
        assert_eq!(calls, [&[(2, 3)][..], &[(4, 2); 5], &[(4, 1); 5]].concat());
    }

    #[test]
    fn an_old_rpcbind_gets_version_2() {
        let unset = [Some(0), None, None, None, None, None];
        let set = [[None, Some(1)]; 5].concat();
        let answers = unset.into_iter().chain(set).collect();
        let (address, thread) = stand_in(answers);
        Rpcbind::connect(address).expect("connected").set(&tcp()).expect("registered");
        let calls = thread.join().expect("no panic");
        assert_eq!(calls[6..], [[(4, 1), (2, 1)]; 5].concat());
    }

    #[test]
    fn a_refusal_is_told() {
        let (address, thread) = stand_in(vec![Some(0); 7]);
        let error = Rpcbind::connect(address).expect("connected").set(&tcp()).expect_err("refused");
        assert_eq!(error, "rpcbind did not register program 100003 for tcp");
        thread.join().expect("no panic");
    }

    #[test]
    fn a_server_that_runs_keeps_its_registration() {
        let other = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = other.local_addr().expect("an address").port();
        let (address, thread) = stand_in(vec![Some(port.into())]);
        let error = Rpcbind::connect(address).expect("connected").set(&tcp()).expect_err("refused");
        assert!(error.contains("another NFS server"), "{error}");
        assert_eq!(thread.join().expect("no panic"), [(2, 3)]);
    }
}
