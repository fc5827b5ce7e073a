//! A program at a client: where it answers, and a call of it.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use socket2::{Socket, Type};
use steadfast_client::rpcbind::{self, Binding};
use steadfast_client::{
    ClientError, Identity, Procedure, Retransmission, RpcConnection, RpcDatagram, RpcTransport,
    reserved,
};
use steadfast_engine::Transport;

/// How long a client may take to connect, and to answer. Linux answers in less than a ms.
const TIMEOUT: Duration = Duration::from_secs(4);
/// Over UDP a call is sent so often within [`TIMEOUT`].
const RETRANSMISSION: Retransmission =
    Retransmission { first_wait: Duration::from_millis(500), attempts: 3 };
/// The same of a call of which each sending counts.
const ONE_SENDING: Retransmission =
    Retransmission { first_wait: Duration::from_secs(1), attempts: 1 };
/// Connections that are kept for the next call, and for how long. Each new one needs a reserved port,
/// which is of no use for a minute after it was closed.
const IDLE_MAX: usize = 256;
const IDLE: Duration = Duration::from_secs(20);
/// Ports that are remembered.
const PORTS_MAX: usize = 4096;

/// A program at a client, and how it is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Remote {
    pub(super) to: IpAddr,
    /// Our address, if it matters.
    pub(super) from: Option<IpAddr>,
    pub(super) transport: Transport,
    pub(super) program: u32,
    pub(super) version: u32,
}

/// Calls programs at clients.
#[derive(Debug)]
pub(super) struct Caller {
    rpcbind_port: u16,
    ports: Mutex<HashMap<Remote, u16>>,
    /// Connections that nobody uses, and since when.
    idle: Mutex<HashMap<Remote, (RpcConnection, Instant)>>,
}

impl Caller {
    /// `rpcbind_port`: where clients tell the ports of their programs.
    pub(super) fn new(rpcbind_port: u16) -> Self {
        Self { rpcbind_port, ports: Mutex::default(), idle: Mutex::default() }
    }

    /// Calls a procedure; its results. It takes a few times [`TIMEOUT`] at most. With `begin` that is asked right before
    /// each sending whether the call is still to be made.
    ///
    /// # Errors
    /// When there are none.
    pub(super) fn call(
        &self,
        remote: Remote,
        number: u32,
        arguments: &[u8],
        begin: Option<&mut dyn FnMut() -> bool>,
    ) -> Result<Vec<u8>, ClientError> {
        let Remote { program, version, .. } = remote;
        let retransmission = if begin.is_some() { ONE_SENDING } else { RETRANSMISSION };
        let mut begin = begin;
        let mut begin = || {
            let is_wanted = begin.as_mut().is_none_or(|begin| begin());
            is_wanted.then_some(()).ok_or_else(|| io::Error::other("nobody waits for it any more"))
        };
        let procedure = Procedure { program, version, number, name: "a program at a client" };
        if let Some(mut stream) = self.take_idle(remote) {
            begin()?;
            // The client may have closed it: then it is called by another one.
            if let Ok(results) = stream.call(procedure, &Identity::root(), arguments) {
                self.keep(remote, stream);
                return Ok(results);
            }
        }
        let port = self.port(remote)?;
        let called = connect(remote, port, retransmission).and_then(|mut way| {
            begin()?;
            let results = way.call(procedure, &Identity::root(), arguments)?;
            Ok((results, way))
        });
        match called {
            Ok((results, way)) => {
                if let Way::Stream(stream) = way {
                    self.keep(remote, stream);
                }
                Ok(results)
            }
            Err(error) => {
                // The program may answer elsewhere by now.
                self.ports.lock().remove(&remote);
                Err(error)
            }
        }
    }

    fn take_idle(&self, remote: Remote) -> Option<RpcConnection> {
        let mut idle = self.idle.lock();
        idle.retain(|_, (_, since)| since.elapsed() < IDLE);
        idle.remove(&remote).map(|(stream, _)| stream)
    }

    fn keep(&self, remote: Remote, stream: RpcConnection) {
        let mut idle = self.idle.lock();
        if idle.len() < IDLE_MAX {
            idle.insert(remote, (stream, Instant::now()));
        }
    }

    fn port(&self, remote: Remote) -> Result<u16, ClientError> {
        if let Some(port) = self.ports.lock().get(&remote) {
            return Ok(*port);
        }
        let mut transport = connect(remote, self.rpcbind_port, RETRANSMISSION)?;
        let is_udp = remote.transport == Transport::Udp;
        let port = if remote.to.is_ipv4() {
            rpcbind::port(&mut transport, remote.program, remote.version, is_udp)?
        } else {
            // Version 2 knows nothing of IPv6.
            let (prog, vers) = (remote.program, remote.version);
            let netid: &[u8] = if is_udp { b"udp6" } else { b"tcp6" };
            let wanted = Binding { prog, vers, netid, addr: b"", owner: b"" };
            rpcbind::port_by_address(&mut transport, &wanted)?
        };
        let port = port.ok_or_else(|| io::Error::other("the client does not serve it"))?;
        let mut ports = self.ports.lock();
        if ports.len() >= PORTS_MAX {
            ports.clear();
        }
        ports.insert(remote, port);
        Ok(port)
    }
}

/// A way to a client.
enum Way {
    Stream(RpcConnection),
    Datagrams(RpcDatagram),
}

impl RpcTransport for Way {
    fn exchange(
        &mut self,
        procedure: Procedure,
        identity: &Identity,
        arguments: &[u8],
    ) -> Result<steadfast_client::Reply, ClientError> {
        match self {
            Self::Stream(stream) => stream.exchange(procedure, identity, arguments),
            Self::Datagrams(datagrams) => datagrams.exchange(procedure, identity, arguments),
        }
    }
}

fn connect(remote: Remote, port: u16, retransmission: Retransmission) -> Result<Way, ClientError> {
    let address = SocketAddr::new(remote.to, port);
    match remote.transport {
        Transport::Tcp => {
            let connect = |socket: &Socket| socket.connect_timeout(&address.into(), TIMEOUT);
            let socket = reserved::connected(address, remote.from, Type::STREAM, connect)?;
            Ok(Way::Stream(RpcConnection::over(socket.into(), TIMEOUT)?))
        }
        Transport::Udp => {
            let connect = |socket: &Socket| socket.connect(&address.into());
            let socket = reserved::connected(address, remote.from, Type::DGRAM, connect)?;
            Ok(Way::Datagrams(RpcDatagram::over(socket.into(), retransmission)))
        }
    }
}
