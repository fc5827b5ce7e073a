//! What stands behind a change in a record of the intent log: whose call it was, and the reply, so
//! that a call that comes again after a crash is answered again and not executed again.
//!
//! | bytes | what |
//! |---|---|
//! | 1 | 1 if a call is told of, else 0 and nothing follows |
//! | 32 | the call's key in the duplicate request cache |
//! | rest | the reply, from the xid on |

use crate::reply_cache::{CallKey, KEY_BYTES};

const NO_CALL: u8 = 0;
const CALL: u8 = 1;

/// Appends the call and its reply to a record.
pub(crate) fn append(record: &mut Vec<u8>, key: Option<&CallKey>, reply: &[u8]) {
    match key {
        None => record.push(NO_CALL),
        Some(key) => {
            record.push(CALL);
            record.extend_from_slice(&key.to_bytes());
            record.extend_from_slice(reply);
        }
    }
}

/// The call and its reply, if a record has them behind its change.
pub(crate) fn read(behind: &[u8]) -> Option<(CallKey, &[u8])> {
    let (&CALL, rest) = behind.split_first()? else { return None };
    let (key, reply) = rest.split_first_chunk::<KEY_BYTES>()?;
    Some((CallKey::from_bytes(key), reply))
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    #[test]
    fn a_call_is_read_as_it_was_appended() {
        let key = CallKey::new(Ipv4Addr::LOCALHOST.into(), 7, (100_003, 3, 8), b"arguments");
        let mut record = Vec::new();
        append(&mut record, Some(&key), b"reply");
        assert_eq!(read(&record), Some((key, &b"reply"[..])));
        assert_eq!(read(&record[..20]), None);
        record.clear();
        append(&mut record, None, b"reply");
        assert_eq!(read(&record), None);
        assert_eq!(read(&[]), None);
    }
}
