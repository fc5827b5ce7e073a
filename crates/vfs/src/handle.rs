//! Handles as storage makes them.

/// The largest storage handle, so that with share, MAC and header it fits NFSv3's 64 bytes.
pub const HANDLE_BYTES_MAX: usize = 44;

/// What a [`crate::FileSystem`] finds a file again by: opaque to everybody else, valid for the
/// file's life across restarts. The engine wraps it with share and MAC before a client sees it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StorageHandle {
    length: u8,
    bytes: [u8; HANDLE_BYTES_MAX],
}

impl StorageHandle {
    /// A handle of these bytes; `None` if there are more than [`HANDLE_BYTES_MAX`].
    pub fn new(bytes: &[u8]) -> Option<Self> {
        let mut handle =
            Self { length: u8::try_from(bytes.len()).ok()?, bytes: [0; HANDLE_BYTES_MAX] };
        handle.bytes.get_mut(..bytes.len())?.copy_from_slice(bytes);
        Some(handle)
    }

    /// The handle's bytes.
    pub fn as_bytes(&self) -> &[u8] {
        self.bytes.get(..usize::from(self.length)).unwrap_or(&[])
    }
}

impl std::fmt::Debug for StorageHandle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "StorageHandle(")?;
        for byte in self.as_bytes() {
            write!(f, "{byte:02x}")?;
        }
        write!(f, ")")
    }
}
