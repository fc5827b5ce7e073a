//! What the real Linux client does inside the guest.
//!
//! - `list short|long`: the cases with their stage and time limit, for the host.
//! - `run PLAN`: runs the plan's cases, each in a process of its own with a time limit, and
//!   tells the host how each ended.
//! - `case NAME PLAN`: one case.
//! - `child …`: part of a case that needs a process of its own, often as another user.
//!
//! A case is a function in one of the modules of [`cases`]; its row in `CASES` there names
//! it. It gets a [`Context`] and fails by returning an error, whose text is all that the host
//! shows: it should say what was expected and what was found.
#![forbid(unsafe_code)]

mod cases;
mod children;
mod contend;
mod context;
mod ledger;
mod model;
mod mount;
mod random;
mod runner;

use std::process::ExitCode;

use anyhow::{Result, bail};

use context::Context;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match dispatch(&words) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error:#}");
            ExitCode::FAILURE
        }
    }
}

fn dispatch(words: &[&str]) -> Result<()> {
    match words {
        ["list", version] => {
            cases::list(*version == "long");
            Ok(())
        }
        ["run", plan] => runner::run(plan),
        ["case", name, plan] => {
            let context = Context::read(plan, name)?;
            cases::find(name)?(&context)
        }
        ["child", rest @ ..] => children::dispatch(rest),
        other => bail!("unknown arguments {other:?}; this program is run by cargo xtask"),
    }
}
