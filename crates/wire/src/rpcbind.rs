//! rpcbind: the port mapper, version 2 (RFC 1833 §3), and versions 3 and 4 (§2).

use std::net::IpAddr;

use steadfast_xdr::{Decode, Encode, Reader, Writer, XdrError};

use crate::List;
use crate::codec::structure;

/// Number of the program (RFC 5531 §8.2).
pub const PROGRAM: u32 = 100_000;
/// Its port, of TCP and of UDP.
pub const PORT: u16 = 111;
/// Longest netid, universal address and owner in bytes; the RFC has no bound.
pub const STRING_BYTES_MAX: usize = 1024;
/// Protocols of a [`Mapping`].
pub const PROTOCOL_TCP: u32 = 6;
/// UDP.
pub const PROTOCOL_UDP: u32 = 17;

/// A universal address (RFC 5665 §5.2.3): an address and the two halves of a port.
pub fn universal(address: IpAddr, port: u16) -> String {
    format!("{address}.{}.{}", port >> 8, port & 0xff)
}

/// The address, as text, and the port of a universal address.
pub fn universal_parts(universal: &[u8]) -> Option<(&str, u16)> {
    let text = std::str::from_utf8(universal).ok()?;
    let (rest, low) = text.rsplit_once('.')?;
    let (address, high) = rest.rsplit_once('.')?;
    let [high, low] = [high, low].map(|half| half.parse::<u8>().ok());
    Some((address, u16::from(high?) << 8 | u16::from(low?)))
}

structure! {
    /// A program's port (`mapping`): argument of version 2's SET, UNSET and GETPORT, and entry
    /// of its DUMP.
    #[derive(Copy)]
    pub struct Mapping {
        /// The program.
        pub prog: u32,
        /// Its version.
        pub vers: u32,
        /// IP protocol: 6 for TCP, 17 for UDP.
        pub prot: u32,
        /// The port.
        pub port: u32,
    }
}

/// Result of version 2's DUMP (`pmaplist`).
pub type MappingList = List<Mapping>;

structure! {
    /// A program's address (`rpcb`): argument of version 3's and 4's SET, UNSET, GETADDR,
    /// GETVERSADDR and GETADDRLIST, and entry of their DUMP.
    #[derive(Copy)]
    pub struct Binding<'a> {
        /// The program.
        pub prog: u32,
        /// Its version.
        pub vers: u32,
        /// The transport's name: `tcp`, `udp6` and so on.
        pub netid: &'a [u8]; max STRING_BYTES_MAX,
        /// Universal address (RFC 5665 §5.2.3).
        pub addr: &'a [u8]; max STRING_BYTES_MAX,
        /// Who registered it.
        pub owner: &'a [u8]; max STRING_BYTES_MAX,
    }
}

/// Result of version 3's and 4's DUMP (`rpcblist`).
pub type BindingList<'a> = List<Binding<'a>>;

structure! {
    /// Result of GETADDR and GETVERSADDR.
    #[derive(Copy)]
    pub struct UniversalAddress<'a> {
        /// Empty if the program is not served.
        pub addr: &'a [u8]; max STRING_BYTES_MAX,
    }
}

structure! {
    /// An entry of GETADDRLIST's result (`rpcb_entry`).
    #[derive(Copy)]
    pub struct AddressEntry<'a> {
        /// Universal address.
        pub maddr: &'a [u8]; max STRING_BYTES_MAX,
        /// The transport's name.
        pub nc_netid: &'a [u8]; max STRING_BYTES_MAX,
        /// Kind of transport: 1 for datagrams, 3 for streams.
        pub nc_semantics: u32,
        /// Family of protocols: `inet` or `inet6`.
        pub nc_protofmly: &'a [u8]; max STRING_BYTES_MAX,
        /// Protocol: `tcp` or `udp`.
        pub nc_proto: &'a [u8]; max STRING_BYTES_MAX,
    }
}

/// Result of GETADDRLIST (`rpcb_entry_list`).
pub type AddressList<'a> = List<AddressEntry<'a>>;

/// Longest arguments and results of a call that is passed on, in bytes; the RFC has no bound.
pub const REMOTE_BYTES_MAX: usize = 1 << 20;

structure! {
    /// Argument of CALLIT, BCAST and INDIRECT (`rpcb_rmtcallargs`, `call_args`).
    #[derive(Copy)]
    pub struct RemoteCall<'a> {
        /// The program.
        pub prog: u32,
        /// Its version.
        pub vers: u32,
        /// The procedure.
        pub proc_: u32,
        /// Its arguments.
        pub args: &'a [u8]; max REMOTE_BYTES_MAX,
    }
}

