//! New connections, and the end of old ones.

use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use steadfast_engine::{Peer, Transport};
use steadfast_sys::epoll::Interest;
use steadfast_sys::net;

use crate::connection::Connection;
use crate::log_limit::{LogKind, limited};
use crate::pool::Pool;
use crate::seat::{HandedOver, Seat, SeatCore, Token};
use crate::statistics::Counters;

/// Connections accepted before anything else is done.
const ACCEPTS: usize = 64;
/// Without descriptors, listeners are left alone for this time: they would report the same
/// connection again at once.
const PAUSE_MS: u64 = 100;
/// A connection must have been idle this long to be closed in favour of a new one.
const IDLE_MS: u64 = 10_000;
/// When none was found, none is looked for during this time.
const SEARCH_PAUSE_MS: u64 = 1_000;

/// Accepts what waits at a listener.
pub(crate) fn accept_some(
    pool: &Pool,
    counters: &Counters,
    seat: &Seat,
    core: &mut SeatCore,
    index: usize,
) {
    let Some(listener) = core.listeners.get(index).map(Arc::clone) else { return };
    let log = &pool.shared.log;
    for _ in 0..ACCEPTS {
        match net::accept(&listener) {
            Ok((socket, address)) => {
                if pool.connections.load(Ordering::Relaxed) >= pool.connections_max
                    && !close_longest_idle(pool, seat, core)
                {
                    counters.refused.add(1);
                    limited!(
                        log,
                        LogKind::Refused,
                        warn,
                        "{address} was refused: there are {} connections already \
                         (connections_max)",
                        pool.connections_max
                    );
                    continue;
                }
                counters.accepted.add(1);
                welcome(pool, seat, core, socket, address);
            }
            Err(error) => match error.kind() {
                io::ErrorKind::WouldBlock => return,
                io::ErrorKind::ConnectionAborted | io::ErrorKind::Interrupted => {}
                _ => {
                    limited!(
                        log,
                        LogKind::Accept,
                        error,
                        "cannot accept a connection: {error}; clients wait (if descriptors are \
                         short, raise LimitNOFILE or ulimit -n)"
                    );
                    close_longest_idle(pool, seat, core);
                    unwatch_listeners(seat, core);
                    core.listeners_resume_ms = Some(pool.shared.now_ms() + PAUSE_MS);
                    return;
                }
            },
        }
    }
}

fn welcome(
    pool: &Pool,
    seat: &Seat,
    core: &mut SeatCore,
    socket: std::os::fd::OwnedFd,
    address: SocketAddr,
) {
    let Ok(local) = net::local_address(&socket) else { return };
    let home = pool
        .seats
        .iter()
        .min_by_key(|seat| seat.connection_count.load(Ordering::Relaxed))
        .unwrap_or(seat);
    home.connection_count.fetch_add(1, Ordering::Relaxed);
    pool.connections.fetch_add(1, Ordering::Relaxed);
    let number = pool.next_connection_number();
    let peer = Peer::new(address, local, Transport::Tcp).on_connection(number);
    let mailbox = Arc::clone(&home.mailbox);
    let (waiting, living) = (Arc::clone(&pool.shared.waiting), Arc::clone(&pool.shared.living));
    let connection = Arc::new(Connection::new(socket, peer, mailbox, waiting, living));
    pool.shared.living.add(&connection);
    if home.index == seat.index {
        adopt(pool, seat, core, &connection);
    } else {
        home.hand_over(HandedOver::Connection(connection));
    }
}

/// Makes a connection one of this seat's.
pub(crate) fn adopt(pool: &Pool, seat: &Seat, core: &mut SeatCore, connection: &Arc<Connection>) {
    let client = core.turns.join(connection.peer.address.ip());
    let token = core.connections.insert(Arc::clone(connection), client, pool.shared.now_ms());
    connection.token.store(token, Ordering::Relaxed);
    if let Err(error) = seat.epoll.add(&connection.socket, token, Interest::StreamEdges) {
        limited!(
            pool.shared.log,
            LogKind::Accept,
            error,
            "cannot watch the connection of {}: {error}; it is closed",
            connection.peer.address
        );
        close(pool, seat, core, token);
    }
}

