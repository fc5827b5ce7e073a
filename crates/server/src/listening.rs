//! Where a server listens, and how clients find it there.

use std::net::{Ipv6Addr, SocketAddr, TcpListener, UdpSocket};
use std::sync::Arc;

use steadfast_catalog::configuration::ServerSettings;
use steadfast_durability::IntentLogKeeper;
use steadfast_engine::{Engine, OptionalVersions, Transports};
use steadfast_runtime::{self as runtime, ReplyLog, ServerOptions};

use crate::configuration::listen_addresses;
use crate::error::{StartError, Tried};
use crate::mount_lines::{MountBy, PortLookup};
use crate::registration::{self, Endpoint, Found, RPCBIND_PORT};

/// What clients have to be told that cannot ask port 111.
const PORTS_TOLD: &str = "nolock, port=, mountport=, proto= and mountproto=";
/// Attempts to find a port that is free for every address, for port 0.
const PORT_ATTEMPTS: usize = 32;

/// Where to listen.
#[derive(Debug)]
pub(crate) struct Addresses {
    pub(crate) listen: Vec<SocketAddr>,
    pub(crate) udp: bool,
    /// Whether to register with, or be, the host's rpcbind.
    uses_rpcbind: bool,
}

impl Addresses {
    /// As it is configured, with a free port for port 0.
    ///
    /// # Errors
    /// When an interface of an address is not there, or no port is free.
    pub(crate) fn of(settings: &ServerSettings, port: Option<u16>) -> Result<Self, StartError> {
        let (mut listen, is_default) = listen_addresses(settings.listen.as_deref(), port)?;
        if is_default {
            // Before the engine is made, which tells clients what is served.
            leave_out_missing_ipv6(&mut listen, |address| TcpListener::bind(address).map(drop));
        }
        let udp = settings.udp.unwrap_or(true);
        choose_port(&mut listen, udp)?;
        Ok(Self { listen, udp, uses_rpcbind: settings.rpcbind.unwrap_or(true) })
    }

    /// How many addresses may be listened on.
    pub(crate) fn count(&self) -> usize {
        // With port 111 beside each, should we serve it.
        if self.uses_rpcbind { 2 * self.listen.len() } else { self.listen.len() }
    }

    /// What clients who ask our own rpcbind are told.
    pub(crate) fn transports(&self) -> Transports {
        Transports {
            udp: self.udp,
            ipv4: self.listen.iter().any(SocketAddr::is_ipv4),
            ipv6: self.listen.iter().any(SocketAddr::is_ipv6),
        }
    }

    /// Starts the runtime, which serves from here on.
    ///
    /// # Errors
    /// The runtime's.
    pub(crate) fn serve(
        self,
        mut options: ServerOptions,
        engine: &Arc<Engine>,
        intent_log: Option<&Arc<IntentLogKeeper>>,
    ) -> Result<Listening, StartError> {
        let found = if self.uses_rpcbind {
            registration::find()
        } else {
            Found::Unusable("rpcbind is switched off".to_owned())
        };
        let (server, listen, serves_rpcbind) =
            start_runtime(&mut options, &self.listen, &found, engine, intent_log)?;
        Ok(Listening { server, listen, udp: self.udp, found, serves_rpcbind })
    }
}

/// A runtime that serves, and that nobody has been told of.
pub(crate) struct Listening {
    pub(crate) server: runtime::Server,
    listen: Vec<SocketAddr>,
    udp: bool,
    found: Found,
    serves_rpcbind: bool,
}

impl Listening {
    /// Registers with the host's rpcbind if there is one. Returns the runtime, how clients find it,
    /// and what rpcbind knows of us.
    pub(crate) fn register(
        self,
        asked_for: OptionalVersions,
    ) -> (runtime::Server, MountBy, Vec<Endpoint>) {
        let mut registered = Vec::new();
        let lookup = match self.found {
            Found::Running(mut rpcbind) => {
                let endpoints = registration::endpoints(&self.listen, self.udp);
                match rpcbind.set(&endpoints, asked_for) {
                    Ok(()) => {
                        registered = endpoints;
                        tracing::info!("registered with the rpcbind of this host");
                        PortLookup::Rpcbind
                    }
                    Err(why) => {
                        tracing::warn!("{why}: mounts need {PORTS_TOLD}");
                        PortLookup::Told
                    }
                }
            }
            Found::Free if self.serves_rpcbind => {
                tracing::info!("no rpcbind runs here: serving port {RPCBIND_PORT} too");
                PortLookup::Rpcbind
            }
            Found::Free => PortLookup::Told,
            Found::Unusable(why) => {
                tracing::info!("{why}: mounts need {PORTS_TOLD}");
                PortLookup::Told
            }
        };
        let nfs4 = asked_for.nfs4;
        let mount_by = MountBy { listen: self.listen, lookup, udp: self.udp, nfs4 };
        (self.server, mount_by, registered)
    }
}

