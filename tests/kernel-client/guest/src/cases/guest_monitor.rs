//! The guest's own part in locks over NFSv3: rpcbind and rpc.statd, which `init.sh` starts. Without
//! them Linux refuses each lock with ENOLCK.

use anyhow::{Result, ensure};

use crate::context::Context;
use crate::mount::run;

/// Where `init.sh` has rpc.statd keep its records.
const STATD_DIRECTORY: &str = "/run/statd";

/// Whether rpc.statd answers where rpcbind says that it does.
pub(super) fn answers() -> bool {
    run("rpcinfo", &["-T", "tcp", "127.0.0.1", "status", "1"]).is_ok()
}

/// Starts again what does not answer any more.
pub(super) fn ensure(context: &Context) -> Result<()> {
    if answers() {
        return Ok(());
    }
    context.note("the guest's lock monitor does not answer, and is started again")?;
    if run("rpcinfo", &["-T", "tcp", "127.0.0.1", "portmapper", "2"]).is_err() {
        run("rpcbind", &["-w"])?;
    }
    run("rpc.statd", &["--no-notify", "-P", STATD_DIRECTORY])?;
    ensure!(answers(), "rpc.statd was started and does not answer: {}", kernel_messages()?);
    Ok(())
}

/// What the guest's kernel has said of locks, monitors, and processes that it killed.
pub(super) fn kernel_messages() -> Result<String> {
    let messages = run("dmesg", &[])?;
    let of_locks = ["lockd", "statd", "nsm", "Failed to flush page", "Out of memory", "rpcbind"];
    let told = messages.lines().filter(|line| of_locks.iter().any(|word| line.contains(word)));
    let told: Vec<_> = told.collect();
    let from = told.len().saturating_sub(10);
    Ok(format!("the guest's kernel says: {:?}", told.get(from..).unwrap_or_default()))
}
