//! Calls that clients send again after a crash or a restart, byte for byte, from the same address.
//! What was acknowledged has to be answered the same way; what was under way must not fail for its own
//! success.

use std::collections::BTreeSet;

use anyhow::{Context, Result};
use steadfast_client::{Nfs3Client, NfsStat3, RpcConnection};

use crate::check::{Findings, replay};
use crate::operation::{Action, Number, Outcome};
use crate::random::Random;
use crate::state::State;
use crate::workload::Operation;

/// Of each client so many of the last calls are sent again, and so many of all.
const LAST: usize = 6;
const ANY: u64 = 12;

/// Sends what was under way. What is answered is acknowledged then, and in the state.
pub(crate) fn under_way(
    client: &mut Nfs3Client<RpcConnection>,
    operations: &[Operation],
    state: &mut State,
    under_way: &mut BTreeSet<Number>,
    findings: &mut Findings,
) -> Result<()> {
    let connection = client.transport();
    for number in under_way.clone() {
        let Some(operation) = operations.get(number as usize) else { continue };
        let action = operation.action;
        if action.is_local() || operation.call.is_empty() {
            continue;
        }
        let expected = state.expected(&action);
        connection.send_message(&operation.call)?;
        let reply = connection.receive_any()?;
        findings.in_flight += 1;
        match action.decode(reply).with_context(|| format!("#{number} {action}"))? {
            // By the verifier a client sees that the server is another, and that what it wrote before
            // is not promised.
            Outcome::Done(_) if matches!(action, Action::Commit { .. }) => {
                under_way.remove(&number);
            }
            Outcome::Done(done) => {
                state.apply(number, &action, &done);
                under_way.remove(&number);
            }
            // Whether it was done is seen later.
            Outcome::Failed(_) if expected == NfsStat3::Ok => findings.false_answers += 1,
            Outcome::Failed(_) => drop(under_way.remove(&number)),
        }
    }
    Ok(())
}

/// Sends calls that were acknowledged: the last of each client, and any. `resendable`: oldest first.
pub(crate) fn acknowledged(
    client: &mut Nfs3Client<RpcConnection>,
    operations: &[Operation],
    resendable: &[Number],
    random: &mut Random,
    findings: &mut Findings,
) -> Result<()> {
    let known = |number: &Number| Some((*number, operations.get(*number as usize)?));
    let mut taken: Vec<(Number, &Operation)> = Vec::new();
    for (number, operation) in resendable.iter().rev().filter_map(known) {
        if taken.iter().filter(|(_, other)| other.client == operation.client).count() < LAST {
            taken.push((number, operation));
        }
    }
    taken.extend((0..ANY).filter_map(|_| known(&random.choose(resendable)?)));
    // As they were sent the first time, so that one done again is over what came later.
    taken.sort_unstable_by_key(|(number, _)| *number);
    replay(client, &taken, findings)
}
