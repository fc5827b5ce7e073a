//! What stands behind a change in a record of the intent log: whose call it was, and its result, so
//! that a call that comes again after a crash is answered again and not executed again.
//!
//! | bytes | what |
//! |---|---|
//! | 1 | 2 if a call is told of; 1 if it is, with its whole reply; else 0 and nothing follows |
//! | 40 | the call's key in the duplicate request cache |
//! | rest | the result; or the whole reply, from the xid on, which is how older logs have it |
//!
//! Form 3 tells of one operation of a COMPOUND ([`crate::begun_outcomes`]).

use crate::begun_outcomes;
use crate::call_mark::call_of_mark;
use crate::reply_cache::{CallKey, KEY_BYTES};

/// The most bytes that stand behind a change: far more than the largest reply to a changing call.
pub const BEHIND_CHANGE_BYTES_MAX: usize = 2048;

const NO_CALL: u8 = 0;
const CALL_WITH_REPLY: u8 = 1;
const CALL_WITH_RESULT: u8 = 2;
/// Bytes of a reply before its result: xid, message type, reply status, verifier (two words), accept
/// status.
const REPLY_HEADER_BYTES: usize = 24;

/// Appends the call and its result to a record.
pub(crate) fn append(record: &mut Vec<u8>, key: Option<&CallKey>, result: &[u8]) {
    match key {
        Some(key) if 1 + KEY_BYTES + result.len() <= BEHIND_CHANGE_BYTES_MAX => {
            record.push(CALL_WITH_RESULT);
            record.extend_from_slice(&key.to_bytes());
            record.extend_from_slice(result);
        }
        _ => record.push(NO_CALL),
    }
}

/// The call and its result, if a record has them behind its change.
pub(crate) fn read(behind: &[u8]) -> Option<(CallKey, &[u8])> {
    let (form, rest) = behind.split_first()?;
    let (key, rest) = rest.split_first_chunk::<KEY_BYTES>()?;
    let result = match *form {
        CALL_WITH_RESULT => rest,
        CALL_WITH_REPLY => rest.get(REPLY_HEADER_BYTES..)?,
        _ => return None,
    };
    Some((CallKey::from_bytes(key), result))
}

/// What tells the call behind a change from all others, if a record has one there.
pub fn call_of(behind: &[u8]) -> Option<&[u8]> {
    if let Some((name, _)) = begun_outcomes::name_of(behind) {
        return Some(call_of_mark(name));
    }
    let (&(CALL_WITH_RESULT | CALL_WITH_REPLY), rest) = behind.split_first()? else { return None };
    rest.get(..KEY_BYTES)
}

/// What tells what stands behind a change from all else that may be kept of the same call: the call itself,
/// or the operation of a COMPOUND, of which each is kept.
pub fn kept_as(behind: &[u8]) -> Option<&[u8]> {
    begun_outcomes::name_of(behind).map(|(name, _)| name).or_else(|| call_of(behind))
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;
    use crate::Transport;

    #[test]
    fn a_call_is_read_as_it_was_appended() {
        let key = CallKey::new(
            Ipv4Addr::LOCALHOST.into(),
            Transport::Tcp,
            7,
            (100_003, 3, 8),
            b"arguments",
        );
        let mut record = Vec::new();
        append(&mut record, Some(&key), b"result");
        assert_eq!(read(&record), Some((key, &b"result"[..])));
        assert_eq!(call_of(&record), Some(&key.to_bytes()[..]));
        assert_eq!(call_of(&record[..40]), None);
        assert_eq!(read(&record[..20]), None);
        record.clear();
        append(&mut record, None, b"result");
        assert_eq!((read(&record), call_of(&record)), (None, None));
        assert_eq!((read(&[]), call_of(&[])), (None, None));
        // As logs have it that were written before results were kept.
        record.clear();
        record.push(CALL_WITH_REPLY);
        record.extend_from_slice(&key.to_bytes());
        record.extend_from_slice(b"the header of a reply   result");
        assert_eq!(read(&record), Some((key, &b"result"[..])));
        assert_eq!(call_of(&record), Some(&key.to_bytes()[..]));
        assert_eq!(read(&record[..60]), None);
        // Never more than the log was told to have room for.
        for length in [BEHIND_CHANGE_BYTES_MAX - 1 - KEY_BYTES, BEHIND_CHANGE_BYTES_MAX] {
            record.clear();
            append(&mut record, Some(&key), &vec![7; length]);
            assert!(record.len() <= BEHIND_CHANGE_BYTES_MAX);
            assert_eq!(read(&record).is_some(), length < BEHIND_CHANGE_BYTES_MAX - KEY_BYTES);
        }
    }
}
