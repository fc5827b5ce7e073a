//! A state made again of an image, and told as events.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use parking_lot::RwLockReadGuard;

use crate::client::lock_owner::LockOwner;
use crate::client::locks::LockRecord;
use crate::client::opens::{ClientOpens, OpenRecord};
use crate::delegation_record::DelegationRecord;
use crate::image::fold::{ClientImage, DelegationImage, OpenImage, OpensImage, SessionImage};
use crate::image::{Event, Image};
use crate::registry::RestoredRecord;
use crate::share::AskedShares;
use crate::slot::LastRequest;
use crate::{Client, ClientId, FileKey, Principal, Session, SessionId, State};

/// Slots of a session that was made when the limits were others.
const SLOTS_MAX: u32 = 1024;

/// Changes of the state that are kept together.
#[must_use = "to drop it is the end of it"]
pub struct Together<'s>(#[expect(dead_code, reason = "held")] RwLockReadGuard<'s, ()>);

impl std::fmt::Debug for Together<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Together")
    }
}

impl State {
    /// From now on events are noted: somebody takes them.
    pub fn begin_keeping(&self) {
        self.journal.begin();
    }

    /// Whether there are events that are not kept yet ([`State::events_are_kept`]). Who took them may
    /// be about to keep them.
    pub fn has_unkept_events(&self) -> bool {
        self.journal.has_unkept()
    }

    /// Whether somebody has lost what kept others from changing a file, a delegation or an open, and that is not
    /// kept yet. Before it is, no file may be changed: the next process would give that back to its
    /// client, which would not hear of the change.
    pub fn has_unkept_revocations(&self) -> bool {
        self.journal.has_unkept_taken()
    }

