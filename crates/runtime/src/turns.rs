//! Whose turn it is at a seat: clients take turns, and the connections of one client among
//! themselves, so that who opens more connections gets no more service.
//!
//! Deficit round robin by time: a client is served until it has used its share, and what it used
//! too much is taken off its next one. A client that comes back after having had nothing to do is
//! served before those that always have; then it stands in line with them (the new and old
//! flows of RFC 8290 §4.1). Until its turn in that line it is served before them again whenever it
//! comes back and finds somebody with a backlog next, as long as its share lasts. So a client that
//! asks now and then waits for the call that runs, and for nobody's backlog, and no client gets
//! more than its share by it.

use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;

/// A client's share of the time before the others have theirs, in ns.
const SHARE_NS: i64 = 100_000;
/// Whatever was done is taken for this much, in ns.
const USE_MIN_NS: i64 = 1_000;
/// No call, however long, is held against its client for more than this, in ns.
const DEBT_MAX_NS: i64 = 100 * SHARE_NS;

/// A client of a seat, as long as it has connections there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ClientId(u32);

/// With whom a client is served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Company {
    /// With nobody who is like it.
    None,
    /// Others are next.
    Some,
    /// It has more to be done itself, and so does not sleep.
    Itself,
}

/// Where a client stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Line {
    /// In none: there is nothing to do for it.
    #[default]
    None,
    /// Before the others.
    Fresh,
    /// With all who have had their turn.
    Old,
    /// With them, having had nothing to do, and before them with what is left of its share, since
    /// who is next has a backlog.
    Again,
}

#[derive(Debug)]
struct Client<T> {
    address: Option<IpAddr>,
    connections: usize,
    ready: VecDeque<T>,
    /// What is left of its share, or, below 0, what it has used too much.
    share_ns: i64,
    line: Line,
}

/// All clients of a seat, and what is ready to be done for them.
#[derive(Debug)]
pub(crate) struct Turns<T> {
    clients: Vec<Client<T>>,
    free: Vec<u32>,
    by_address: HashMap<IpAddr, u32>,
    fresh: VecDeque<u32>,
    old: VecDeque<u32>,
    ready_count: usize,
}

impl<T> Default for Turns<T> {
    fn default() -> Self {
        Self {
            clients: Vec::new(),
            free: Vec::new(),
            by_address: HashMap::new(),
            fresh: VecDeque::new(),
            old: VecDeque::new(),
            ready_count: 0,
        }
    }
}

impl<T> Turns<T> {
    /// Notes a connection of the client with this address.
    pub(crate) fn join(&mut self, address: IpAddr) -> ClientId {
        let address = address.to_canonical();
        let known = self.by_address.get(&address).copied();
        let index = known.unwrap_or_else(|| {
            let index = self.add(Some(address));
            self.by_address.insert(address, index);
            index
        });
        if let Some(client) = self.clients.get_mut(index as usize) {
            client.connections += 1;
        }
        ClientId(index)
    }

    /// A client of its own, for ever: a socket that all clients share.
    pub(crate) fn join_apart(&mut self) -> ClientId {
        let index = self.add(None);
        if let Some(client) = self.clients.get_mut(index as usize) {
            client.connections = 1;
        }
        ClientId(index)
    }

    fn add(&mut self, address: Option<IpAddr>) -> u32 {
        let client = Client {
            address,
            connections: 0,
            ready: VecDeque::new(),
            share_ns: SHARE_NS,
            line: Line::None,
        };
        let index = self.free.pop().unwrap_or(self.clients.len() as u32);
        match self.clients.get_mut(index as usize) {
            Some(place) => *place = client,
            None => self.clients.push(client),
        }
        index
    }

    /// Notes the end of a connection. Its [`ClientId`] may still be charged until the next
    /// [`Turns::join`].
    pub(crate) fn leave(&mut self, id: ClientId) {
        if let Some(client) = self.clients.get_mut(id.0 as usize) {
            client.connections = client.connections.saturating_sub(1);
            self.forget_if_gone(id.0);
        }
    }

    /// Once nothing refers to a client, its place is given to another.
    fn forget_if_gone(&mut self, index: u32) {
        if let Some(client) = self.clients.get_mut(index as usize)
            && client.connections == 0
            && client.line == Line::None
            && let Some(address) = client.address.take()
        {
            self.by_address.remove(&address);
            self.free.push(index);
        }
    }

