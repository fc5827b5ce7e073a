//! From `SERVER:/SHARE` to a root handle: names, ports, MOUNT or a session, and what the server can do.

use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use steadfast_client::nfs4::NfsStat4;
use steadfast_client::{
    Attributes, ClientError, FileHandle, FileSystemStatistics, Identity, NFS3, RpcConnection,
    mount, rpcbind,
};

use crate::compression::Compression;
use crate::nfs4::{self, Client4};
use crate::options::{Options, TRANSFER_BYTES_MAX, Version};
use crate::server::Server;
use crate::transport::{Link, Patience};

/// The flavour of RPC (RFC 5531 §8.1).
const AUTH_SYS: u32 = 1;

/// How long each step of mounting may take.
const STEP: Duration = Duration::from_secs(10);
/// The port of NFSv4.
const NFS_PORT: u16 = 2049;
/// The port of rpcbind.
const RPCBIND_PORT: u16 = 111;
/// How much of a directory is asked for at once, in bytes.
const LISTING_BYTES: u32 = 64 << 10;
/// The longest path of MOUNT (RFC 1813 appendix I).
const PATH_BYTES_MAX: usize = 1024;

/// Why a share cannot be mounted.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// What is to be mounted is not written as `SERVER:/PATH`.
    #[error("{0:?} is not SERVER:/PATH (an IPv6 address in brackets)")]
    Specification(String),
    /// The server's name has no address.
    #[error("cannot find an address of {server:?}: {why}")]
    Address {
        /// The name.
        server: String,
        /// What the resolver says.
        why: String,
    },
    /// A port is not known.
    #[error(
        "{server} does not serve {program} over TCP, says its rpcbind (name the port: {option}=N)"
    )]
    NotServed {
        /// The server.
        server: String,
        /// NFS or MOUNT.
        program: &'static str,
        /// The option that would name it.
        option: &'static str,
    },
    /// The server does not let this client mount the share.
    #[error("{server} refuses to mount {path:?}: {why}")]
    Refused {
        /// The server.
        server: String,
        /// The share.
        path: String,
        /// The status of MOUNT in words.
        why: String,
    },
    /// A call failed.
    #[error("{step} at {server} failed: {error}")]
    Call {
        /// What was done.
        step: &'static str,
        /// The server.
        server: String,
        /// Why it failed.
        error: ClientError,
    },
}

impl ConnectError {
    /// Whether it may go well later though nothing is changed here: the server does not run yet.
    #[must_use]
    pub fn is_temporary(&self) -> bool {
        !matches!(self, Self::Specification(_) | Self::Refused { .. })
    }
}

/// A share that is connected.
#[derive(Debug)]
pub struct Connected {
    pub(crate) server: Arc<Server>,
    pub(crate) root: FileHandle,
    pub(crate) attributes: Attributes,
    pub(crate) statistics: Option<FileSystemStatistics>,
    pub(crate) read_bytes: u32,
    pub(crate) write_bytes: u32,
    pub(crate) listing_bytes: u32,
    pub(crate) file_bytes_max: u64,
    pub(crate) name_bytes_max: u32,
}

/// What is to be mounted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Specification {
    /// A host name or an address.
    pub server: String,
    /// The share's path on it.
    pub path: String,
}

impl Specification {
    /// Parses `SERVER:/PATH`.
    ///
    /// # Errors
    /// When it is not written so.
    pub fn parse(text: &str) -> Result<Self, ConnectError> {
        let wrong = || ConnectError::Specification(text.to_owned());
        let (server, path) = match text.strip_prefix('[') {
            Some(rest) => rest.split_once("]:").ok_or_else(wrong)?,
            None => text
                .split_once(":/")
                .map(|(server, _)| (server, &text[server.len() + 1..]))
                .ok_or_else(wrong)?,
        };
        if server.is_empty() || !path.starts_with('/') || path.len() > PATH_BYTES_MAX {
            return Err(wrong());
        }
        Ok(Self { server: server.to_owned(), path: path.to_owned() })
    }
}

/// Connects to a share as root, or as whoever mounts.
///
/// # Errors
/// When the server cannot be found or reached, or refuses.
pub fn connect(what: &Specification, options: &Options) -> Result<Connected, ConnectError> {
    let addresses: Vec<SocketAddr> = (what.server.as_str(), 0)
        .to_socket_addrs()
        .map_err(|error| address_error(what, &error.to_string()))?
        .collect();
    let mut last = None;
    // A server with several addresses may not serve at all of them.
    for address in addresses {
        match connect_to(address, what, options) {
            Ok(connected) => return Ok(connected),
            Err(error @ ConnectError::Refused { .. }) => return Err(error),
            Err(error) => last = Some(error),
        }
    }
    Err(last.unwrap_or_else(|| address_error(what, "it has none")))
}

fn address_error(what: &Specification, why: &str) -> ConnectError {
    ConnectError::Address { server: what.server.clone(), why: why.to_owned() }
}

