//! Two thousand automounters at one moment that mount everything: each asks for the list of shares
//! and mounts a thousand of them, while others call GETATTR.

use anyhow::Result;
use serde_json::Value;

use super::load;
use super::server::{ADDRESS, Home, Running};
use super::{Site, shown_count};
use crate::load::number;
use crate::report::{Findings, Goal, Table, figure};

/// How long a client goes on trying, in s.
const RETRY_SECONDS: u32 = 600;
/// Clients of the load beside, and calls in flight of each.
const BESIDE: (usize, usize) = (4, 2);

/// Lets them loose.
pub(super) fn measure(site: &Site<'_>) -> Result<Findings> {
    let shares = site.options.many();
    let clients = if site.options.is_quick { 200 } else { 2000 };
    site.farm.make(0..shares)?;
    let home = Home::make(&site.home(), &site.farm, shares)?;
    let (running, _) = Running::start(&home, &site.cpus, &site.farm, shares)?;
    let words = [
        "mountstorm".to_owned(),
        ADDRESS.to_string(),
        site.farm.path(0),
        format!("--clients={clients}"),
        "--every-share=1000".to_owned(),
        format!("--beside={}", BESIDE.0),
        format!("--beside-depth={}", BESIDE.1),
        // A client waits until something comes, however many others are served before it.
        "--timeout=60".to_owned(),
        format!("--retry={RETRY_SECONDS}"),
        format!("--pid={}", running.pid()),
        "--json".to_owned(),
    ];
    let before = running.memory()?;
    let report = load::run(site, &words)?;
    let after = running.memory()?;
    running.stop()?;
    findings(&site.conditions()?, clients, &report, (before, after))
}

fn findings(
    conditions: &str,
    clients: usize,
    report: &Value,
    memory: (u64, u64),
) -> Result<Findings> {
    let mut findings = Findings::default();
    let count = |pointer: &str| number(report, pointer).map(|number| shown_count(number as usize));
    let seconds = number(report, "/last_mounted_seconds")?;
    findings.say(format!(
        "{conditions} {} clients, each with an address and connections of its own, ask for the list \
         of {} shares ({} bytes) and mount {} of them. The last was done after {} s: {} mounts, {} a \
         second; {} attempts beyond the first. The process's own memory grew from {} to {} MB.",
        shown_count(clients),
        count("/every_share/shares_told")?,
        count("/every_share/export_bytes")?,
        count("/every_share/shares_wanted")?,
        figure(seconds),
        count("/every_share/mounts")?,
        count("/every_share/mounts_per_second")?,
        count("/retries")?,
        figure(memory.0 as f64 / 1e6),
        figure(memory.1 as f64 / 1e6),
    ));
    let mut table = Table::new(&["ms", "calls", "p50", "p99", "longest"]);
    let steps = report.pointer("/steps").and_then(Value::as_array);
    let steps = steps.map(Vec::as_slice).unwrap_or_default().iter().filter(|step| {
        matches!(step.pointer("/operation").and_then(Value::as_str), Some("export" | "mnt"))
    });
    let mut row = |name: &str, calls: String, of: &Value| -> Result<()> {
        let ms = |key| number(of, key).map(|us| figure(us / 1000.0));
        let cells = [name.to_owned(), calls, ms("/p50_us")?, ms("/p99_us")?, ms("/max_us")?];
        table.row(&cells);
        Ok(())
    };
    for step in steps {
        let name = step.pointer("/operation").and_then(Value::as_str).unwrap_or_default();
        row(&name.to_uppercase(), shown_count(number(step, "/calls")? as usize), step)?;
    }
    let beside = report.pointer("/beside").unwrap_or(&Value::Null);
    let rate = figure(number(beside, "/calls_per_second")?);
    row("GETATTR and ACCESS beside", format!("{rate}/s"), beside)?;
    findings.add_table(&table);
    let refused = report.pointer("/every_share/refused").and_then(Value::as_object);
    let refused = refused.map(|by| by.values().filter_map(Value::as_u64).sum::<u64>());
    findings.goals = vec![
        Goal::at_least(
            "automounters that have everything",
            clients as f64,
            Some(number(report, "/succeeded")?),
        ),
        Goal::at_most("mounts that were refused", 0.0, refused.map(|count| count as f64)),
    ];
    findings.add_raw(report.clone());
    Ok(findings)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_storm_is_told_with_its_verdict() {
        let report = json!({
            "succeeded": 1999, "retries": 3, "last_mounted_seconds": 12.0,
            "every_share": {
                "shares_told": 15_150, "export_bytes": 3_000_000, "shares_wanted": 1000,
                "mounts": 1_999_000, "mounts_per_second": 166_583.3, "refused": {},
            },
            "steps": [
                { "operation": "mnt", "calls": 5, "p50_us": 100.0, "p99_us": 200.0, "max_us": 1e6 },
                { "operation": "fsinfo", "calls": 5 },
            ],
            "beside": {
                "calls_per_second": 5000.0, "p50_us": 100.0, "p99_us": 1500.0, "max_us": 3000.0,
            },
        });
        let findings = findings("Here.", 2000, &report, (1_000_000, 2_000_000)).expect("complete");
        let text = findings.markdown();
        assert!(text.contains("| MNT | 5 | 0.10 | 0.20 | 1,000 |"), "{text}");
        assert!(text.contains("| GETATTR and ACCESS beside | 5,000/s | 0.10 | 1.50 | 3.00 |"));
        assert_eq!(findings.misses(), 1);
    }
}
