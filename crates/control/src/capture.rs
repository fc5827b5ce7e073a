//! RPC messages as a server reads and writes them: `GET /v1/capture`.
//!
//! The answer is a stream of bytes that has no end of its own. It begins with [`MAGIC`]; *frames* follow, each a length
//! (4 bytes), a kind (1 byte) and as many bytes as the length says without these five. All numbers are little-endian.
//!
//! ```text
//! kind  name      bytes
//! 1     counts    messages that were dropped so far (8), bytes that may wait in the server (8)
//! 2     message   time in ns since 1970 (8), flags (1), client (18 + 1), server (18 + 1), whole length (4),
//!                 with the flag TIMES: executed, waited, stable, in ns (8 each); with the flag EXECUTED: program (4),
//!                 version (4), procedure (4); the rest is what was kept of it
//! 3     cut off   as counts: the capture has ended, since the reader did not read; what waited was dropped, too
//! ```
//!
//! An address is its port (2), 4 or 6 (1), and 16 bytes, of which one of IPv4 has the first four. Counts come first,
//! and at least once a second. A reader skips frames of kinds that it does not know. Version 1 had no EXECUTED.

use std::net::{IpAddr, SocketAddr};

use serde::{Deserialize, Serialize};

/// What the stream begins with: a name and a version.
pub const MAGIC: [u8; 8] = *b"SFCAPT\0\x02";
/// The media type of the stream.
pub const MEDIA_TYPE: &str = "application/vnd.steadfast.capture";
/// Bytes kept of a message if nobody says how many.
pub const SNAP_BYTES_USUAL: u32 = 1024;
/// Most bytes kept of a message: more than any has.
pub const SNAP_BYTES_MAX: u32 = 16 << 20;
/// Fewest: the head of a call with any credentials of `AUTH_SYS` (448), and its first arguments.
pub const SNAP_BYTES_LEAST: u32 = 512;
/// Longest frame that is read, in bytes.
const FRAME_BYTES_MAX: usize = SNAP_BYTES_MAX as usize + 1024;

const COUNTS: u8 = 1;
const MESSAGE: u8 = 2;
const CUT_OFF: u8 = 3;

/// The flags of a message.
const SENT: u8 = 1;
const DATAGRAM: u8 = 2;
const TIMES: u8 = 4;
const REPEAT: u8 = 8;
const EXECUTED: u8 = 16;

/// What is asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CaptureFilter {
    /// Clients of this address, or of this network: `192.0.2.0/24`.
    pub client: Option<String>,
    /// Bytes kept of a message, from [`SNAP_BYTES_LEAST`] to [`SNAP_BYTES_MAX`]; without it
    /// [`SNAP_BYTES_USUAL`].
    pub snap_bytes: Option<u32>,
    /// Replies have the contents of files also where the server sends them from the page cache. What is read and
    /// written may be in messages without it, too, as far as they are kept.
    #[serde(default)]
    pub contents: bool,
}

impl CaptureFilter {
    /// The address and the length of the prefix of the clients that are asked for, if not all are.
    ///
    /// # Errors
    /// When it is none, in words.
    pub fn network(&self) -> Result<Option<(IpAddr, u8)>, String> {
        self.client.as_deref().map(network).transpose()
    }

    /// Bytes kept of a message.
    ///
    /// # Errors
    /// When it is out of bounds, in words.
    pub fn kept_bytes(&self) -> Result<u32, String> {
        let bytes = self.snap_bytes.unwrap_or(SNAP_BYTES_USUAL);
        if (SNAP_BYTES_LEAST..=SNAP_BYTES_MAX).contains(&bytes) {
            return Ok(bytes);
        }
        Err(format!("snap_bytes: write a number from {SNAP_BYTES_LEAST} to {SNAP_BYTES_MAX}"))
    }
}

/// Reads an address, or a network as `192.0.2.0/24` or `2001:db8::/32`.
///
/// # Errors
/// When it is neither, in words.
pub fn network(text: &str) -> Result<(IpAddr, u8), String> {
    let wrong = || format!("{text:?}: write an address, or a network such as 192.0.2.0/24");
    let (address, prefix) = text.split_once('/').map_or((text, None), |(a, p)| (a, Some(p)));
    let address: IpAddr = address.parse().map_err(|_| wrong())?;
    let address = address.to_canonical();
    let bits = if address.is_ipv4() { 32 } else { 128 };
    let prefix = match prefix {
        None => bits,
        Some(text) => text.parse().ok().filter(|prefix| *prefix <= bits).ok_or_else(wrong)?,
    };
    Ok((address, prefix))
}

