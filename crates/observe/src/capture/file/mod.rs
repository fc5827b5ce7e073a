//! Files of packets: pcap and pcapng are read, pcapng is written.

mod pcap;
mod pcapng;
mod reader;
mod writer;

pub use reader::{FileError, PacketFile};
pub use writer::PacketWriter;

/// Longest packet or block that is read, in bytes.
const BLOCK_BYTES_MAX: usize = 16 << 20;

/// The byte order that a file says it has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Order {
    Big,
    Little,
}

impl Order {
    fn u16(self, bytes: &[u8], at: usize) -> Option<u16> {
        let two = *bytes.get(at..)?.first_chunk()?;
        Some(match self {
            Self::Big => u16::from_be_bytes(two),
            Self::Little => u16::from_le_bytes(two),
        })
    }

    fn u32(self, bytes: &[u8], at: usize) -> Option<u32> {
        let four = *bytes.get(at..)?.first_chunk()?;
        Some(match self {
            Self::Big => u32::from_be_bytes(four),
            Self::Little => u32::from_le_bytes(four),
        })
    }

    fn u64(self, bytes: &[u8], at: usize) -> Option<u64> {
        let eight = *bytes.get(at..)?.first_chunk()?;
        Some(match self {
            Self::Big => u64::from_be_bytes(eight),
            Self::Little => u64::from_le_bytes(eight),
        })
    }
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
