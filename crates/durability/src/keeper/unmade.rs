//! A log that nobody needs yet: a server that begins without a share on a file system whose changes
//! can be logged has a keeper that is off, and no file. When the first such share is added the file is
//! made, and the log comes into use as one that was switched off does ([`super::switch`]).
//!
//! It is made by the checkpointer's thread: who adds a share may hold what changes need that have
//! passed the gate. Until it is on, changes are flushed.

use steadfast_intent_log::format;

use super::switch::SwitchError;
use super::{IntentLogKeeper, Phase};

impl IntentLogKeeper {
    /// There is no file yet: changes are flushed until there is one.
    pub(crate) fn begin_unmade(&self) {
        self.switch.note_unmade(self.settings.options.device_retry_interval);
        self.open_gate(Phase::Off);
    }

    /// Has the log made soon, if there is none yet.
    pub(super) fn make_if_unmade(&self) {
        if self.switch.is_unmade() && self.switch.is_wanted_first() {
            tracing::info!(
                "the first share is added whose changes can be logged: making the intent log {}, {} \
                 MiB",
                self.medium.path().display(),
                self.log.fill().1 >> 20
            );
            self.requests.want();
        }
    }

    /// Makes the file, with a log in it that is closed. To be called by who switches.
    pub(super) fn make(&self) -> Result<(), SwitchError> {
        let failed = |why: &dyn std::fmt::Display| SwitchError::Unmade {
            path: self.medium.path().display().to_string(),
            why: why.to_string(),
        };
        if self.medium.path().exists() {
            return Err(failed(&"there is something at its place"));
        }
        self.medium.make().map_err(|error| failed(&error))?;
        let host = self.log.host();
        if let Err(error) = format(
            &*self.medium,
            *self.state_files.uuid(),
            host,
            self.settings.untold_write_verifier,
        ) {
            // The next attempt makes it anew.
            let _ = std::fs::remove_file(self.medium.path());
            return Err(failed(&error));
        }
        self.switch.note_made();
        Ok(())
    }

    /// Tells how fast its device is, as every start does.
    pub(super) fn time_device(&self) {
        let writing = self.superblocks.lock(&self.log, &self.medium);
        if let Err(error) = writing.time() {
            self.superblocks.note_fault(format!("cannot be written: {error}"));
            self.note_complete();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use steadfast_recovery::ChangeLog;

    use super::*;
    use crate::keeper::switch_tests::{join, parts, start};
    use crate::{Left, StartIntentLog};

    #[test]
    fn a_log_that_nobody_needed_is_made_when_the_first_file_system_wants_it() {
        let place = tempfile::tempdir().expect("a directory");
        let path = place.path().join("intent.log");
        let keeper =
            parts(place.path(), Box::new(|_| Ok(None))).start_unmade().expect("begun").keeper;
        assert_eq!((keeper.phase(), keeper.status().left), (Phase::Off, Some(Left::Unmade)));
        assert_eq!(keeper.enable(), Err(SwitchError::Unneeded));
        // A checkpointer looks at it in vain.
        keeper.come_back_if_well();
        assert!(!path.exists());
        let (log, _disk, file_system) = join(&keeper);
        keeper.come_back_if_well();
        assert!(!path.exists(), "its share does not want it");
        let pass = log.admit(file_system, 100).expect("admitted").expect("a pass");
        assert!(!pass.is_logged());
        drop(pass);
        log.want(file_system);
        keeper.come_back_if_well();
        assert_eq!((keeper.phase(), keeper.status().left), (Phase::On, None));
        let logged = log.admit(file_system, 100).expect("admitted").expect("a place");
        assert!(logged.is_logged() && path.exists());
        drop(logged);
        assert!(keeper.close(7));
        drop((log, keeper));
        assert_eq!(start(place.path()).write_verifier, 7, "the next start goes on with it");
    }

    #[test]
    fn a_log_that_cannot_be_made_is_tried_again() {
        let place = tempfile::tempdir().expect("a directory");
        let away = place.path().join("not-there");
        let options = parts(place.path(), Box::new(|_| Ok(None)));
        let options = StartIntentLog { path: away.join("intent.log"), ..options };
        let keeper = options.start_unmade().expect("begun").keeper;
        let (log, _disk, file_system) = join(&keeper);
        log.want(file_system);
        keeper.come_back_if_well();
        assert_eq!((keeper.phase(), keeper.status().left), (Phase::Off, Some(Left::Unmade)));
        let told = keeper.enable().expect_err("no directory").to_string();
        assert!(told.contains("cannot be made"), "{told}");
        std::fs::create_dir(&away).expect("made");
        let begun = Instant::now();
        while keeper.phase() == Phase::Off {
            keeper.come_back_if_well();
            assert!(begun.elapsed() < Duration::from_secs(60), "never tried again");
        }
        assert!(keeper.close(7));
    }

    #[test]
    fn a_log_that_was_never_needed_leaves_nothing_behind() {
        let place = tempfile::tempdir().expect("a directory");
        let keeper =
            parts(place.path(), Box::new(|_| Ok(None))).start_unmade().expect("begun").keeper;
        // Switched off, it is not made either; not even by the administrator's second thoughts.
        keeper.disable().expect("noted");
        let (log, _disk, file_system) = join(&keeper);
        log.want(file_system);
        keeper.come_back_if_well();
        assert_eq!(keeper.disable(), Err(SwitchError::IsOffAsAsked));
        assert!(!keeper.close(7));
        assert!(!place.path().join("intent.log").exists());
        assert!(!crate::is_any_open(place.path()).expect("read"));
    }
}
