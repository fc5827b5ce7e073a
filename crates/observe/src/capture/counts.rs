//! What a capture has seen, and what it could not see.

use serde::Serialize;

/// Numbers of one capture.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Counts {
    /// Packets that were handed over.
    pub packets: u64,
    /// Their bytes on the wire.
    pub bytes: u64,
    /// Packets that are not of TCP or UDP, or of other ports.
    pub other_packets: u64,
    /// Packets that were seen before: on the way out over the loopback interface, or at another interface.
    pub copies: u64,
    /// Datagrams of which IP fragments are missing.
    pub incomplete_datagrams: u64,
    /// TCP segments that had nothing new.
    pub repeated_segments: u64,
    /// Gaps in TCP streams: the capture has lost packets.
    pub gaps: u64,
    /// Bytes that are missing in them.
    pub gap_bytes: u64,
    /// How often a stream had to be searched for the next record.
    pub searches: u64,
    /// Messages of RPC.
    pub messages: u64,
    /// Messages that were damaged, or no RPC.
    pub unreadable_messages: u64,
    /// Replies whose call was not seen.
    pub replies_without_call: u64,
    /// Calls whose reply did not come in time.
    pub unanswered: u64,
    /// Calls that were sent again.
    pub retransmissions: u64,
    /// Calls that wait for their reply now.
    pub waiting: u64,
    /// Bytes of memory that these take.
    pub waiting_bytes: u64,
    /// Calls that were not followed, since too many waited.
    pub not_followed: u64,
    /// COMPOUNDs of which not all operations could be read.
    pub partial_compounds: u64,
    /// Connections by TLS: nothing in them can be read.
    pub tls_connections: u64,
    /// Packets of them.
    pub tls_packets: u64,
    /// Calls that are encrypted by Kerberos (krb5p): only their number can be told.
    pub encrypted_calls: u64,
    /// Records that were given up to save memory.
    pub given_up: u64,
    /// Connections that are followed.
    pub connections: u64,
    /// Connections that were forgotten, since there were too many.
    pub forgotten_connections: u64,
}

impl Counts {
    /// Whether calls may be missing in what is shown.
    pub fn is_lossy(&self) -> bool {
        self.gaps + self.incomplete_datagrams + self.not_followed + self.given_up > 0
    }
}
