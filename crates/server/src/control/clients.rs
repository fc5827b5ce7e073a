//! Clients with state, by the control socket.

use std::collections::HashMap;
use std::fmt::Write;
use std::sync::Arc;

use steadfast_control::clients::{
    CLIENTS_MAX, ClientEnded, ClientFilter, ClientStatus, ClientsReport, HOLDINGS_MAX,
    HoldingStatus, VERSION,
};
use steadfast_control::{ClientService, Refusal, RefusalKind};
use steadfast_engine::clients::{
    ClientId, ClientReport, DelegationKind, Held, Holding, LockKind, Protocol,
};
use steadfast_engine::{Engine, ShareId};

use super::slow::path_of;

/// The clients of a server.
pub(super) struct ControlledClients(pub(super) Arc<Engine>);

impl ControlledClients {
    fn find(&self, id: &str) -> Result<ClientReport, Refusal> {
        let unreadable = || {
            let why =
                format!("{id:?} is no client's id: 16 hexadecimal digits, see steadfast clients");
            Refusal::new(RefusalKind::Unreadable, why)
        };
        let wanted = u64::from_str_radix(id, 16).map_err(|_| unreadable())?;
        let found = self.0.clients().into_iter().find(|client| client.id == ClientId(wanted));
        found.ok_or_else(|| gone(id))
    }
}

fn gone(id: &str) -> Refusal {
    Refusal::new(RefusalKind::NotFound, format!("there is no client {id}: see steadfast clients"))
}

impl ClientService for ControlledClients {
    fn list(&self, filter: &ClientFilter) -> Result<ClientsReport, Refusal> {
        let mut reports = match &filter.id {
            Some(id) => vec![self.find(id)?],
            None => self.0.clients(),
        };
        let total = reports.len();
        reports.truncate(CLIENTS_MAX);
        let mut room = HOLDINGS_MAX;
        let mut shares = HashMap::new();
        let clients = reports.iter().map(|report| {
            let mut status = status(report);
            if filter.holds {
                // Who left meanwhile has nothing.
                let held = self.0.holdings(report.id, room).unwrap_or_default();
                room = room.saturating_sub(held.0.len());
                status.has_more = held.1;
                let told =
                    held.0.iter().map(|one| holding(&self.0, one, filter.paths, &mut shares));
                status.holds = Some(told.collect());
            }
            status
        });
        let clients = clients.collect();
        Ok(ClientsReport { version: VERSION, is_in_grace: self.0.is_in_grace(), total, clients })
    }

    fn expire(&self, id: &str) -> Result<ClientEnded, Refusal> {
        let report = self.find(id)?;
        self.0.end_client(report.id).map_err(|_| gone(id))?;
        let client = status(&report);
        tracing::warn!(
            "ended by the administrator: client {} at {} with {} opens and {} locks",
            client.id,
            client.address,
            client.opens,
            client.locks
        );
        Ok(ClientEnded { version: VERSION, client })
    }
}

pub(super) fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

fn number(id: ClientId) -> String {
    format!("{:016x}", id.0)
}

/// What a client speaks, in a word.
pub(super) fn protocol_of(report: &ClientReport) -> &'static str {
    match report.protocol {
        Protocol::Nfs40 => "NFSv4.0",
        Protocol::Nfs41 => "NFSv4.1+",
        Protocol::Nlm => "NLM",
    }
}

/// How a client is doing, in a word.
pub(super) fn state_of(report: &ClientReport) -> &'static str {
    match (report.is_confirmed, report.is_courteous) {
        (false, _) => "unconfirmed",
        (true, true) => "courteous",
        (true, false) => "active",
    }
}

fn status(report: &ClientReport) -> ClientStatus {
    let (protocol, state) = (protocol_of(report), state_of(report));
    ClientStatus {
        id: number(report.id),
        address: report.address.to_string(),
        name: String::from_utf8_lossy(&report.owner).into_owned(),
        protocol: protocol.to_owned(),
        implementation: String::from_utf8_lossy(&report.implementation).into_owned(),
        state: state.to_owned(),
        is_reclaiming: report.is_reclaiming,
        is_recorded: report.is_recorded,
        silent_s: report.since_renewal_ms / 1000,
        sessions: report.sessions,
        opens: report.opens,
        locks: report.locks,
        delegations: report.delegations,
        holds: None,
        has_more: false,
    }
}

/// Shares with their paths, by file system.
type Shares = HashMap<u64, Vec<(ShareId, String)>>;

/// Shares of a file system that are asked for a file's path, at the most.
const SHARES_ASKED_MAX: usize = 16;

fn holding(
    engine: &Engine,
    holding: &Holding,
    with_path: bool,
    shares: &mut Shares,
) -> HoldingStatus {
    let Holding { file, owner, held } = holding;
    let shares = shares.entry(file.file_system).or_insert_with(|| engine.shares_with(file));
    let asked = shares.iter().take(if with_path { SHARES_ASKED_MAX } else { 0 });
    let status = HoldingStatus {
        shares: shares.iter().map(|(_, path)| path.clone()).collect(),
        path: asked.into_iter().find_map(|(share, _)| path_of(engine, *share, &file.object)),
        file: hexadecimal(file.object.as_bytes()),
        owner: hexadecimal(owner),
        ..HoldingStatus::default()
    };
    let lock = |kind: &str, range: &steadfast_engine::clients::LockRange, lock| HoldingStatus {
        kind: kind.to_owned(),
        access: if lock == LockKind::Read { "read" } else { "write" }.to_owned(),
        offset: range.offset,
        length: Some(range.length).filter(|length| *length != u64::MAX),
        ..status.clone()
    };
    match held {
        Held::Open { access, deny } => HoldingStatus {
            kind: "open".to_owned(),
            access: letters(access.bits()),
            deny: letters(deny.bits()),
            ..status
        },
        Held::Delegation { kind, is_recalled, is_revoked } => HoldingStatus {
            kind: match (is_recalled, is_revoked) {
                (_, true) => "revoked delegation",
                (true, false) => "recalled delegation",
                (false, false) => "delegation",
            }
            .to_owned(),
            access: if *kind == DelegationKind::Read { "read" } else { "write" }.to_owned(),
            ..status
        },
        Held::Lock { range, kind } => lock("lock", range, *kind),
        Held::Wait { range, kind, behind } => {
            let behind = behind.iter().map(|id| number(*id)).collect();
            HoldingStatus { behind, ..lock("wait", range, *kind) }
        }
    }
}

/// Reading is the first bit, writing the second.
fn letters(bits: u8) -> String {
    ["", "r", "w", "rw"].get(usize::from(bits & 3)).copied().unwrap_or_default().to_owned()
}
