//! Sun's Table 1: all shares on and off by one command, by number of shares, beside the paper's
//! figures and other servers'; and how long a server that starts takes to serve them.

use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::json;

use super::farm::GROUP;
use super::paper;
use super::rivals::{self, Outcome};
use super::server::{Home, Running};
use super::{Site, shown_count};
use crate::report::median;
use crate::report::{Findings, Goal, Table, figure};

/// What was measured at one number of shares, in seconds.
#[derive(Clone, Debug, Default)]
struct Measured {
    shares: usize,
    on: Vec<f64>,
    off: Vec<f64>,
    first: Vec<f64>,
    all: Vec<f64>,
}

/// A row of the table: what came of each number of shares, if it was tried.
pub(super) struct Row {
    pub(super) name: String,
    pub(super) cells: Vec<Option<Outcome>>,
}

/// Measures all that.
pub(super) fn measure(site: &Site<'_>) -> Result<Findings> {
    let sizes = site.options.sizes();
    let mut measured = Vec::new();
    for shares in sizes {
        let one = one_size(site, *shares).with_context(|| format!("{shares} shares"))?;
        measured.push(one);
    }
    let rivals =
        if site.options.without_peers { Vec::new() } else { rivals::measure(site, sizes)? };
    Ok(findings(&site.conditions()?, &measured, &rivals))
}

fn one_size(site: &Site<'_>, shares: usize) -> Result<Measured> {
    let mut measured = Measured { shares, ..Measured::default() };
    site.farm.make(0..shares)?;
    let home = Home::make(&site.home(), &site.farm, shares)?;
    // The first start makes what every later one finds: the key, the log.
    Running::start(&home, &site.cpus, &site.farm, shares)?.0.stop()?;
    for _round in 0..site.options.rounds {
        let (running, started) = Running::start(&home, &site.cpus, &site.farm, shares)?;
        running.stop()?;
        measured.first.push(started.first.as_secs_f64());
        measured.all.push(started.all.as_secs_f64());
    }
    let (running, _) = Running::start(&home, &site.cpus, &site.farm, shares)?;
    let some = [0, shares / 2, shares - 1].map(|share| site.farm.path(share));
    for _round in 0..site.options.rounds {
        let off = running.command(&["group", "disable", GROUP])?;
        running.probe.expect_none(&some).context("after the command that disables all")?;
        let on = running.command(&["group", "enable", GROUP])?;
        running.probe.expect_all(shares, &some).context("after the command that enables all")?;
        measured.off.push(off.as_secs_f64());
        measured.on.push(on.as_secs_f64());
    }
    running.stop()?;
    let shown = |values: &[f64]| median(values.to_vec()).map_or_else(String::new, shown_seconds);
    eprintln!(
        "  {:>7} shares: on {}, off {}; a start: first {}, all {}",
        shown_count(shares),
        shown(&measured.on),
        shown(&measured.off),
        shown(&measured.first),
        shown(&measured.all)
    );
    Ok(measured)
}

/// So many seconds, as people say them: `12 ms`, `3.4 s`, `1:06:36`.
pub(super) fn shown_seconds(seconds: f64) -> String {
    if seconds < 1.0 {
        return format!("{} ms", figure(seconds * 1000.0));
    }
    if seconds < 60.0 {
        return format!("{seconds:.1} s");
    }
    let whole = Duration::from_secs_f64(seconds).as_secs();
    format!("{}:{:02}:{:02}", whole / 3600, whole / 60 % 60, whole % 60)
}

fn shown(outcome: &Outcome) -> [String; 2] {
    match outcome {
        Outcome::Took { on, off, is_start } => {
            let start = if *is_start { " (its start)" } else { "" };
            let off = off.map_or_else(|| "–".to_owned(), shown_seconds);
            [format!("{}{start}", shown_seconds(*on)), off]
        }
        Outcome::GaveUp(after) => {
            let text = format!("> {}", shown_seconds(*after));
            [text.clone(), text]
        }
        Outcome::Cannot(_) => ["cannot".to_owned(), "cannot".to_owned()],
    }
}

