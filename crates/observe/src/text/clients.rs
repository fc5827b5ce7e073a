//! Clients, for people.

use std::fmt::Write;

use steadfast_control::clients::{ClientStatus, ClientsReport, HoldingStatus};

/// A list of clients, with what they hold if that was asked for.
#[must_use]
pub fn list(report: &ClientsReport) -> String {
    let mut text = String::new();
    if report.is_in_grace {
        text +=
            "grace period: clients reclaim what the server has lost, and others wait for them\n";
    }
    if report.clients.is_empty() {
        return text + "no clients have anything open or locked\n";
    }
    let head = ["ID", "ADDRESS", "PROTOCOL", "STATE", "HEARD", "OPENS", "LOCKS", "NAME"];
    let rows: Vec<[String; 8]> = report.clients.iter().map(row).collect();
    let mut widths = head.map(str::len);
    for row in &rows {
        for (width, field) in widths.iter_mut().zip(row) {
            *width = (*width).max(field.chars().count());
        }
    }
    append(&mut text, &head.map(str::to_owned), &widths);
    for (row, client) in rows.iter().zip(&report.clients) {
        append(&mut text, row, &widths);
        for holding in client.holds.iter().flatten() {
            // Writing to a string cannot fail.
            let _ = writeln!(text, "  {}", holds(holding));
        }
        if client.has_more {
            text += "  and more\n";
        }
    }
    let left = report.total.saturating_sub(report.clients.len());
    if left > 0 {
        let _ = writeln!(text, "and {left} clients more");
    }
    text
}

fn row(client: &ClientStatus) -> [String; 8] {
    let state = match (client.is_reclaiming, client.state.as_str()) {
        (true, _) => "reclaiming",
        (false, state) => state,
    };
    [
        client.id.clone(),
        client.address.clone(),
        client.protocol.clone(),
        state.to_owned(),
        format!("{} s ago", client.silent_s),
        client.opens.to_string(),
        client.locks.to_string(),
        client.name.clone(),
    ]
}

fn append<const N: usize>(text: &mut String, row: &[String; N], widths: &[usize; N]) {
    let mut line = String::new();
    for (field, width) in row.iter().zip(widths) {
        let gap = width.saturating_sub(field.chars().count()) + 2;
        line += field;
        line.extend(std::iter::repeat_n(' ', gap));
    }
    *text += line.trim_end();
    text.push('\n');
}

/// What a client has at a file, in a line.
fn holds(holding: &HoldingStatus) -> String {
    let HoldingStatus { kind, shares, file, path, access, deny, offset, length, behind, .. } =
        holding;
    let place = match shares.as_slice() {
        [] => "in no share of now".to_owned(),
        [one] => format!("in {one}"),
        [one, rest @ ..] => format!("in {one} (or {} more)", rest.len()),
    };
    let file = match path {
        Some(path) => path.clone(),
        None => format!("file {file} {place}"),
    };
    let bytes = match length {
        Some(length) => format!("{length} bytes from {offset} on"),
        None => format!("from {offset} to the end"),
    };
    match kind.as_str() {
        "open" if deny.is_empty() => format!("open {access}: {file}"),
        "open" => format!("open {access}, denies {deny}: {file}"),
        "lock" => format!("{access} lock, {bytes}: {file}"),
        "delegation" | "recalled delegation" | "revoked delegation" => {
            format!("{access} {kind}: {file}")
        }
        _ if behind.is_empty() => format!("waits for {access} lock, {bytes}: {file}"),
        _ => format!("waits for {access} lock, {bytes}, behind {}: {file}", behind.join(", ")),
    }
}

/// Whether a client would lose something.
#[must_use]
pub fn has_something(client: &ClientStatus) -> bool {
    client.opens + client.locks + client.delegations > 0
}

/// Who it is, and what it loses.
#[must_use]
pub fn cost(client: &ClientStatus) -> String {
    let ClientStatus { id, address, name, opens, locks, delegations, state, protocol, .. } = client;
    let delegations = match delegations {
        0 => String::new(),
        count => format!(", {count} delegations"),
    };
    // NLM has no word for it.
    let programs = match protocol.as_str() {
        "NLM" if *locks > 0 => {
            ". Programs of a client of NFSv3 are not told that their locks have ended: stop them first"
        }
        _ => "",
    };
    format!(
        "client {id} ({name} at {address}, {state}) has {opens} opens and {locks} locked ranges{delegations}, \
         which it loses; others may change those files before it knows{programs}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report() -> ClientsReport {
        let holding = |kind: &str| HoldingStatus {
            kind: kind.to_owned(),
            shares: vec!["/srv/data".to_owned()],
            file: "0102".to_owned(),
            access: if kind == "open" { "rw" } else { "write" }.to_owned(),
            deny: if kind == "open" { "w" } else { "" }.to_owned(),
            offset: 5,
            length: (kind == "lock").then_some(10),
            behind: if kind == "wait" { vec!["0000000700010000".to_owned()] } else { vec![] },
            ..HoldingStatus::default()
        };
        let client = ClientStatus {
            id: "0000000700010001".to_owned(),
            address: "10.0.0.1".to_owned(),
            name: "one".to_owned(),
            protocol: "NFSv4.1+".to_owned(),
            state: "active".to_owned(),
            silent_s: 3,
            opens: 1,
            locks: 2,
            holds: Some(vec![
                holding("open"),
                holding("lock"),
                HoldingStatus { path: Some("/srv/data/a".to_owned()), ..holding("lock") },
                holding("wait"),
            ]),
            has_more: true,
            ..ClientStatus::default()
        };
        let clients = vec![client];
        ClientsReport { version: 1, is_in_grace: false, total: 3, clients }
    }

    #[test]
    fn a_client_is_told_with_what_it_has() {
        assert_eq!(
            list(&report()),
            "ID                ADDRESS   PROTOCOL  STATE   HEARD    OPENS  LOCKS  NAME\n\
             0000000700010001  10.0.0.1  NFSv4.1+  active  3 s ago  1      2      one\n  \
             open rw, denies w: file 0102 in /srv/data\n  \
             write lock, 10 bytes from 5 on: file 0102 in /srv/data\n  \
             write lock, 10 bytes from 5 on: /srv/data/a\n  \
             waits for write lock, from 5 to the end, behind 0000000700010000: file 0102 in \
             /srv/data\n  \
             and more\n\
             and 2 clients more\n"
        );
    }

    #[test]
    fn nobody_and_grace_are_told_too() {
        let mut report = report();
        report.is_in_grace = true;
        report.clients[0].is_reclaiming = true;
        let text = list(&report);
        assert!(text.starts_with("grace period: ") && text.contains("  reclaiming  "), "{text}");
        let nobody = ClientsReport::default();
        assert_eq!(list(&nobody), "no clients have anything open or locked\n");
        let client = &mut report.clients[0];
        assert!(cost(client).contains("1 opens and 2 locked ranges"));
        // Of NFSv4 it learns it.
        assert!(cost(client).ends_with("before it knows"), "{}", cost(client));
        client.protocol = "NLM".to_owned();
        assert!(cost(client).ends_with("have ended: stop them first"), "{}", cost(client));
        client.locks = 0;
        assert!(cost(client).ends_with("before it knows"), "{}", cost(client));
    }
}