    /// What changes the state until this is dropped is kept together or not at all: a request says here
    /// too how far it has come. `None` if nothing is kept. To be held for a moment, without a wait, and one
    /// at a time by a thread.
    pub fn together(&self) -> Option<Together<'_>> {
        self.journal.together().map(Together)
    }

    /// Moves the events that nobody has taken behind those in `events`. None is ever taken twice.
    /// What it returns is to be given to [`State::events_are_kept`].
    pub fn take_events(&self, events: &mut Vec<u8>) -> u64 {
        self.journal.take(events)
    }

    /// The events are kept that were taken when [`State::take_events`] returned this, and all before
    /// them.
    pub fn events_are_kept(&self, taken: u64) {
        self.journal.are_kept(taken);
    }

    /// Notes the whole state: an image that gets the events from here on, until those that
    /// [`State::take_events`] finds after this has returned, needs none from before.
    pub fn note_all(&self) {
        let clients = {
            let registry = self.registry.lock();
            self.journal.note(&Event::Serials {
                state: self.serial.load(Ordering::Relaxed),
                session: self.sessions.serial_next(),
                record: registry.order_next(),
            });
            registry.note_all()
        };
        for client in clients {
            // What is told anew of a client begins without its opens: a kill must not come between. Taken
            // before the locks, since others have it when they take them.
            let _whole = self.journal.together();
            let owners = client.owners.lock();
            let opens = client.opens.lock();
            if !opens.is_ended {
                self.note_opens(&client, &opens);
                owners.note_all(&client);
            }
        }
    }

    fn note_opens(&self, client: &Arc<Client>, opens: &ClientOpens) {
        let id = client.id();
        self.journal.note(&Event::OpensAnew(id));
        for (number, open) in opens.iter() {
            self.note_open(client, number, open);
        }
        for (number, _) in opens.locks.iter() {
            self.note_lock(client, opens, number);
        }
        self.note_delegations(client, opens);
        let files: BTreeSet<FileKey> = opens.iter().map(|(_, open)| open.file).collect();
        for file in files {
            // Others may grant a host something at this time: they note it before this or after.
            self.files.with_locks(&file, |locks| {
                locks.of_client(client, |owner, span, kind, open| {
                    self.journal.note(&Event::Range { client: id, open, owner, span, kind });
                });
            });
        }
    }

    /// Makes again what an image has. Leases begin at `now_ms`. To be called before anybody else
    /// uses the state, which has the instance of the one that the image is of.
    pub fn restore(&self, now_ms: u64, image: Image) {
        self.clock_ms.fetch_max(now_ms, Ordering::Relaxed);
        self.serial.fetch_max(image.serial_next, Ordering::Relaxed);
        self.registry.lock().restore_places(&image.places, image.order_next);
        for (id, mut client) in image.clients {
            let sessions = std::mem::take(&mut client.sessions);
            let opens = std::mem::take(&mut client.opens);
            let Some(restored) = self.restore_client(now_ms, id, client) else { continue };
            for (id, session) in sessions {
                self.restore_session(&restored, id, session);
            }
            self.restore_opens(&restored, &opens);
        }
        // Of two by one name the one is meant that has something.
        let (idle, with_opens): (Vec<_>, Vec<_>) =
            image.hosts.into_iter().partition(|(_, host)| host.opens.opens.is_empty());
        for (id, host) in with_opens.into_iter().chain(idle) {
            let told = (host.name, host.address, host.state);
            let restored = self.registry.lock().restore_host(now_ms, id, told);
            if let Some(client) = restored {
                self.restore_opens(&client, &host.opens);
            }
        }
        self.registry.lock().end_restoring();
        self.sessions.end_restoring(image.session_serial_next);
    }

    fn restore_client(
        &self,
        now_ms: u64,
        id: ClientId,
        client: ClientImage,
    ) -> Option<Arc<Client>> {
        let has_completed_reclaim = client.has_completed_reclaim;
        let record = RestoredRecord {
            id,
            owner: client.owner,
            verifier: client.verifier,
            principal: Principal(client.principal),
            implementation: client.implementation,
            address: client.address,
            is_confirmed: client.is_confirmed,
            sequence: client.sequence,
            created: client.created,
            set: client.set,
        };
        let client = self.registry.lock().restore(now_ms, record)?;
        if has_completed_reclaim {
            client.restore_reclaim();
        }
        Some(client)
    }

    fn restore_session(&self, client: &Arc<Client>, id: SessionId, image: SessionImage) {
        let SessionImage { fore, back, mut slots, mut under_way, back_channel } = image;
        // No state has made such a session: it would take all memory.
        if fore.requests_max > self.settings.limits.slots_max.max(SLOTS_MAX) {
            return;
        }
        let last = |slot| {
            let last = slots.remove(&slot).map(|last| LastRequest {
                sequence: last.sequence,
                digest: last.digest,
                reply: last.reply,
            });
            (last, under_way.remove(&slot))
        };
        let (client, channels) = (Arc::clone(client), (fore, back));
        let session = Arc::new(Session::restored(id, client, channels, back_channel, last));
        if self.sessions.restore(&session) {
            session.count_restored_back_channel();
            self.registry.lock().restore_session(session);
        }
    }

    fn restore_opens(&self, client: &Arc<Client>, image: &OpensImage) {
        let now_ms = client.now_ms();
        client.owners.lock().restore(&image.owners, now_ms);
        let mut opens = client.opens.lock();
        let mut count = 0;
        for (number, open) in &image.opens {
            if client.host().is_some() && is_of_locks(open) && !image.has_ranges(*number, open) {
                // It only waited.
                continue;
            }
            count += 1;
            let record = OpenRecord {
                owner: [].into(),
                file: open.file,
                seqid: open.seqid,
                share: open.share,
                asked: AskedShares(open.asked),
                is_of_before: true,
            };
            opens.restore(*number, &open.owner, &record);
            self.files.restore(client, *number, &open.file, open.share);
        }
        self.opens.fetch_add(count, Ordering::Relaxed);
        for (number, lock) in &image.locks {
            let Some(open) = image.opens.get(&lock.open) else { continue };
            let owner = LockOwner { client: Arc::clone(client), name: Arc::clone(&lock.owner) };
            let (open, file, seqid) = (lock.open, open.file, lock.seqid);
            opens.locks.restore(*number, LockRecord { owner, open, file, seqid });
            self.count_locks(&mut opens, 0, 1);
        }
        for (number, told) in &image.delegations {
            let DelegationImage { file, kind, ref handle, is_recalled, is_revoked } = *told;
            let handle = Arc::clone(handle);
            let record = DelegationRecord { file, kind, handle, is_revoked };
            self.restore_delegation(client, &mut opens, *number, record, is_recalled);
        }
        for (file, owners) in &image.ranges {
            let restored = self.files.lock(file, |locks| {
                let mut count = 0;
                for (name, ranges) in owners {
                    let owner = LockOwner { client: Arc::clone(client), name: Arc::clone(name) };
                    for (span, kind, open) in ranges.of_owner(&()) {
                        // Its owner was not told, and may never ask for it again.
                        if client.host().is_none() && !image.has_stateid(open, name) {
                            continue;
                        }
                        locks.restore(&owner, span, kind, open);
                        count += 1;
                    }
                }
                count
            });
            let restored = restored.unwrap_or(0);
            match client.host() {
                None => self.count_locks(&mut opens, restored, 0),
                Some(host) => {
                    host.add_ranges(restored);
                    self.locks.fetch_add(restored.cast_unsigned(), Ordering::Relaxed);
                }
            }
        }
    }
}

/// Whether a host's open is the one that its locks belong to.
fn is_of_locks(open: &OpenImage) -> bool {
    *open.owner == *crate::host::LOCKS
}
