//! Process ring: NFSv4.1 requests in flight when the real program is killed. Sent again to the next one, in
//! the same slots, each gets the reply of its one execution.
//!
//! `STEADFAST_KILLS` has more kills than a short run, `STEADFAST_FILE_SYSTEM` another file system than ext4
//! (`xfs`, `btrfs`), `STEADFAST_SHARE` further lines of the share's configuration (`log = false`),
//! `STEADFAST_PROGRAM` another program. A run prints how many requests were in flight, and how
//! many of them got a wrong answer.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

mod common;
mod intent_log_support;
mod nfs4_support;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use common::{Place, Running, utf8};
use intent_log_support::{kill, program_and_configuration, wanted_file_system};
use nfs4_support::{Slot, Wire, connect, xid};

const CONNECTIONS: u32 = 6;
/// Slots of each connection's session.
const SLOTS: u32 = 6;
/// Of a short run.
const KILLS: u64 = 12;

/// Keeps requests of its slots in flight until the connection ends. Returns how many were answered.
fn load(server: SocketAddr, slots: &mut [Slot]) -> u64 {
    // On a busy machine it may be killed before somebody comes.
    let Ok(mut wire) = Wire::connect(server) else { return 0 };
    let mut answered = 0;
    for slot in &mut *slots {
        if wire.send(&slot.call).is_err() {
            return answered;
        }
    }
    while let Ok(reply) = wire.receive() {
        let id = xid(&reply) >> 20;
        let slot = slots.iter_mut().find(|slot| slot.id == id).unwrap();
        slot.end(&reply).unwrap();
        answered += 1;
        if wire.send(&slot.call).is_err() {
            break;
        }
    }
    answered
}

/// The slots of all sessions.
fn slots(place: &Place, server: SocketAddr) -> Vec<Slot> {
    let mut slots = Vec::new();
    for connection in 0..CONNECTIONS {
        let mut client = connect(server, SLOTS);
        let path = utf8(&place.share).as_bytes();
        let dirs = ["one", "two"].map(|word| {
            let name = format!("{word} {connection}");
            std::fs::create_dir(place.share.join(&name)).unwrap();
            client.lookup_path(&[path, b"/", name.as_bytes()].concat()).unwrap()
        });
        let session = client.session();
        let sequence = session.slots.take().unwrap().sequence();
        for number in 0..SLOTS {
            // All requests so far were in the first slot.
            let sequence = if number == 0 { sequence } else { 1 };
            let id = (connection * SLOTS + number, number);
            slots.push(Slot::new(id, session.slots.session(), sequence, (&dirs[0], &dirs[1])));
        }
    }
    slots
}

#[test]
fn requests_in_flight_get_the_reply_of_their_one_execution() {
    let kills = std::env::var("STEADFAST_KILLS").map_or(KILLS, |kills| kills.parse().unwrap());
    let mut place = Place::new();
    let Some(_disk) = wanted_file_system(&place) else { return };
    let configuration = program_and_configuration(&mut place);
    let start = || Running::start(&place, 0, &["--config", utf8(&configuration)]);
    let mut running = start();
    let mut slots = slots(&place, running.address);
    let (mut answered, mut in_flight) = (0, 0);
    let mut wrong: BTreeMap<String, u64> = BTreeMap::new();
    for round in 0..kills {
        let server = running.address;
        answered += std::thread::scope(|scope| {
            let loads: Vec<_> = slots
                .chunks_mut(SLOTS as usize)
                .map(|slots| scope.spawn(move || load(server, slots)))
                .collect();
            // At another moment of checkpoints and batches each time.
            std::thread::sleep(Duration::from_micros(20_000 + round * 7_919 % 60_000));
            kill(running);
            loads.into_iter().map(|load| load.join().unwrap()).sum::<u64>()
        });
        running = start();
        if round % 4 == 1 {
            kill(running);
            running = start();
        }
        // What has no reply comes again, by another connection and in another order.
        let mut wire = Wire::connect(running.address).unwrap();
        for slot in slots.iter_mut().rev() {
            in_flight += 1;
            let call = slot.call.clone();
            let reply = wire.ask(&call);
            if let Err(why) = slot.end(&reply) {
                *wrong.entry(why).or_default() += 1;
            } else {
                assert!(wire.ask(&call)[4..] == reply[4..], "it is said again");
            }
        }
    }
    drop(running);
    let count: u64 = wrong.values().sum();
    println!(
        "{kills} kills, {answered} requests answered, {in_flight} in flight when the server was killed, \
         {count} ({:.2} %) with a wrong answer: {wrong:?}",
        100.0 * count as f64 / f64::from(in_flight)
    );
    assert_eq!(count, 0, "{wrong:?}");
    assert!(answered > 10 * kills);
}