fn connect_to(
    address: SocketAddr,
    what: &Specification,
    options: &Options,
) -> Result<Connected, ConnectError> {
    match options.version {
        Version::V3 => connect_v3(address, what, options),
        Version::V4(Some(minor)) => connect_v4(address, what, options, minor),
        // The highest that there is.
        Version::V4(None) => match connect_v4(address, what, options, 2) {
            Err(ConnectError::Call { error, .. }) if nfs4::is_other_version(&error) => {
                connect_v4(address, what, options, 1)
            }
            connected => connected,
        },
    }
}

fn open_link(address: SocketAddr, options: &Options) -> Result<Arc<Link>, ClientError> {
    let link =
        Link::open(address, options.from_reserved_port, options.timeout, options.connections)?;
    if options.adapts_depth
        && let Err(error) = Link::adapt_depth(&link)
    {
        link.close();
        return Err(error.into());
    }
    Ok(link)
}

/// NFSv4 has one port, and neither rpcbind nor MOUNT: a share is where its path is below the server's root.
fn connect_v4(
    mut address: SocketAddr,
    what: &Specification,
    options: &Options,
    minor_version: u32,
) -> Result<Connected, ConnectError> {
    let failed = |step| {
        let server = what.server.clone();
        move |error| ConnectError::Call { step, server, error }
    };
    address.set_port(options.port.unwrap_or(NFS_PORT));
    let link = open_link(address, options).map_err(failed("connecting to NFS"))?;
    let (uid, gid) = steadfast_sys::process::effective_ids();
    let identity = Identity::user(uid, gid);
    let patience = Patience { pid: 0, until: Some(Instant::now() + STEP) };
    let connected = connect_session(&link, &identity, minor_version, patience)
        .map_err(failed("making a session"))
        .and_then(|client| {
            let root = nfs4::walk(&client, what.path.as_bytes(), patience);
            if root.is_err() {
                client.end();
            }
            root.map(|root| (client, root)).map_err(|error| match path_status(&error) {
                Some(why) => ConnectError::Refused {
                    server: what.server.clone(),
                    path: what.path.clone(),
                    why: why.to_owned(),
                },
                None => failed("looking for the share")(error),
            })
        });
    let (client, root) = match connected {
        Ok(connected) => connected,
        Err(error) => {
            link.close();
            return Err(error);
        }
    };
    let soft_after = options.timeout * options.retransmissions.max(1);
    let server = Arc::new(Server {
        link,
        soft_after: options.is_soft.then_some(soft_after),
        recovery: OnceLock::new(),
        nfs4: Some(Arc::clone(&client)),
    });
    let connected = abilities(Arc::clone(&server), root, &identity, options);
    connected.map_err(|error| {
        client.end();
        server.link.close();
        failed("asking for the root")(error)
    })
}

fn connect_session(
    link: &Arc<Link>,
    identity: &Identity,
    minor_version: u32,
    patience: Patience,
) -> Result<Arc<Client4>, ClientError> {
    Client4::connect(Arc::clone(link), identity.clone(), minor_version, patience)
}

/// Why there is no share at a path, in words.
fn path_status(error: &ClientError) -> Option<&'static str> {
    Some(match error.status4()? {
        NfsStat4::NoEnt => "there is no such share or directory",
        NfsStat4::Access | NfsStat4::Perm => "permission denied",
        NfsStat4::NotDir => "it is not a directory",
        NfsStat4::WrongSec => "it does not take sec=sys there",
        NfsStat4::NameTooLong => "a name of the path is too long",
        NfsStat4::SymLink => "a name of the path is a symbolic link",
        _ => return None,
    })
}

fn connect_v3(
    address: SocketAddr,
    what: &Specification,
    options: &Options,
) -> Result<Connected, ConnectError> {
    let failed = |step| {
        let server = what.server.clone();
        move |error| ConnectError::Call { step, server, error }
    };
    let at = |port| {
        let mut address = address;
        address.set_port(port);
        address
    };
    let port = ports(at(RPCBIND_PORT), what, options)?;
    let (uid, gid) = steadfast_sys::process::effective_ids();
    let identity = Identity::user(uid, gid);

    let mut connection =
        RpcConnection::connect(at(port.mount), STEP).map_err(failed("connecting to MOUNT"))?;
    let mounted = mount::mnt(&mut connection, &identity, what.path.as_bytes());
    let mounted = mounted.map_err(|error| match error {
        ClientError::Mount(status) => ConnectError::Refused {
            server: what.server.clone(),
            path: what.path.clone(),
            why: mount_status(status),
        },
        error => failed("MNT")(error),
    })?;
    if !mounted.flavours.is_empty() && !mounted.flavours.contains(&AUTH_SYS) {
        return Err(ConnectError::Refused {
            server: what.server.clone(),
            path: what.path.clone(),
            why: "it does not take sec=sys there".to_owned(),
        });
    }
    let link = open_link(at(port.nfs), options).map_err(failed("connecting to NFS"))?;
    let soft_after = options.timeout * options.retransmissions.max(1);
    let server = Arc::new(Server {
        link,
        soft_after: options.is_soft.then_some(soft_after),
        recovery: OnceLock::new(),
        nfs4: None,
    });
    let connected = abilities(server, mounted.handle, &identity, options);
    let connected = connected.map_err(failed("asking for the root"))?;
    if options.compresses {
        agree_on_compression(&connected, &identity);
    }
    Ok(connected)
}