fn findings(conditions: &str, measured: &[Measured], rivals: &[Row]) -> Findings {
    let mut findings = Findings::default();
    findings.say(conditions);
    let mut columns = vec![String::new()];
    for one in measured {
        let shares = shown_count(one.shares);
        columns.extend([format!("{shares} on"), format!("{shares} off")]);
    }
    let columns: Vec<&str> = columns.iter().map(String::as_str).collect();
    let mut table = Table::new(&columns);
    for row in &paper::ROWS {
        let cells = measured.iter().flat_map(|one| match row.at(one.shares) {
            None => [String::new(), String::new()],
            Some(None) => ["> 1 week".to_owned(), "> 1 week".to_owned()],
            Some(Some((on, off))) => [shown_seconds(on), shown_seconds(off)],
        });
        table.row(&[vec![row.approach.to_owned()], cells.collect()].concat());
    }
    for row in rivals {
        let cells = row.cells.iter().flat_map(|cell| match cell {
            None => [String::new(), String::new()],
            Some(outcome) => shown(outcome),
        });
        table.row(&[vec![row.name.clone()], cells.collect()].concat());
    }
    let ours = measured.iter().flat_map(|one| {
        [&one.on, &one.off]
            .map(|values| median(values.clone()).map_or_else(String::new, shown_seconds))
    });
    table.row(&[vec!["**Steadfast**".to_owned()], ours.collect()].concat());
    findings.add_table(&table);
    for row in rivals {
        let why = row.cells.iter().flatten().find_map(|outcome| match outcome {
            Outcome::Cannot(why) => Some(why),
            _ => None,
        });
        if let Some(why) = why {
            findings.say(format!("{}: {why}.", row.name));
        }
    }
    let mut starts =
        Table::new(&["a start with so many shares", "the first is served after", "all"]);
    for one in measured {
        let cell = |values: &[f64]| median(values.to_vec()).map_or_else(String::new, shown_seconds);
        starts.row(&[shown_count(one.shares), cell(&one.first), cell(&one.all)]);
    }
    findings.add_table(&starts);
    findings.goals = goals(measured);
    for one in measured {
        findings.add_raw(json!({
            "shares": one.shares, "on_s": one.on, "off_s": one.off,
            "start_first_s": one.first, "start_all_s": one.all,
        }));
    }
    for row in rivals {
        let cells: Vec<_> = row.cells.iter().map(|cell| cell.as_ref().map(Outcome::json)).collect();
        findings.add_raw(json!({ "row": row.name, "cells": cells }));
    }
    findings
}

/// What was asked for at the numbers that were measured.
fn goals(measured: &[Measured]) -> Vec<Goal> {
    let at = |shares: usize| measured.iter().find(|one| one.shares == shares);
    let mut goals = Vec::new();
    if let Some(one) = at(15_150) {
        for (what, limit, values) in [
            ("15,150 shares on, s", 1.0, &one.on),
            ("15,150 shares off, s", 0.5, &one.off),
            ("a start with 15,150 shares: the first is served after, s", 0.2, &one.first),
            ("a start with 15,150 shares: all are served after, s", 1.5, &one.all),
        ] {
            goals.push(Goal::at_most(what, limit, median(values.clone())));
        }
    }
    if let Some(one) = at(100_000) {
        goals.push(Goal::at_most("100,000 shares on, s", 8.0, median(one.on.clone())));
    }
    if let Some((few, many)) = at(2900).zip(at(100_000)) {
        let linear = many.shares as f64 / few.shares as f64;
        for (what, few, many) in [("on", &few.on, &many.on), ("off", &few.off, &many.off)] {
            let few = median(few.clone());
            let times = median(many.clone()).zip(few).map(|(many, few)| many / few);
            let what = format!("from 2,900 to 100,000 shares {what}: times as long (linear: 34.5)");
            goals.push(Goal::at_most(what, linear, times));
        }
    }
    goals
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measured(shares: usize, on: f64, off: f64) -> Measured {
        Measured { shares, on: vec![on], off: vec![off], first: vec![0.1], all: vec![0.2] }
    }

    #[test]
    fn times_are_said_as_people_say_them() {
        let shown = [0.0123, 0.5, 1.25, 59.0, 3996.0].map(shown_seconds);
        assert_eq!(shown, ["12.3 ms", "500 ms", "1.2 s", "59.0 s", "1:06:36"]);
    }

    #[test]
    fn the_table_has_everybody_and_the_goals_their_verdicts() {
        let all =
            [measured(2900, 0.1, 0.05), measured(15_150, 0.9, 0.6), measured(100_000, 3.0, 1.0)];
        let took = |is_start| Outcome::Took { on: 12.0, off: Some(3.0), is_start };
        let cells = vec![Some(took(false)), Some(Outcome::GaveUp(180.0)), Some(took(true))];
        let rivals = [Row { name: "exportfs".to_owned(), cells }];
        let findings = findings("Somewhere.", &all, &rivals);
        let text = findings.markdown();
        assert!(text.contains("| Sun: before | > 1 week | > 1 week | > 1 week | > 1 week |  |  |"));
        assert!(text.contains(
            "| exportfs | 12.0 s | 3.0 s | > 0:03:00 | > 0:03:00 | 12.0 s (its start) | 3.0 s |"
        ));
        assert!(text.contains("| **Steadfast** | 100 ms | 50.0 ms | 900 ms | 600 ms | 3.0 s |"));
        // Off took 0.6 s instead of 0.5 s.
        assert_eq!(findings.misses(), 1, "{text}");
        assert_eq!(findings.goals.len(), 7);
        let growth = [measured(2900, 0.1, 0.1), measured(100_000, 3.6, 1.0)];
        assert_eq!(super::findings("", &growth, &[]).misses(), 1);
    }
}
