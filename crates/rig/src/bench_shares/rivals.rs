//! The same list by others: `exportfs` of nfs-utils and nfs-ganesha, as far as each gets in a given
//! time. Both find the farm's hosts and netgroups in an `/etc` of their own.

mod exportfs;
mod ganesha;

use std::path::Path;

use anyhow::{Context, Result};
use serde_json::{Value, json};

use super::Site;
use super::farm::Farm;
use super::table::{Row, shown_seconds};
use crate::namespace::call;
use crate::report::median;

pub(super) const PACKAGES: &[&str] =
    &["nfs-kernel-server", "nfs-ganesha", "nfs-ganesha-vfs", "rpcbind"];

/// Where this run's own `/etc` is kept.
const ETC: &str = "/run/etc";

/// What came of one number of shares.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Outcome {
    /// Seconds; off where there is such a thing. `is_start`: it does not share more while it runs,
    /// so on is its start.
    Took { on: f64, off: Option<f64>, is_start: bool },
    /// Not done after so many seconds.
    GaveUp(f64),
    /// Not possible at all, and why.
    Cannot(String),
}

impl Outcome {
    pub(super) fn json(&self) -> Value {
        match self {
            Self::Took { on, off, is_start } => {
                json!({ "on_s": on, "off_s": off, "on_is_start": is_start })
            }
            Self::GaveUp(after) => json!({ "gave_up_after_s": after }),
            Self::Cannot(why) => json!({ "cannot": why }),
        }
    }
}

/// Who takes longer than this is measured once.
const REPEATED_S_MAX: f64 = 10.0;

/// A rival, which shares and unshares the first so many shares of the farm.
type Rival = fn(&Site<'_>, usize) -> Result<Outcome>;

/// Lets every rival try every size; who gives up at one is not asked for more.
pub(super) fn measure(site: &Site<'_>, sizes: &[usize]) -> Result<Vec<Row>> {
    own_etc()?;
    let rivals: [(&str, Rival); 2] =
        [("exportfs of nfs-utils", exportfs::measure), ("nfs-ganesha", ganesha::measure)];
    let mut rows = Vec::new();
    for (name, rival) in rivals {
        let mut cells: Vec<Option<Outcome>> = Vec::new();
        let mut has_given_up = false;
        for shares in sizes {
            if has_given_up {
                cells.push(None);
                continue;
            }
            let outcome = repeated(site, *shares, rival)
                .with_context(|| format!("{name} with {shares} shares"))?;
            let said = match &outcome {
                Outcome::Took { on, off, .. } => format!(
                    "on {}, off {}",
                    shown_seconds(*on),
                    off.map_or_else(|| "not tried".to_owned(), shown_seconds)
                ),
                Outcome::GaveUp(after) => format!("gave up after {}", shown_seconds(*after)),
                Outcome::Cannot(why) => why.clone(),
            };
            eprintln!("  {name}, {shares} shares: {said}");
            has_given_up = !matches!(outcome, Outcome::Took { .. });
            cells.push(Some(outcome));
        }
        rows.push(Row { name: name.to_owned(), cells });
    }
    Ok(rows)
}

/// The medians of as many rounds as are measured of Steadfast, where that does not take for ever.
fn repeated(site: &Site<'_>, shares: usize, rival: Rival) -> Result<Outcome> {
    let (mut ons, mut offs) = (Vec::new(), Vec::new());
    loop {
        let outcome = rival(site, shares)?;
        let Outcome::Took { on, off, is_start } = outcome else { return Ok(outcome) };
        ons.push(on);
        offs.extend(off);
        if ons.len() >= site.options.rounds || on + off.unwrap_or(0.0) > REPEATED_S_MAX {
            let on = median(ons).unwrap_or(on);
            return Ok(Outcome::Took { on, off: median(offs), is_start });
        }
    }
}

/// An `/etc` for this run alone: the machine's with the farm's hosts and netgroups.
fn own_etc() -> Result<()> {
    call("cp", &["-a", "/etc", ETC])?;
    let etc = Path::new(ETC);
    // It may be a link to what a resolver wrote; hosts and netgroups are in files here.
    for (name, text) in [
        ("hosts", Farm::hosts()),
        ("netgroup", Farm::netgroups()),
        (
            "nsswitch.conf",
            "passwd: files\ngroup: files\nhosts: files\nnetgroup: files\n".to_owned(),
        ),
    ] {
        let path = etc.join(name);
        // Not written through a link.
        if path.symlink_metadata().is_ok() {
            std::fs::remove_file(&path)?;
        }
        std::fs::write(path, text)?;
    }
    call("mount", &["--bind", ETC, "/etc"])
}