/// Asks the server whether it takes compressed data.
fn agree_on_compression(connected: &Connected, identity: &Identity) {
    let patience = Patience { pid: 0, until: Some(Instant::now() + STEP) };
    let Connected { server, root, .. } = connected;
    let asked = server.call(identity, patience, |nfs| nfs.recovery_status(root));
    // It was connected just now: nothing is agreed on yet.
    let _ = server.link.compression.set(Compression::agreed(&asked));
}

struct Ports {
    nfs: u16,
    mount: u16,
}

fn ports(
    rpcbind: SocketAddr,
    what: &Specification,
    options: &Options,
) -> Result<Ports, ConnectError> {
    let ask = |program, option, name| {
        let failed = |error| ConnectError::Call {
            step: "asking rpcbind for ports",
            server: what.server.clone(),
            error,
        };
        let mut connection = RpcConnection::connect(rpcbind, STEP).map_err(failed)?;
        rpcbind::port(&mut connection, program, 3, false).map_err(failed)?.ok_or_else(|| {
            ConnectError::NotServed { server: what.server.clone(), program: name, option }
        })
    };
    let nfs = match options.port {
        Some(port) => port,
        None => ask(NFS3, "port", "NFSv3")?,
    };
    let mount = match options.mount_port {
        Some(port) => port,
        None => ask(mount::MOUNT, "mountport", "MOUNT version 3")?,
    };
    Ok(Ports { nfs, mount })
}

fn abilities(
    server: Arc<Server>,
    root: FileHandle,
    identity: &Identity,
    options: &Options,
) -> Result<Connected, ClientError> {
    let patience = Patience { pid: 0, until: Some(Instant::now() + STEP) };
    let (info, attributes, statistics, names) = server.call(identity, patience, |nfs| {
        let info = nfs.fsinfo(&root)?;
        // A server that waits for what its clients bring back answers no GETATTR.
        let attributes = match &info.attributes {
            Some(attributes) => attributes.clone(),
            None => nfs.getattr(&root)?,
        };
        Ok((info, attributes, nfs.fsstat(&root).ok(), nfs.pathconf(&root).ok()))
    })?;
    // What the server says is possible outweighs what is wished.
    let size = |wished: Option<u32>, preferred: u32, max: u32| {
        let max = if max == 0 { preferred } else { max };
        let wished = wished.unwrap_or(if preferred == 0 { max } else { preferred.max(max) });
        wished.min(max).clamp(512, TRANSFER_BYTES_MAX)
    };
    let listing_bytes =
        if info.listing_preferred == 0 { 8192 } else { info.listing_preferred.max(8192) };
    Ok(Connected {
        server,
        root,
        attributes,
        statistics,
        read_bytes: size(options.read_bytes, info.read_preferred, info.read_max),
        write_bytes: size(options.write_bytes, info.write_preferred, info.write_max),
        listing_bytes: listing_bytes.min(LISTING_BYTES),
        file_bytes_max: info.file_bytes_max.min(i64::MAX as u64),
        name_bytes_max: names.map_or(255, |names| names.name_max),
    })
}

/// Statuses of MOUNT (RFC 1813 §5.1.5).
fn mount_status(status: u32) -> String {
    let words = match status {
        1 => "this client may not",
        2 => "there is no such share or directory",
        5 => "the server's disk failed",
        13 => "permission denied",
        20 => "it is not a directory",
        22 => "invalid argument",
        63 => "the path is too long",
        10004 => "the server does not support it",
        10006 => "the server is at fault",
        _ => return format!("MOUNT status {status}"),
    };
    words.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn specifications_are_taken_apart() {
        for (text, server, path) in [
            ("host:/srv", "host", "/srv"),
            ("10.0.0.1:/", "10.0.0.1", "/"),
            ("[fe80::1]:/a:/b", "fe80::1", "/a:/b"),
            ("host:/a:/b", "host", "/a:/b"),
        ] {
            let what = Specification::parse(text).unwrap();
            assert_eq!((what.server.as_str(), what.path.as_str()), (server, path));
        }
        for text in ["", "host", "host:srv", ":/srv", "/srv", "[::1]/srv", "[]:/x"] {
            assert!(Specification::parse(text).is_err(), "{text}");
        }
    }
}
