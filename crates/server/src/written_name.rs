//! Names that clients give themselves, as words of a line: what is not printable ASCII, and `%`, is written
//! as `%` and two digits. Paths keep letters of other scripts.

use std::fmt::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use steadfast_control::plain;

/// A path as one word: white space, what commands a terminal, `%` and bytes that are no text are `%` and two
/// digits. Clients give names to files: none must look like another part of a line.
pub(crate) fn written_path(path: &Path) -> String {
    let mut word = String::new();
    for chunk in path.as_os_str().as_bytes().utf8_chunks() {
        for letter in chunk.valid().chars() {
            if letter.is_whitespace() || plain::is_command(letter) || letter == '%' {
                let mut bytes = [0; 4];
                write_bytes(&mut word, letter.encode_utf8(&mut bytes).as_bytes());
            } else {
                word.push(letter);
            }
        }
        write_bytes(&mut word, chunk.invalid());
    }
    word
}

fn write_bytes(word: &mut String, bytes: &[u8]) {
    for byte in bytes {
        // Writing to a string cannot fail.
        let _ = write!(word, "%{byte:02x}");
    }
}

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

#[cfg(test)]
mod tests {
    //! Unit ring.

    use std::ffi::OsStr;

    use super::*;

    #[test]
    fn a_path_is_one_word_whatever_a_client_calls_its_file() {
        let written = |bytes: &[u8]| written_path(Path::new(OsStr::from_bytes(bytes)));
        assert_eq!(written("/srv/daten/übung.txt".as_bytes()), "/srv/daten/übung.txt");
        // As if it were another client's.
        assert_eq!(written(b"/a  client 10.0.0.1"), "/a%20%20client%2010.0.0.1");
        assert_eq!(written(b"/a\n\x1b[2J%\xff"), "/a%0a%1b[2J%25%ff");
        assert_eq!(written("/\u{202e}\u{a0}x".as_bytes()), "/%e2%80%ae%c2%a0x");
        assert_eq!(written(&[]), "");
    }
}
