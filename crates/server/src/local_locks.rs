//! The locks that clients had when the process before this one ended, taken again among local
//! processes.

use std::sync::Arc;
use std::time::Duration;

use steadfast_engine::{Engine, LocksTaken};

const PAUSE: Duration = Duration::from_secs(1);

/// Takes them again on a thread of its own, since files may have to be read from disks. It ends when
/// nothing is left.
pub(crate) fn take_again(engine: &Arc<Engine>) {
    let engine = Arc::downgrade(engine);
    let thread = std::thread::Builder::new().name("locks".to_owned()).spawn(move || {
        while let Some(engine) = engine.upgrade() {
            let taken = engine.take_locks_again();
            drop(engine);
            tell(&taken);
            if taken.left == 0 {
                return;
            }
            std::thread::sleep(PAUSE);
        }
    });
    if let Err(error) = thread {
        tracing::warn!("local processes do not see the locks that clients had before: {error}");
    }
}

fn tell(taken: &LocksTaken) {
    let LocksTaken { files, contested, failed, left: _ } = *taken;
    if files > 0 {
        tracing::info!("clients' locks are held among local processes again: {files} files");
    }
    if contested > 0 {
        tracing::warn!(
            "local processes have locked parts of {contested} files that clients had locked before this \
             start; clients keep these locks, and both may believe that they are alone: stop the local \
             programs, or the clients' ones, that use these files"
        );
    }
    if failed > 0 {
        tracing::warn!(
            "{failed} files that clients have locked cannot be locked among local processes: they are \
             on no share that is served now, or their file system has no locks"
        );
    }
}
