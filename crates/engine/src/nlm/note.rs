//! What is to be known when a host that waits is granted its lock: how its request came. The state
//! keeps it as bytes.

use std::net::{IpAddr, Ipv6Addr};

use steadfast_wire::nlm::OBJECT_BYTES_MAX;
use steadfast_xdr::{Decode, Encode, Reader, Writer, XdrError};

use crate::peer::{Peer, Transport};

/// How a LOCK came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Note<'a> {
    /// By which version of NLM.
    pub(crate) version: u32,
    /// Over what.
    pub(crate) transport: Transport,
    /// To which of our addresses.
    pub(crate) local: IpAddr,
    /// The handle, which the client knows the file by.
    pub(crate) handle: &'a [u8],
}

impl<'a> Note<'a> {
    pub(crate) fn new(peer: &Peer, version: u32, handle: &'a [u8]) -> Self {
        let local = peer.local.ip().to_canonical();
        Self { version, transport: peer.transport, local, handle }
    }
}

impl Encode for Note<'_> {
    fn encode(&self, w: &mut Writer<'_>) {
        w.u32(self.version);
        w.bool(self.transport == Transport::Tcp);
        let address = match self.local {
            IpAddr::V4(ip) => ip.to_ipv6_mapped(),
            IpAddr::V6(ip) => ip,
        };
        w.fixed_opaque(&address.octets());
        w.opaque(self.handle);
    }
}

impl<'a> Decode<'a> for Note<'a> {
    fn decode(r: &mut Reader<'a>) -> Result<Self, XdrError> {
        let version = r.u32()?;
        let transport = if r.bool()? { Transport::Tcp } else { Transport::Udp };
        let local = IpAddr::V6(Ipv6Addr::from(r.array::<16>()?)).to_canonical();
        Ok(Self { version, transport, local, handle: r.opaque(OBJECT_BYTES_MAX)? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_is_read_as_it_was_written() {
        for (local, transport) in [("10.0.0.1", Transport::Tcp), ("fe80::1", Transport::Udp)] {
            let local = local.parse().expect("an address");
            let note = Note { version: 3, transport, local, handle: b"handle" };
            let mut bytes = Vec::new();
            note.encode(&mut Writer::new(&mut bytes));
            assert_eq!(Note::decode(&mut Reader::new(&bytes)), Ok(note));
        }
    }
}
