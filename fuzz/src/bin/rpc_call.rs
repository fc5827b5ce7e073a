//! Heads of calls, the credentials in them, and heads of replies.
#![no_main]

use libfuzzer_sys::fuzz_target;
use steadfast_client::{ReplyBody, parse_reply};
use steadfast_fuzz::{check, written};
use steadfast_rpc::Credentials;
use steadfast_wire::rpc::CallHeader;
use steadfast_xdr::{Decode, Reader};

fuzz_target!(|input: &[u8]| {
    check::<CallHeader<'_>>(input);
    if let Ok(call) = CallHeader::decode(&mut Reader::new(input)) {
        let again = written(&call);
        assert_eq!(CallHeader::decode(&mut Reader::new(&again)), Ok(call));
        if let Ok(Credentials::Sys(identity)) = Credentials::decode(&call.cred) {
            assert!(identity.gids.len() <= 16);
            assert!(identity.machinename.len() <= 255);
        }
    }
    if let Ok((xid, body)) = parse_reply(input) {
        assert_eq!(input.get(..4), Some(&xid.to_be_bytes()[..]));
        if let ReplyBody::Success { results_at } = body {
            assert!(results_at <= input.len());
        }
    }
});
