//! Many requests at a time, for preparations.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use steadfast_client::nfs4::{Compound, CompoundReply, Nfs4Client};
use steadfast_client::{ClientError, RpcConnection};

use crate::drive::Control;
use crate::error::BenchError;
use crate::place4::{GRACE, is_later};

/// How long to wait when the server puts a request off.
const TRY_LATER: Duration = Duration::from_millis(20);

/// Makes so many requests, as many at a time as the session has slots; returns what `read` makes of their results, in
/// their order. What the server puts off is made again.
pub(crate) fn pipelined<R>(
    client: &mut Nfs4Client<RpcConnection>,
    control: &Control,
    count: usize,
    build: impl Fn(usize, Compound) -> Compound,
    read: impl Fn(usize, &mut CompoundReply<'_>) -> Result<R, ClientError>,
) -> Result<Vec<R>, BenchError> {
    let failed = || BenchError::client("preparing or removing a tree over NFSv4");
    let mut results: Vec<Option<R>> = (0..count).map(|_| None).collect();
    let mut waiting: VecDeque<usize> = (0..count).collect();
    let mut in_flight = VecDeque::new();
    let mut deadline = Instant::now() + GRACE;
    loop {
        while let Some(index) = waiting.pop_front() {
            match client.begin(false, |compound| build(index, compound)) {
                Ok(sent) => in_flight.push_back((index, sent)),
                Err(ClientError::NoFreeSlot) if !in_flight.is_empty() => {
                    waiting.push_front(index);
                    break;
                }
                Err(error) => return Err(failed()(error)),
            }
        }
        let Some((index, sent)) = in_flight.pop_front() else { break };
        if control.is_interrupted() {
            return Err(BenchError::Interrupted);
        }
        match client.receive(sent, |reply| read(index, reply)) {
            Ok(result) => {
                if let Some(place) = results.get_mut(index) {
                    *place = Some(result);
                }
                deadline = Instant::now() + GRACE;
            }
            Err(error) if is_later(&error) && Instant::now() < deadline => {
                std::thread::sleep(TRY_LATER);
                waiting.push_back(index);
            }
            Err(error) => return Err(failed()(error)),
        }
    }
    Ok(results.into_iter().flatten().collect())
}
