//! `steadfast clients`: who has files open and locked at a running server, and how to end that.

use anyhow::{Context, Result, bail};
use clap::{Args, Subcommand};
use serde::Serialize;
use serde::de::DeserializeOwned;
use steadfast_control::clients::{ClientEnded, ClientsReport};
use steadfast_control::{Client, Patience, plain};
use steadfast_observe::text::clients as text;

use crate::output;
use crate::server_place::ServerChoice;

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct ClientsArguments {
    #[command(subcommand)]
    pub(crate) action: Option<ClientsAction>,
    #[command(flatten)]
    pub(crate) tell: TellClients,
    #[command(flatten)]
    pub(crate) server: ServerChoice,
}

/// How clients are told.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct TellClients {
    /// Tell what each client has open and locked, what it waits for, and behind whom.
    #[arg(long)]
    pub(crate) holds: bool,
    /// For programs: one line of JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ClientsAction {
    /// Tell of one client, with what it has.
    Show {
        /// Its id, as `steadfast clients` tells it.
        #[arg(value_parser = client_id)]
        id: String,
        /// For programs: one line of JSON.
        #[arg(long)]
        json: bool,
    },
    /// End a client: it loses all that it has open and locked, and others get it. A client of NFSv4 that is
    /// alive makes itself known again, and its programs get errors for the files that they had locked.
    /// Programs of a client of NFSv3 are not told that their locks have ended: stop them first.
    Expire {
        /// Its id, as `steadfast clients` tells it.
        #[arg(value_parser = client_id)]
        id: String,
        /// Do it though the client has something. Without this it is told what it would lose.
        #[arg(long)]
        yes_lose: bool,
        /// For programs: one line of JSON.
        #[arg(long)]
        json: bool,
    },
}

fn client_id(text: &str) -> Result<String, String> {
    match u64::from_str_radix(text, 16) {
        Ok(id) if text.bytes().all(|byte| byte.is_ascii_hexdigit()) => Ok(format!("{id:016x}")),
        _ => Err("16 hexadecimal digits, as `steadfast clients` tells them".to_owned()),
    }
}

/// Does what was asked for.
///
/// # Errors
/// When no server runs, when it may not be asked, and when nothing was done.
pub(crate) fn run(arguments: &ClientsArguments) -> Result<()> {
    let client = arguments.server.client()?;
    match &arguments.action {
        None => {
            let TellClients { holds, json } = arguments.tell;
            let report: ClientsReport = ask(&client, "GET", &format!("/v1/clients?holds={holds}"))?;
            tell(json, &report, text::list)
        }
        Some(ClientsAction::Show { id, json }) => tell(*json, &show(&client, id)?, text::list),
        Some(ClientsAction::Expire { id, yes_lose, json }) => {
            let report = show(&client, id)?;
            if let Some(one) = report.clients.first()
                && text::has_something(one)
                && !yes_lose
            {
                bail!(
                    "nothing was done: {}; to end it all the same, add --yes-lose",
                    text::cost(&plain::document(one)?)
                );
            }
            let route = format!("/v1/clients/expire?id={id}");
            let ended: ClientEnded = ask(&client, "POST", &route)?;
            tell(*json, &ended, |ended| format!("ended: {}\n", text::cost(&ended.client)))
        }
    }
}

fn show(client: &Client, id: &str) -> Result<ClientsReport> {
    ask(client, "GET", &format!("/v1/clients?holds=true&id={id}"))
}

fn ask<T: DeserializeOwned>(client: &Client, method: &str, route: &str) -> Result<T> {
    let answer = client.ask(method, route, Patience::Short)?;
    serde_json::from_slice(&answer)
        .context("what the server tells is not understood: use the program that it runs")
}

fn tell<T: Serialize + DeserializeOwned>(
    json: bool,
    told: &T,
    text: impl FnOnce(&T) -> String,
) -> Result<()> {
    let text = if json { plain::json(told)? + "\n" } else { text(&plain::document(told)?) };
    output::print(&text)
}
