//! What outlives a restart of owners of minor version 0, and which ids may be.

use std::net::{IpAddr, Ipv4Addr};

use super::{Image, assert_same, file, kept_state, principal, told};
use crate::image::Event;
use crate::{
    Callback, ClientId, ExchangeId, Open, OwnerBegun, OwnerReply, OwnerRequest, SetClient,
    ShareAccess, ShareDeny, StateError,
};

/// What a client of minor version 0 was told, it is told again after a restart.
#[test]
fn an_owners_sequence_goes_on_after_a_restart() {
    let state = kept_state();
    let request = SetClient {
        owner: b"host",
        verifier: [1; 8],
        principal: &principal(),
        callback: Callback { program: 5, ..Callback::default() },
        address: IpAddr::V4(Ipv4Addr::LOCALHOST),
    };
    let set = state.set_client(1, &request).expect("set");
    state.confirm_set_client(1, set.client, set.confirm, &principal()).expect("confirmed");
    let client = state.set_client_of(1, set.client).expect("confirmed");
    let of_digest = |seqid, digest, earlier_digest| OwnerRequest {
        seqid,
        operation: 18,
        digest,
        earlier_digest,
    };
    let of = |seqid| of_digest(seqid, 9, None);
    let Ok(OwnerBegun::New(owner)) = state.begin_open(&client, b"o", &of(5)) else {
        panic!("not new")
    };
    let (access, deny) = (ShareAccess::READ, ShareDeny::empty());
    let opened =
        state.open(&client, &Open { owner: b"o", file: file(1), access, deny }).expect("opened");
    assert!(state.opened(&owner, &opened), "to be confirmed");
    let reply = OwnerReply { status: 0, result: [1, 2].into(), object: Some((3, file(1).object)) };
    owner.finish(reply.clone());
    let mut updated = request.clone();
    updated.callback.program = 6;
    let update = state.set_client(1, &updated).expect("update");

    let mut image = Image::default();
    let mut events = Vec::new();
    state.take_events(&mut events);
    image.add(&events).expect("events");
    assert_same(&image, &told(&state));
    let state = kept_state();
    state.restore(1, image.clone());
    assert_same(&image, &told(&state));
    let client = state.set_client_of(1, set.client).expect("goes on");
    assert!(matches!(
        state.begin_open(&client, b"o", &of(5)),
        Ok(OwnerBegun::Again(again)) if again == reply
    ));
    // Its version has told requests apart by something else.
    assert!(matches!(
        state.begin_open(&client, b"o", &of_digest(5, 77, Some(9))),
        Ok(OwnerBegun::Again(again)) if again == reply
    ));
    assert_eq!(state.require_usable(&client, &opened), Err(StateError::BadStateId));
    let Ok(OwnerBegun::New(owner)) = state.begin_by_open(&client, &opened, &of(6), true) else {
        panic!("cannot be confirmed")
    };
    let confirmed = state.confirm_open(&owner, &opened, &file(1)).expect("confirmed");
    owner.finish(OwnerReply::default());
    assert_eq!(state.require_usable(&client, &confirmed), Ok(()));
    state.confirm_set_client(1, set.client, update.confirm, &principal()).expect("updated");
    assert_eq!(state.callback(set.client).map(|callback| callback.program), Some(6));
}

/// The highest index that events may have.
#[test]
fn nobodys_index_is_no_client() {
    for (index, is_event) in [(u16::MAX - 1, true), (u16::MAX, false)] {
        let mut bytes = Vec::new();
        Event::ClientGone(ClientId::new(7, 3, index)).append(&mut bytes);
        let mut image = Image::default();
        assert_eq!(image.add(&bytes).is_ok(), is_event);
        let state = kept_state();
        state.restore(1, image);
        let set = state.exchange_id(
            1,
            &ExchangeId {
                owner: b"host",
                verifier: [1; 8],
                principal: &principal(),
                is_update: false,
                implementation: b"test",
                address: IpAddr::V4(Ipv4Addr::LOCALHOST),
            },
        );
        assert!(set.is_ok());
    }
}
