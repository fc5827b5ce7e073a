//! Has a plug-in publish shares without a server, to try it by hand:
//!
//! `steadfast share list --json | jq -s . | publish smb FILE`, or `… | publish exportfs FILE`

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use steadfast_control::api::ShareStatus;
use steadfast_control::plugins::{Exportfs, Limits, Plugin, Samba, Task};

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let mut plugin: Box<dyn Plugin> = match arguments.as_slice() {
        [kind, file] if kind == "smb" => Box::new(Samba::new(file.into(), Limits::default())),
        [kind, file] if kind == "exportfs" => {
            Box::new(Exportfs::new(PathBuf::from(file), None, Limits::default()))
        }
        _ => {
            eprintln!("publish smb|exportfs FILE < SHARES");
            return ExitCode::from(2);
        }
    };
    let shares: Vec<Arc<ShareStatus>> =
        match serde_json::from_reader::<_, Vec<ShareStatus>>(std::io::stdin()) {
            Ok(shares) => shares.into_iter().map(Arc::new).collect(),
            Err(error) => {
                eprintln!("standard input: {error}");
                return ExitCode::FAILURE;
            }
        };
    match plugin.publish(&Task { sequence: 1, shares: &shares, changed: None }) {
        Ok(()) => ExitCode::SUCCESS,
        Err(faults) => {
            for fault in faults {
                eprintln!("{}: {}", fault.paths.join(", "), fault.why);
            }
            ExitCode::FAILURE
        }
    }
}