/// A message that was captured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CapturedMessage {
    /// When it came, or was ready to be sent, in ns since 1970.
    pub time_ns: u64,
    /// The client.
    pub client: SocketAddr,
    /// The address of the server that the client uses.
    pub server: SocketAddr,
    /// Whether it is a datagram, and not a record of a connection.
    pub is_datagram: bool,
    /// Whether the server has sent it.
    pub is_sent: bool,
    /// Whether it answers a call that repeats one which was known.
    pub is_repeat: bool,
    /// Of a reply: what its call's time was spent on.
    pub times: Option<CapturedTimes>,
    /// Of a reply: what was executed, if the server knows it. It says what results the message has, which its
    /// own bytes do not, and the number of a call does not surely.
    pub executed: Option<ExecutedCall>,
    /// Its whole length in bytes.
    pub length: u32,
    /// What was kept of it: its beginning.
    pub bytes: Vec<u8>,
}

/// What a server has executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExecutedCall {
    /// RPC program.
    pub program: u32,
    /// Its version.
    pub version: u32,
    /// Number of the procedure.
    pub procedure: u32,
}

/// What the time of a call was spent on, in ns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CapturedTimes {
    /// Its execution, the last one if it was suspended.
    pub executed_ns: u64,
    /// The part of it behind the place where it might wait for a disk; 0 if it came to none.
    pub waited_ns: u64,
    /// From its end until what was promised was stable.
    pub stable_ns: u64,
}

/// What a frame says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Frame {
    /// How much was dropped, and may wait.
    Counts(CaptureCounts),
    /// A message.
    Message(CapturedMessage),
    /// The capture has ended, since its reader did not read. Messages that waited for him were dropped.
    CutOff(CaptureCounts),
}

/// How a capture is doing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CaptureCounts {
    /// Messages that the server has dropped so far, since they came faster than they were read.
    pub dropped: u64,
    /// Bytes of messages that may wait in the server.
    pub room_bytes: u64,
}

