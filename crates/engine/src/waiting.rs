//! How a call waits for storage: only where it may, and no longer than it must.

use steadfast_shares::Share;
use steadfast_vfs::{FsError, Waiting};

use crate::complaint::Complaint;
use crate::host::{CallHost, Room};

/// Whether a call to a share may wait.
pub(crate) fn allow(
    room: Room,
    share: &Share,
    complaint: &mut Option<Complaint>,
    lacks_room: &mut Option<Room>,
) -> Result<(), FsError> {
    match room {
        Room::Free => return Ok(()),
        Room::Later => {}
        Room::None => *complaint = Some(Complaint::StorageHangs { path: share.path.clone() }),
    }
    *lacks_room = Some(room);
    Err(FsError::TryLater)
}

/// Tries what only reads again, waiting for more each time, as long as that is what it lacks and
/// it may.
pub(crate) fn waiting_by_degrees<T>(
    host: &mut dyn CallHost,
    mut may_wait: impl FnMut(&mut dyn CallHost) -> Result<(), FsError>,
    mut attempt: impl FnMut(Waiting) -> Result<T, FsError>,
) -> Result<T, FsError> {
    let mut result = attempt(Waiting::Never);
    if matches!(result, Err(FsError::WouldOpen)) {
        may_wait(host)?;
        host.opens();
        result = attempt(Waiting::ToOpen);
        host.has_opened();
    }
    match result {
        Err(FsError::WouldBlock) => {
            may_wait(host)?;
            host.will_block();
            attempt(Waiting::Allowed)
        }
        result => result,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Default)]
    struct Heard(Vec<&'static str>);

    impl CallHost for Heard {
        fn may_block(&mut self) {
            self.0.push("may block");
        }

        fn opens(&mut self) {
            self.0.push("opens");
        }

        fn has_opened(&mut self) {
            self.0.push("has opened");
        }

        fn will_block(&mut self) {
            self.0.push("will block");
        }
    }

    #[test]
    fn a_host_hears_what_a_call_waits_for_before_it_does() {
        use FsError::{Io, WouldBlock, WouldOpen};
        for (outcomes, heard) in [
            (vec![Ok(1)], vec![]),
            (vec![Err(WouldOpen), Ok(1)], vec!["opens", "has opened"]),
            (vec![Err(WouldOpen), Err(Io)], vec!["opens", "has opened"]),
            (vec![Err(WouldBlock), Ok(1)], vec!["will block"]),
            (
                vec![Err(WouldOpen), Err(WouldBlock), Ok(1)],
                vec!["opens", "has opened", "will block"],
            ),
        ] {
            let mut host = Heard::default();
            let mut attempts = outcomes.iter();
            let mut waited = Vec::new();
            let result = waiting_by_degrees(
                &mut host,
                |_| Ok(()),
                |waiting| {
                    waited.push(waiting);
                    *attempts.next().expect("an attempt too many")
                },
            );
            assert_eq!((&Some(&result), host.0), (&outcomes.last(), heard));
            let asked = match &outcomes[0] {
                Err(WouldOpen) => &[Waiting::Never, Waiting::ToOpen, Waiting::Allowed][..],
                _ => &[Waiting::Never, Waiting::Allowed],
            };
            assert_eq!(waited, asked[..outcomes.len()]);
        }
    }

    #[test]
    fn who_may_not_wait_does_not() {
        for lacked in [FsError::WouldOpen, FsError::WouldBlock] {
            let mut host = Heard::default();
            let mut waited = Vec::new();
            let result: Result<(), _> = waiting_by_degrees(
                &mut host,
                |_| Err(FsError::TryLater),
                |waiting| {
                    waited.push(waiting);
                    Err(lacked)
                },
            );
            assert_eq!((result, host.0), (Err(FsError::TryLater), vec![]));
            assert_eq!(waited, [Waiting::Never]);
        }
    }
}
