//! Names that clients give themselves, as words of a line: what is not printable ASCII, and `%`, is written
//! as `%` and two digits.

use std::fmt::Write;

/// Appends a name to a line.
pub(crate) fn write_name(line: &mut String, name: &[u8]) {
    for byte in name {
        if byte.is_ascii_graphic() && *byte != b'%' {
            line.push(char::from(*byte));
        } else {
            // Writing to a string cannot fail.
            let _ = write!(line, "%{byte:02x}");
        }
    }
}

/// The name that was written so; `None` if nobody writes it so.
pub(crate) fn read_name(written: &str) -> Option<Vec<u8>> {
    let mut name = Vec::new();
    let mut bytes = written.bytes();
    while let Some(byte) = bytes.next() {
        let byte = if byte == b'%' {
            let digits = [bytes.next()?, bytes.next()?];
            u8::from_str_radix(std::str::from_utf8(&digits).ok()?, 16).ok()?
        } else {
            byte
        };
        name.push(byte);
    }
    Some(name)
}