/// A machine without IPv6 is none of the operator's mistakes. The port tried is any that is free:
/// one that is in use, or not for us, is still told when it is listened on.
fn leave_out_missing_ipv6(
    listen: &mut Vec<SocketAddr>,
    bind: impl Fn(SocketAddr) -> std::io::Result<()>,
) {
    if let Err(error) = bind(SocketAddr::new(Ipv6Addr::UNSPECIFIED.into(), 0)) {
        tracing::info!("IPv6 is not served: {error}");
        listen.retain(SocketAddr::is_ipv4);
    }
}

/// Starts the runtime. Returns the addresses that clients are to use, and whether port 111 is
/// served too.
fn start_runtime(
    options: &mut ServerOptions,
    listen: &[SocketAddr],
    found: &Found,
    engine: &Arc<Engine>,
    intent_log: Option<&Arc<IntentLogKeeper>>,
) -> Result<(runtime::Server, Vec<SocketAddr>, bool), StartError> {
    let mut serves_rpcbind = matches!(found, Found::Free);
    loop {
        options.listen = listen.to_vec();
        options.extra_listen.clear();
        if serves_rpcbind {
            let same = listen.iter().map(|address| with_port(*address, RPCBIND_PORT));
            options.extra_listen.extend(same.filter(|address| !listen.contains(address)));
        }
        let service = Arc::clone(engine) as _;
        let log = intent_log.map(|keeper| Arc::clone(keeper) as Arc<dyn ReplyLog>);
        match runtime::Server::start_with_log(options.clone(), service, log) {
            Ok(server) => {
                engine.set_callback_sender(server.callback_sender());
                let listen = server.local_addresses().into_iter().take(listen.len()).collect();
                return Ok((server, listen, serves_rpcbind));
            }
            Err(runtime::StartError::Listen { address, source, .. })
                if options.extra_listen.contains(&address) && serves_rpcbind =>
            {
                tracing::warn!("cannot serve {address}: {source}; mounts need {PORTS_TOLD}");
                serves_rpcbind = false;
            }
            Err(error) => return Err(StartError::Serve(error)),
        }
    }
}

fn with_port(mut address: SocketAddr, port: u16) -> SocketAddr {
    address.set_port(port);
    address
}

/// Replaces port 0 by one port that is free on all addresses, since clients are told one.
fn choose_port(listen: &mut [SocketAddr], udp: bool) -> Result<(), StartError> {
    if listen.iter().all(|address| address.port() != 0) {
        return Ok(());
    }
    for _ in 0..PORT_ATTEMPTS {
        let any = SocketAddr::from(([0, 0, 0, 0], 0));
        let first = listen.first().map_or(any, |address| with_port(*address, 0));
        let first = TcpListener::bind(first).tried("no port is free")?;
        let port = first.local_addr().tried("no port is free")?.port();
        drop(first);
        let is_free = listen.iter().filter(|address| address.port() == 0).all(|address| {
            let address = with_port(*address, port);
            let is_taken = |error: std::io::Error| error.kind() == std::io::ErrorKind::AddrInUse;
            let tcp_is_taken = TcpListener::bind(address).is_err_and(is_taken);
            let udp_is_taken = udp && UdpSocket::bind(address).is_err_and(is_taken);
            !tcp_is_taken && !udp_is_taken
        });
        if is_free {
            for address in listen.iter_mut().filter(|address| address.port() == 0) {
                address.set_port(port);
            }
            return Ok(());
        }
    }
    let why = "no port is free on all addresses: name one with --port";
    Err(StartError::Configuration(why.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_are_told_of_ipv6_only_where_there_is_some() {
        let configured = |bind: fn(SocketAddr) -> std::io::Result<()>| {
            let mut listen =
                ["0.0.0.0:2049", "[::]:2049"].map(|a| a.parse().expect("one")).to_vec();
            leave_out_missing_ipv6(&mut listen, bind);
            Addresses { listen, udp: true, uses_rpcbind: false }.transports()
        };
        let all = Transports { udp: true, ipv4: true, ipv6: true };
        assert_eq!(configured(|_| Ok(())), all);
        let without = configured(|_| Err(std::io::ErrorKind::Unsupported.into()));
        assert_eq!(without, Transports { ipv6: false, ..all });
    }

    #[test]
    fn a_free_port_is_one_for_all_addresses() {
        let mut listen: Vec<SocketAddr> =
            ["127.0.0.1:0", "127.0.0.2:0"].map(|text| text.parse().expect("an address")).into();
        choose_port(&mut listen, true).expect("a port");
        assert!(listen.iter().all(|address| address.port() == listen[0].port()));
        assert_ne!(listen[0].port(), 0);
    }
}
