//! The connections of one socket: so many at the most. When there is no room for another one, the oldest that has not
//! asked anything goes: whoever says nothing, or has no token, keeps nobody else out.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::AbortHandle;
use tokio::time::Instant;

/// Who has not asked for so long after he has connected gives his place to who comes after him. Requests come with
/// the connection: many that come at once must not drive each other out.
const SILENCE: Duration = Duration::from_millis(500);

/// The connections of one socket.
pub(super) struct Connected {
    room: Arc<Semaphore>,
    /// The oldest first.
    all: VecDeque<Connection>,
}

struct Connection {
    since: Instant,
    has_asked: Arc<AtomicBool>,
    task: AbortHandle,
}

impl Connected {
    pub(super) fn new(connections_max: usize) -> Self {
        Self { room: Arc::new(Semaphore::new(connections_max)), all: VecDeque::new() }
    }

    /// Serves a connection, as soon as there is room. What serves it notes when it has asked something that it may.
    pub(super) async fn serve<F>(&mut self, answer: impl FnOnce(Arc<AtomicBool>) -> F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        self.all.retain(|connection| !connection.task.is_finished());
        // It is never closed.
        let Some(permit) = self.place().await else { return };
        let has_asked = Arc::new(AtomicBool::new(false));
        let answered = answer(Arc::clone(&has_asked));
        let task = tokio::spawn(async move {
            answered.await;
            drop(permit);
        });
        let since = Instant::now();
        self.all.push_back(Connection { since, has_asked, task: task.abort_handle() });
    }

    async fn place(&mut self) -> Option<OwnedSemaphorePermit> {
        let is_silent = |one: &Connection| !one.has_asked.load(Ordering::Relaxed);
        loop {
            let free = Arc::clone(&self.room).acquire_owned();
            let Some(oldest) = self.all.iter().find(|one| is_silent(one)) else {
                return free.await.ok();
            };
            let due = oldest.since + SILENCE;
            if let Ok(permit) = tokio::time::timeout_at(due, free).await {
                return permit.ok();
            }
            // It may have asked meanwhile.
            let oldest =
                self.all.iter().position(|one| is_silent(one) && one.since + SILENCE <= due);
            if let Some(connection) = oldest.and_then(|oldest| self.all.remove(oldest)) {
                connection.task.abort();
                return Arc::clone(&self.room).acquire_owned().await.ok();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    //! Unit ring.

    use tokio::sync::oneshot;

    use super::*;

    #[tokio::test]
    async fn who_asks_stays_and_who_says_nothing_makes_room() {
        let mut connected = Connected::new(3);
        // Before the first of them: how long it takes to serve them does not count against their time.
        let begun = Instant::now();
        let mut ends = Vec::new();
        for asks in [true, false, false] {
            let (served, end) = oneshot::channel::<()>();
            connected
                .serve(|has_asked| async move {
                    has_asked.store(asks, Ordering::Relaxed);
                    let _served = served;
                    std::future::pending::<()>().await;
                })
                .await;
            // It has run.
            tokio::task::yield_now().await;
            ends.push(end);
        }
        let (told, telling) = oneshot::channel();
        let late = connected.serve(|_| async move {
            let _ = told.send(());
        });
        tokio::time::timeout(Duration::from_secs(20), late).await.expect("room");
        telling.await.expect("served");
        assert!(begun.elapsed() >= SILENCE / 2, "who has just connected may ask yet");
        // The oldest of those that said nothing, and no other.
        assert!((&mut ends[1]).await.is_err());
        assert!(ends[0].try_recv() == Err(oneshot::error::TryRecvError::Empty));
        assert!(ends[2].try_recv() == Err(oneshot::error::TryRecvError::Empty));
    }
}