    /// There is something to do for a client.
    pub(crate) fn push(&mut self, id: ClientId, ready: T) {
        let has_backlog = |index: &u32| {
            self.clients.get(*index as usize).is_some_and(|client| client.ready.len() > 1)
        };
        // Those who are alike are served in the order in which they come.
        let is_backlog_next = self.old.front().is_some_and(has_backlog);
        let Some(client) = self.clients.get_mut(id.0 as usize) else { return };
        client.ready.push_back(ready);
        self.ready_count += 1;
        if client.line == Line::None {
            client.line = Line::Fresh;
            client.share_ns = SHARE_NS.min(client.share_ns + SHARE_NS);
            self.fresh.push_back(id.0);
        } else if client.line == Line::Old
            && client.ready.len() == 1
            && client.share_ns > 0
            && is_backlog_next
        {
            client.line = Line::Again;
            self.fresh.push_back(id.0);
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.ready_count == 0
    }

    /// With whose replies those to a client that is being served may go out: those of one who comes
    /// back only with the replies to others who do, since it need not wait for anybody's backlog.
    pub(crate) fn company(&self, id: ClientId) -> Company {
        let client = |index: u32| self.clients.get(index as usize);
        let has_more = |index: &u32| client(*index).is_some_and(|client| !client.ready.is_empty());
        if has_more(&id.0) {
            return Company::Itself;
        }
        let is_old = client(id.0).is_some_and(|client| client.line == Line::Old);
        // Who is served is the first of its line, unless another worker has served others since.
        let next = self.fresh.iter().take(2).find(|index| **index != id.0);
        if next.is_some_and(has_more) || (is_old && !self.is_empty()) {
            Company::Some
        } else {
            Company::None
        }
    }

    /// What to do next, and for whom: to be charged afterwards.
    pub(crate) fn next(&mut self) -> Option<(ClientId, T)> {
        if self.ready_count == 0 {
            // Who is left in the lines has nothing to do; that ends here.
            while let Some(index) = self.fresh.pop_front().or_else(|| self.old.pop_front()) {
                if let Some(client) = self.clients.get_mut(index as usize) {
                    client.line = Line::None;
                    // Nobody waited for what it used too much.
                    client.share_ns = client.share_ns.max(0);
                }
                self.forget_if_gone(index);
            }
            return None;
        }
        loop {
            let is_fresh = !self.fresh.is_empty();
            let index = *self.fresh.front().or_else(|| self.old.front())?;
            let client = self.clients.get_mut(index as usize)?;
            if client.share_ns > 0
                && let Some(ready) = client.ready.pop_front()
            {
                self.ready_count -= 1;
                return Some((ClientId(index), ready));
            }
            if is_fresh {
                self.fresh.pop_front();
            } else {
                self.old.pop_front();
            }
            if client.line == Line::Again {
                client.line = Line::Old;
                continue;
            }
            if client.share_ns <= 0 {
                client.share_ns += SHARE_NS;
            } else if !is_fresh || self.old.is_empty() {
                // It has nothing to do, and has stood in line with the others.
                client.line = Line::None;
                self.forget_if_gone(index);
                continue;
            }
            client.line = Line::Old;
            self.old.push_back(index);
        }
    }

    /// What was done took this long; never nothing, so that turns go round also while the clock
    /// stands still.
    pub(crate) fn charge(&mut self, id: ClientId, ns: u64) {
        if let Some(client) = self.clients.get_mut(id.0 as usize) {
            let used = i64::try_from(ns).unwrap_or(i64::MAX).max(USE_MIN_NS);
            client.share_ns = client.share_ns.saturating_sub(used).max(-DEBT_MAX_NS);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use proptest::prelude::*;

    use super::*;

    fn address(number: u8) -> IpAddr {
        Ipv4Addr::new(192, 0, 2, number).into()
    }

    #[test]
    fn replies_go_out_together_only_where_nobody_waits_for_more_than_his_like() {
        let mut turns = Turns::default();
        let [a, b] = [1, 2].map(|number| turns.join(address(number)));
        let push = |turns: &mut Turns<_>, ids: &[ClientId]| {
            for id in ids {
                turns.push(*id, ());
            }
        };
        push(&mut turns, &[a, a]);
        turns.next();
        assert_eq!(turns.company(a), Company::Itself);
        turns.next();
        assert_eq!(turns.company(a), Company::None, "nobody is next");
        push(&mut turns, &[b]);
        assert_eq!(turns.company(a), Company::Some, "another one who comes back is next");
        turns.next();
        assert_eq!(turns.company(b), Company::None, "nobody is next");
        // From now on the first one stands in line, having used its share.
        push(&mut turns, &[a]);
        turns.next();
        turns.charge(a, 2 * SHARE_NS as u64);
        push(&mut turns, &[a, b]);
        assert_eq!(turns.next(), Some((b, ())));
        assert_eq!(turns.company(b), Company::None, "only who has a backlog is next");
        push(&mut turns, &[b]);
        assert_eq!(turns.next().map(|next| next.0), Some(b));
        turns.charge(b, 2 * SHARE_NS as u64);
        push(&mut turns, &[b]);
        assert_eq!(turns.next().map(|next| next.0), Some(a));
        assert_eq!(turns.company(a), Company::Some, "both stand in line");
    }

    /// Serves for a while; what is done is always to be done again. The times by client.
    fn served(turns: &mut Turns<(usize, ClientId)>, cost_ns: &[u64], rounds: usize) -> Vec<u64> {
        let mut times = vec![0; cost_ns.len()];
        for _ in 0..rounds {
            let (id, ready) = turns.next().unwrap();
            assert_eq!(id, ready.1);
            times[ready.0] += cost_ns[ready.0];
            turns.charge(id, cost_ns[ready.0]);
            turns.push(id, ready);
        }
        times
    }

    #[test]
    fn turns_go_round_while_the_clock_stands_still() {
        let mut turns = Turns::default();
        for client in 0..2 {
            let id = turns.join(IpAddr::from([127, 0, 0, client]));
            turns.push(id, (usize::from(client), id));
        }
        let mut times = [0, 0];
        for _ in 0..1000 {
            let (id, ready) = turns.next().unwrap();
            times[ready.0] += 1;
            turns.charge(id, 0);
            turns.push(id, ready);
        }
        assert!(times.iter().all(|times| *times > 300), "{times:?}");
    }

    #[test]
    fn connections_do_not_make_a_client_more_important() {
        let mut turns = Turns::default();
        for _ in 0..64 {
            let greedy = turns.join(address(1));
            turns.push(greedy, (0, greedy));
        }
        let modest = turns.join(address(2));
        turns.push(modest, (1, modest));
        let times = served(&mut turns, &[30_000, 20_000], 10_000);
        let ratio = times[0] as f64 / times[1] as f64;
        assert!((0.95..1.05).contains(&ratio), "{times:?}");
    }

    #[test]
    fn long_calls_are_paid_for() {
        let mut turns = Turns::default();
        for number in 0..3 {
            let id = turns.join(address(number as u8));
            turns.push(id, (number, id));
        }
        let times = served(&mut turns, &[1_000_000, 10_000, 90_000], 100_000);
        let (least, most) = (times.iter().min().unwrap(), times.iter().max().unwrap());
        assert!(*most as f64 / (*least as f64) < 1.1, "{times:?}");
    }

    #[test]
    fn who_asks_now_and_then_is_served_next() {
        let mut turns = Turns::default();
        let busy: Vec<_> = (0..10).map(|number| turns.join(address(number))).collect();
        for id in &busy {
            for _ in 0..5 {
                turns.push(*id, (0, *id));
            }
        }
        served(&mut turns, &[50_000], 100);
        let rare = turns.join(address(100));
        turns.push(rare, (1, rare));
        assert_eq!(turns.next().unwrap().0, rare);
        // But not again and again before the others.
        turns.charge(rare, 50_000);
        turns.push(rare, (1, rare));
        assert_eq!(turns.next().unwrap().0, rare);
        turns.charge(rare, 60_000);
        turns.push(rare, (1, rare));
        assert_ne!(turns.next().unwrap().0, rare);
    }

    #[test]
    fn who_comes_back_waits_for_no_backlog_as_long_as_its_share_lasts() {
        let mut turns = Turns::default();
        let greedy = turns.join(address(1));
        for _ in 0..100 {
            turns.push(greedy, 0);
        }
        // From now on it stands in line.
        turns.next();
        turns.charge(greedy, SHARE_NS as u64);
        let modest = turns.join(address(2));
        let mut order = Vec::new();
        // 11 calls use a share.
        for _ in 0..11 {
            turns.push(modest, 1);
            for _ in 0..2 {
                let (id, who) = turns.next().unwrap();
                order.push(who);
                turns.charge(id, if id == modest { 9_500 } else { 1_000 });
            }
        }
        assert_eq!(order, [1, 0].repeat(11));
        turns.push(modest, 1);
        let (id, who) = turns.next().unwrap();
        turns.charge(id, SHARE_NS as u64);
        assert_eq!(who, 0, "it has had its share");
        let waited: Vec<_> = std::iter::from_fn(|| {
            let (id, who) = turns.next()?;
            turns.charge(id, SHARE_NS as u64 / 2);
            (who == 0).then_some(())
        })
        .collect();
        assert!(waited.len() <= 2, "and has another one before the backlog's end: {waited:?}");
    }

    #[test]
    fn who_comes_back_is_not_served_before_those_who_are_like_it() {
        let mut turns = Turns::default();
        let [a, b] = [1, 2].map(|number| turns.join(address(number)));
        turns.push(a, a);
        turns.push(b, b);
        // Both use their share, and stand in line; then the one has nothing to do.
        for (expected, has_more) in [(a, true), (b, true), (a, false)] {
            assert_eq!(turns.next(), Some((expected, expected)));
            turns.charge(expected, SHARE_NS as u64);
            if has_more {
                turns.push(expected, expected);
            }
        }
        assert_eq!(turns.next(), Some((b, b)));
        turns.push(a, a);
        turns.push(b, b);
        assert_eq!(turns.next(), Some((b, b)));
        assert_eq!(turns.next(), Some((a, a)));
    }

    #[test]
    fn places_are_used_again() {
        let mut turns = Turns::<()>::default();
        for round in 0..1000_u16 {
            let ip = IpAddr::from(Ipv4Addr::from(u32::from(round)));
            let id = turns.join(ip);
            turns.push(id, ());
            turns.leave(id);
            assert_eq!(turns.next(), Some((id, ())));
            assert_eq!(turns.next(), None);
        }
        assert_eq!((turns.clients.len(), turns.by_address.len()), (1, 0));
    }

    #[derive(Clone, Debug)]
    enum Step {
        Join(u8),
        Leave(usize),
        Push(usize),
        Serve(u64),
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            (0..6_u8).prop_map(Step::Join),
            (0..100_usize).prop_map(Step::Leave),
            (0..100_usize).prop_map(Step::Push),
            (0..500_000_u64).prop_map(Step::Serve),
        ]
    }

    proptest! {
        /// Whatever is pushed comes out once, and what is pushed for one client in its order.
        #[test]
        fn nothing_is_lost(steps in proptest::collection::vec(step(), 0..300)) {
            let mut turns = Turns::default();
            let mut connections: Vec<(u8, ClientId)> = Vec::new();
            let mut due: HashMap<u8, VecDeque<usize>> = HashMap::new();
            let mut number = 0;
            for step in steps {
                match step {
                    Step::Join(client) => connections.push((client, turns.join(address(client)))),
                    Step::Leave(index) if !connections.is_empty() => {
                        let at = index % connections.len();
                        let (_, id) = connections.swap_remove(at);
                        turns.leave(id);
                    }
                    Step::Push(index) if !connections.is_empty() => {
                        let (client, id) = connections[index % connections.len()];
                        turns.push(id, (client, number));
                        due.entry(client).or_default().push_back(number);
                        number += 1;
                    }
                    Step::Serve(cost) => {
                        prop_assert_eq!(turns.is_empty(), due.values().all(VecDeque::is_empty));
                        match turns.next() {
                            Some((id, (client, number))) => {
                                prop_assert_eq!(due.get_mut(&client).unwrap().pop_front(), Some(number));
                                turns.charge(id, cost);
                            }
                            None => prop_assert!(due.values().all(VecDeque::is_empty)),
                        }
                    }
                    Step::Leave(_) | Step::Push(_) => {}
                }
            }
            while let Some((id, (client, number))) = turns.next() {
                prop_assert_eq!(due.get_mut(&client).unwrap().pop_front(), Some(number));
                turns.charge(id, 1_000_000_000);
            }
            prop_assert!(due.values().all(VecDeque::is_empty));
            for (_, id) in connections {
                turns.leave(id);
            }
            prop_assert!(turns.next().is_none());
            prop_assert_eq!(turns.free.len(), turns.clients.len());
        }
    }
}