/// Ends a connection. Calls of it that are under way come to their end, their replies nowhere.
pub(crate) fn close(pool: &Pool, seat: &Seat, core: &mut SeatCore, token: u64) {
    if let Some(slot) = core.connections.remove(token) {
        // The descriptor may live on with a call; its events are nobody's.
        let _ = seat.epoll.remove(&slot.connection.socket);
        core.turns.leave(slot.client);
        slot.connection.close();
        let stash_bytes = slot.framing.stash_bytes();
        pool.shared.waiting.call_bytes.fetch_sub(stash_bytes, Ordering::Relaxed);
        let suspended = core.suspended.take_of(token);
        let suspended = suspended.iter().map(|call| &call.batch);
        for batch in slot.due.iter().chain(suspended) {
            batch.discard(&pool.shared);
        }
        seat.connection_count.fetch_sub(1, Ordering::Relaxed);
        pool.connections.fetch_sub(1, Ordering::Relaxed);
        pool.shared.service.closed(&slot.connection.peer);
    }
}

/// Makes room for a new connection, if one has been idle for a while.
fn close_longest_idle(pool: &Pool, seat: &Seat, core: &mut SeatCore) -> bool {
    let now_ms = pool.shared.now_ms();
    if now_ms < core.next_idle_search_ms {
        return false;
    }
    let idle = core
        .connections
        .iter()
        .filter(|(_, slot)| slot.connection.in_flight() == 0 && slot.due.is_empty())
        .filter(|(_, slot)| now_ms.saturating_sub(slot.active_ms) >= IDLE_MS);
    let idlest = idlest(idle, |(_, slot)| (slot.connection.peer.is_back_bound(), slot.active_ms))
        .map(|(token, slot)| (token, slot.connection.peer.address));
    let Some((token, address)) = idlest else {
        core.next_idle_search_ms = now_ms + SEARCH_PAUSE_MS;
        return false;
    };
    limited!(
        pool.shared.log,
        LogKind::Refused,
        warn,
        "the idle connection of {address} is closed to make room for a new one"
    );
    close(pool, seat, core, token);
    true
}

/// The connection that was idle for longest, by when it was active last; one that is bound for callbacks
/// only if there is no other: a client is called by it, and it is idle most of the time.
fn idlest<T>(
    idle: impl Iterator<Item = T>,
    is_bound_and_active: impl Fn(&T) -> (bool, u64),
) -> Option<T> {
    idle.min_by_key(is_bound_and_active)
}

pub(crate) fn unwatch_listeners(seat: &Seat, core: &mut SeatCore) {
    core.listeners_resume_ms = None;
    for listener in &core.listeners {
        // Not watched is what is wanted.
        let _ = seat.epoll.remove(listener.as_fd());
    }
}

pub(crate) fn watch_listeners(seat: &Seat, core: &mut SeatCore) {
    core.listeners_resume_ms = None;
    for (index, listener) in core.listeners.iter().enumerate() {
        let token = Token::Listener(index).to_number();
        // Watched already is what is wanted.
        let _ = seat.epoll.add(listener.as_fd(), token, Interest::SharedInput);
    }
}

#[cfg(test)]
mod tests {
    use super::idlest;

    #[test]
    fn connections_for_callbacks_are_the_last_to_be_closed() {
        let idlest = |all: &[(bool, u64)]| idlest(all.iter().copied(), |one| *one);
        assert_eq!(idlest(&[(true, 1), (false, 9), (false, 5)]), Some((false, 5)));
        assert_eq!(idlest(&[(true, 3), (true, 2)]), Some((true, 2)));
        assert_eq!(idlest(&[]), None);
    }
}