structure! {
    /// Result of version 2's CALLIT (`call_result`).
    #[derive(Copy)]
    pub struct RemoteResult2<'a> {
        /// The program's port.
        pub port: u32,
        /// What the procedure returned.
        pub res: &'a [u8]; max REMOTE_BYTES_MAX,
    }
}

structure! {
    /// Result of version 3's CALLIT, and 4's BCAST and INDIRECT (`rpcb_rmtcallres`).
    #[derive(Copy)]
    pub struct RemoteResult<'a> {
        /// The program's universal address.
        pub addr: &'a [u8]; max STRING_BYTES_MAX,
        /// What the procedure returned.
        pub results: &'a [u8]; max REMOTE_BYTES_MAX,
    }
}

structure! {
    /// How often a program's address was asked for (`rpcbs_addrlist`).
    #[derive(Copy)]
    pub struct AddressCalls<'a> {
        /// The program.
        pub prog: u32,
        /// Its version.
        pub vers: u32,
        /// How often it was told.
        pub success: u32,
        /// How often there was none.
        pub failure: u32,
        /// The transport's name.
        pub netid: &'a [u8]; max STRING_BYTES_MAX,
    }
}

structure! {
    /// How often a procedure was called by CALLIT, BCAST and INDIRECT (`rpcbs_rmtcalllist`).
    #[derive(Copy)]
    pub struct RemoteCalls<'a> {
        /// The program.
        pub prog: u32,
        /// Its version.
        pub vers: u32,
        /// The procedure.
        pub proc_: u32,
        /// How often it was called.
        pub success: u32,
        /// How often it could not be.
        pub failure: u32,
        /// How often by INDIRECT.
        pub indirect: u32,
        /// The transport's name.
        pub netid: &'a [u8]; max STRING_BYTES_MAX,
    }
}

/// Versions that GETSTAT tells of, from 2 on (`RPCBVERS_STAT`).
pub const STATISTICS_VERSIONS: usize = 3;
/// Procedures that GETSTAT tells of (`RPCBSTAT_HIGHPROC`).
pub const STATISTICS_PROCEDURES: usize = 13;

/// What GETSTAT tells of one version (`rpcb_stat`). Its result is [`STATISTICS_VERSIONS`] of these.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VersionStatistics<'a> {
    /// How often each procedure was called.
    pub info: [u32; STATISTICS_PROCEDURES],
    /// How often something was registered.
    pub setinfo: u32,
    /// How often a registration was removed.
    pub unsetinfo: u32,
    /// Of addresses.
    pub addrinfo: List<AddressCalls<'a>>,
    /// Of calls that were passed on.
    pub rmtinfo: List<RemoteCalls<'a>>,
}

impl<'a> Decode<'a> for VersionStatistics<'a> {
    fn decode(r: &mut Reader<'a>) -> Result<Self, XdrError> {
        let mut info = [0; STATISTICS_PROCEDURES];
        for count in &mut info {
            *count = r.u32()?;
        }
        Ok(Self {
            info,
            setinfo: r.u32()?,
            unsetinfo: r.u32()?,
            addrinfo: Decode::decode(r)?,
            rmtinfo: Decode::decode(r)?,
        })
    }
}

impl Encode for VersionStatistics<'_> {
    fn encode(&self, w: &mut Writer<'_>) {
        for count in self.info.iter().chain([&self.setinfo, &self.unsetinfo]) {
            w.u32(*count);
        }
        self.addrinfo.encode(w);
        self.rmtinfo.encode(w);
    }
}

structure! {
    /// A transport's address (`netbuf`): result of UADDR2TADDR, argument of TADDR2UADDR.
    #[derive(Copy)]
    pub struct Netbuf<'a> {
        /// How long such an address may be.
        pub maxlen: u32,
        /// The address.
        pub buf: &'a [u8]; max STRING_BYTES_MAX,
    }
}

#[cfg(test)]
mod tests {
    use super::{universal, universal_parts};

    #[test]
    fn universal_addresses_have_the_port_in_two_parts() {
        let of = |ip: &str, port| universal(ip.parse().expect("an address"), port);
        assert_eq!(of("0.0.0.0", 2049), "0.0.0.0.8.1");
        assert_eq!(of("::", 2049), "::.8.1");
        assert_eq!(universal_parts(b"0.0.0.0.8.1"), Some(("0.0.0.0", 2049)));
        assert_eq!(universal_parts(b"fe80::1.8.1"), Some(("fe80::1", 2049)));
        assert_eq!(universal_parts(b"::.0.111"), Some(("::", 111)));
        for bad in [
            &b""[..],
            b"2049",
            b".1",
            b"::1",
            b"0.0.0.0.256.1",
            b"::1.1.-1",
            b"/run/rpcbind.sock",
            b"\xff.8.1",
        ] {
            assert_eq!(universal_parts(bad), None);
        }
    }
}
