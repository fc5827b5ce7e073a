//! SETCLIENTID, `SETCLIENTID_CONFIRM`, RENEW (RFC 7530 §16.31, §16.33, §16.34): what a client of minor
//! version 0 has in the place of a session.

use std::net::IpAddr;

use steadfast_state::{Callback, ClientId, SetClient, SetClientError};
use steadfast_wire::nfs4::{
    ClientInUse4, NfsStat4, Op4, Renew4Args, SetClientId4Args, SetClientIdConfirm4Args,
};
use steadfast_xdr::{Encode, Writer};

use super::client::principal;
use super::stateids::client_named;
use super::status::{OrStatus, status_of_state};
use crate::compound::{Op, Run};
use crate::reply::ReplyBuffer;

pub(super) struct SetClientId;

impl Op for SetClientId {
    const NUMBER: Op4 = Op4::SetClientId;
    const NAME: &'static str = "SETCLIENTID";
    const RESULT_BYTES_MAX: usize = 16;
    type Arguments<'a> = SetClientId4Args<'a>;

    fn run(
        run: &mut Run<'_, '_>,
        arguments: &SetClientId4Args<'_>,
        reply: &mut ReplyBuffer,
    ) -> Result<(), NfsStat4> {
        if arguments.id.is_empty() {
            return Err(NfsStat4::Inval);
        }
        let callback = Callback {
            program: arguments.callback.program,
            netid: arguments.callback.netid.into(),
            address: arguments.callback.address.into(),
            ident: arguments.callback_ident,
        };
        let request = SetClient {
            owner: arguments.id,
            verifier: arguments.verifier,
            principal: &principal(run),
            callback,
            address: run.call.peer.address.ip(),
        };
        match run.nfs4.state.set_client(run.call.now_ms, &request) {
            Ok(set) => {
                let mut w = Writer::new(&mut reply.bytes);
                w.u64(set.client.0);
                w.fixed_opaque(&set.confirm);
                Ok(())
            }
            Err(SetClientError::InUse(address)) => {
                tell_who(address, &mut run.failure);
                Err(NfsStat4::ClIdInUse)
            }
            Err(SetClientError::State(error)) => Err(status_of_state(error)),
        }
    }
}

/// Tells where the client is that uses a name; by which port is not known.
fn tell_who(address: IpAddr, failure: &mut Vec<u8>) {
    let netid: &[u8] = if address.is_ipv4() { b"tcp" } else { b"tcp6" };
    let address = format!("{address}.0.0");
    ClientInUse4 { netid, address: address.as_bytes() }.encode(&mut Writer::new(failure));
}

pub(super) struct SetClientIdConfirm;

impl Op for SetClientIdConfirm {
    const NUMBER: Op4 = Op4::SetClientIdConfirm;
    const NAME: &'static str = "SETCLIENTID_CONFIRM";
    type Arguments<'a> = SetClientIdConfirm4Args;

    fn run(
        run: &mut Run<'_, '_>,
        arguments: &SetClientIdConfirm4Args,
        _: &mut ReplyBuffer,
    ) -> Result<(), NfsStat4> {
        let (client, confirm) = (ClientId(arguments.clientid), arguments.confirm);
        let (state, now_ms) = (&run.nfs4.state, run.call.now_ms);
        state.confirm_set_client(now_ms, client, confirm, &principal(run)).or_status()
    }
}

/// Callbacks are not made, and nothing is delegated: that there is no way to the client does not matter.
pub(super) struct Renew;

impl Op for Renew {
    const NUMBER: Op4 = Op4::Renew;
    const NAME: &'static str = "RENEW";
    type Arguments<'a> = Renew4Args;

    fn run(
        run: &mut Run<'_, '_>,
        arguments: &Renew4Args,
        _: &mut ReplyBuffer,
    ) -> Result<(), NfsStat4> {
        client_named(run, arguments.clientid).map(drop)
    }
}