/// A stream is none of captured messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("it is not a stream of captured messages: {0}")]
pub struct NoCapture(&'static str);

impl Frame {
    /// Appends it to a stream.
    pub fn write(&self, bytes: &mut Vec<u8>) {
        let start = bytes.len();
        bytes.extend([0; 4]);
        match self {
            Self::Counts(counts) | Self::CutOff(counts) => {
                bytes.push(if matches!(self, Self::Counts(_)) { COUNTS } else { CUT_OFF });
                bytes.extend(counts.dropped.to_le_bytes());
                bytes.extend(counts.room_bytes.to_le_bytes());
            }
            Self::Message(message) => {
                bytes.push(MESSAGE);
                bytes.extend(message.time_ns.to_le_bytes());
                bytes.push(message.flags());
                write_address(message.client, bytes);
                write_address(message.server, bytes);
                bytes.extend(message.length.to_le_bytes());
                if let Some(times) = message.times {
                    for ns in [times.executed_ns, times.waited_ns, times.stable_ns] {
                        bytes.extend(ns.to_le_bytes());
                    }
                }
                if let Some(ExecutedCall { program, version, procedure }) = message.executed {
                    for number in [program, version, procedure] {
                        bytes.extend(number.to_le_bytes());
                    }
                }
                bytes.extend_from_slice(&message.bytes);
            }
        }
        let length = bytes.len().saturating_sub(start + 5);
        if let Some(place) = bytes.get_mut(start..start + 4) {
            place.copy_from_slice(&(length as u32).to_le_bytes());
        }
    }

    /// Reads what is in a frame; `None` for one of another kind.
    fn read(kind: u8, mut bytes: &[u8]) -> Result<Option<Self>, NoCapture> {
        let bytes = &mut bytes;
        let counts = |bytes: &mut &[u8]| {
            Ok(CaptureCounts { dropped: u64_of(bytes)?, room_bytes: u64_of(bytes)? })
        };
        Ok(Some(match kind {
            COUNTS => Self::Counts(counts(bytes)?),
            CUT_OFF => Self::CutOff(counts(bytes)?),
            MESSAGE => Self::Message(CapturedMessage::read(bytes)?),
            _ => return Ok(None),
        }))
    }
}

impl CapturedMessage {
    fn flags(&self) -> u8 {
        let flag = |is_set, flag| if is_set { flag } else { 0 };
        flag(self.is_sent, SENT)
            | flag(self.is_datagram, DATAGRAM)
            | flag(self.times.is_some(), TIMES)
            | flag(self.is_repeat, REPEAT)
            | flag(self.executed.is_some(), EXECUTED)
    }

    fn read(bytes: &mut &[u8]) -> Result<Self, NoCapture> {
        let time_ns = u64_of(bytes)?;
        let [flags] = chunk(bytes)?;
        let has = |flag: u8| flags & flag != 0;
        let (client, server) = (address_of(bytes)?, address_of(bytes)?);
        let length = u32::from_le_bytes(chunk(bytes)?);
        let times = if has(TIMES) {
            Some(CapturedTimes {
                executed_ns: u64_of(bytes)?,
                waited_ns: u64_of(bytes)?,
                stable_ns: u64_of(bytes)?,
            })
        } else {
            None
        };
        let executed = if has(EXECUTED) {
            Some(ExecutedCall {
                program: u32::from_le_bytes(chunk(bytes)?),
                version: u32::from_le_bytes(chunk(bytes)?),
                procedure: u32::from_le_bytes(chunk(bytes)?),
            })
        } else {
            None
        };
        if bytes.len() > length as usize {
            return Err(NoCapture("a message has more bytes than it is long"));
        }
        Ok(Self {
            time_ns,
            client,
            server,
            is_datagram: has(DATAGRAM),
            is_sent: has(SENT),
            is_repeat: has(REPEAT),
            times,
            executed,
            length,
            bytes: bytes.to_vec(),
        })
    }
}

fn write_address(address: SocketAddr, bytes: &mut Vec<u8>) {
    bytes.extend(address.port().to_le_bytes());
    match address.ip().to_canonical() {
        IpAddr::V4(ip) => {
            bytes.push(4);
            bytes.extend(ip.octets());
            bytes.extend([0; 12]);
        }
        IpAddr::V6(ip) => {
            bytes.push(6);
            bytes.extend(ip.octets());
        }
    }
}

fn address_of(bytes: &mut &[u8]) -> Result<SocketAddr, NoCapture> {
    let port = u16::from_le_bytes(chunk(bytes)?);
    let [family] = chunk(bytes)?;
    let octets: [u8; 16] = chunk(bytes)?;
    let [a, b, c, d, ..] = octets;
    let ip: IpAddr = match family {
        4 => [a, b, c, d].into(),
        6 => IpAddr::from(octets).to_canonical(),
        _ => return Err(NoCapture("an address is neither of IPv4 nor of IPv6")),
    };
    Ok(SocketAddr::new(ip, port))
}

fn u64_of(bytes: &mut &[u8]) -> Result<u64, NoCapture> {
    chunk(bytes).map(u64::from_le_bytes)
}

fn chunk<const N: usize>(bytes: &mut &[u8]) -> Result<[u8; N], NoCapture> {
    let (first, rest) = bytes.split_first_chunk().ok_or(NoCapture("a frame is too short"))?;
    *bytes = rest;
    Ok(*first)
}

/// Reads a stream, in whatever pieces it comes.
#[derive(Debug, Default)]
pub struct FrameReader {
    bytes: Vec<u8>,
    /// Where in `bytes` the next frame begins.
    start: usize,
    has_begun: bool,
}

impl FrameReader {
    /// Takes the next piece.
    pub fn push(&mut self, piece: &[u8]) {
        self.bytes.drain(..self.start);
        self.start = 0;
        self.bytes.extend_from_slice(piece);
    }

    /// The next frame, if it is whole.
    ///
    /// # Errors
    /// When the stream is another one, or damaged. It cannot be read on then.
    pub fn next_frame(&mut self) -> Result<Option<Frame>, NoCapture> {
        loop {
            let rest = self.bytes.get(self.start..).unwrap_or_default();
            if !self.has_begun {
                let magic = rest.get(..MAGIC.len()).unwrap_or(rest);
                if !MAGIC.starts_with(magic) {
                    return Err(NoCapture("it begins otherwise; is it of another version?"));
                }
                if magic.len() < MAGIC.len() {
                    return Ok(None);
                }
                self.has_begun = true;
                self.start += MAGIC.len();
                continue;
            }
            let Some(([a, b, c, d, kind], rest)) = rest.split_first_chunk() else {
                return Ok(None);
            };
            let length = u32::from_le_bytes([*a, *b, *c, *d]) as usize;
            if length > FRAME_BYTES_MAX {
                return Err(NoCapture("a frame is too long"));
            }
            let Some(body) = rest.get(..length) else { return Ok(None) };
            let frame = Frame::read(*kind, body)?;
            self.start += 5 + length;
            if frame.is_some() {
                return Ok(frame);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    //! Property ring: what is written is read, however it is cut.
    use proptest::prelude::*;

    use super::*;

    fn address() -> impl Strategy<Value = SocketAddr> {
        let ip = prop_oneof![
            any::<[u8; 4]>().prop_map(IpAddr::from),
            any::<[u8; 16]>().prop_map(|octets| IpAddr::from(octets).to_canonical()),
        ];
        (ip, any::<u16>()).prop_map(SocketAddr::from)
    }

    fn message() -> impl Strategy<Value = Frame> {
        let times = proptest::option::of(any::<[u64; 3]>());
        let executed = proptest::option::of(any::<[u32; 3]>());
        let bytes = proptest::collection::vec(any::<u8>(), 0..200);
        let flags = any::<[bool; 3]>();
        (any::<u64>(), address(), address(), flags, times, executed, bytes, 0..1000_u32).prop_map(
            |(time_ns, client, server, flags, times, executed, bytes, more)| {
                let [is_datagram, is_sent, is_repeat] = flags;
                Frame::Message(CapturedMessage {
                    time_ns,
                    client,
                    server,
                    is_datagram,
                    is_sent,
                    is_repeat,
                    times: times.map(|[executed_ns, waited_ns, stable_ns]| CapturedTimes {
                        executed_ns,
                        waited_ns,
                        stable_ns,
                    }),
                    executed: executed.map(|[program, version, procedure]| ExecutedCall {
                        program,
                        version,
                        procedure,
                    }),
                    length: bytes.len() as u32 + more,
                    bytes,
                })
            },
        )
    }

    fn frame() -> impl Strategy<Value = Frame> {
        let counts = any::<(u64, u64, bool)>().prop_map(|(dropped, room_bytes, is_end)| {
            let counts = CaptureCounts { dropped, room_bytes };
            if is_end { Frame::CutOff(counts) } else { Frame::Counts(counts) }
        });
        prop_oneof![1 => counts, 4 => message()]
    }

    proptest! {
        #[test]
        fn frames_are_read_as_they_were_written(
            frames in proptest::collection::vec(frame(), 0..12),
            piece in 1..300_usize,
        ) {
            let mut bytes = MAGIC.to_vec();
            for frame in &frames {
                frame.write(&mut bytes);
                // Of a kind that comes later.
                bytes.extend([2, 0, 0, 0, 99, 1, 2]);
            }
            let mut reader = FrameReader::default();
            let mut read = Vec::new();
            for piece in bytes.chunks(piece) {
                reader.push(piece);
                while let Some(frame) = reader.next_frame().unwrap() {
                    read.push(frame);
                }
            }
            prop_assert_eq!(read, frames);
        }
    }

    #[test]
    fn another_stream_is_refused() {
        let refused = |bytes: &[u8]| {
            let mut reader = FrameReader::default();
            reader.push(bytes);
            reader.next_frame().is_err()
        };
        assert!(refused(b"{") && refused(b"SFCAPT\0\x01"));
        assert!(!refused(b"SFCAPT"));
        let with = |more: &[u8]| [&MAGIC[..], more].concat();
        assert!(refused(&with(&[255, 255, 255, 255, MESSAGE])));
        assert!(refused(&with(&[1, 0, 0, 0, COUNTS, 1])));
        assert!(!refused(&with(&[16, 0, 0, 0, COUNTS, 1])));
    }

    #[test]
    fn networks_are_read() {
        assert_eq!(network("192.0.2.1"), Ok(([192, 0, 2, 1].into(), 32)));
        assert_eq!(network("192.0.2.0/24"), Ok(([192, 0, 2, 0].into(), 24)));
        assert_eq!(network("2001:db8::/32"), Ok(("2001:db8::".parse().unwrap(), 32)));
        for wrong in ["", "host", "192.0.2.0/33", "192.0.2.0/", "::/129", "192.0.2.0/-1"] {
            assert!(network(wrong).is_err(), "{wrong}");
        }
    }
}
