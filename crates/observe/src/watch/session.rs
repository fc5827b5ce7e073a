//! What is watched, and what was counted: no terminal, no sockets.

use std::net::IpAddr;

use steadfast_sys::packet_ring::RingStatistics;

use crate::capture::{Dissector, Names, Observed, Packet, Tables};

/// Tables of one interval and of all before it.
#[derive(Debug, Default)]
struct Pair {
    /// Being filled.
    now: Tables,
    /// The last whole interval.
    interval: Tables,
    /// All whole intervals.
    total: Tables,
}

impl Pair {
    fn new(client: Option<IpAddr>) -> Self {
        Self { now: Tables::new(client), interval: Tables::new(client), total: Tables::new(client) }
    }

    fn end_interval(&mut self, client: Option<IpAddr>) {
        self.interval = std::mem::replace(&mut self.now, Tables::new(client));
        self.total.add_all(&self.interval);
    }
}

/// A look at the traffic of some ports.
#[derive(Debug)]
pub(crate) struct Session {
    dissector: Dissector,
    all: Pair,
    /// One client apart from the others, since it was chosen.
    focus: Option<(IpAddr, Pair)>,
    /// What the kernel, or the file, says about packets.
    pub(crate) kernel: Option<RingStatistics>,
    begun_ns: u64,
    interval_begun_ns: u64,
    /// How long the last interval took.
    interval_ns: u64,
    /// The end of the last interval.
    ended_ns: u64,
}

impl Session {
    pub(crate) fn new(ports: impl IntoIterator<Item = u16>, now_ns: u64) -> Self {
        Self {
            dissector: Dissector::new(ports),
            all: Pair::new(None),
            focus: None,
            kernel: None,
            begun_ns: now_ns,
            interval_begun_ns: now_ns,
            interval_ns: 0,
            ended_ns: now_ns,
        }
    }

    /// The time from which on intervals are counted, once it is known.
    pub(crate) fn begin_at(&mut self, now_ns: u64) {
        self.begun_ns = now_ns;
        self.interval_begun_ns = now_ns;
        self.ended_ns = now_ns;
    }

    pub(crate) fn handle_packet(&mut self, packet: &Packet<'_>) {
        let (dissector, mut observer) = self.parts();
        dissector.handle_packet(packet, &mut observer);
    }

    pub(crate) fn handle_time(&mut self, now_ns: u64) {
        let (dissector, mut observer) = self.parts();
        dissector.handle_time(now_ns, &mut observer);
    }

    fn parts(&mut self) -> (&mut Dissector, impl FnMut(&Observed<'_>)) {
        let (all, focus) = (&mut self.all.now, &mut self.focus);
        let observe = move |observed: &Observed<'_>| {
            use crate::capture::Observer;
            all.observe(observed);
            if let Some((_, pair)) = focus {
                pair.now.observe(observed);
            }
        };
        (&mut self.dissector, observe)
    }

    /// Looks at one client from now on, or at all again.
    pub(crate) fn set_focus(&mut self, client: Option<IpAddr>) {
        self.focus = client.map(|client| (client, Pair::new(Some(client))));
    }

    /// The client that is looked at.
    pub(crate) fn focus(&self) -> Option<IpAddr> {
        self.focus.as_ref().map(|(client, _)| *client)
    }

    /// An interval is over.
    pub(crate) fn end_interval(&mut self, now_ns: u64) {
        self.interval_ns = now_ns.saturating_sub(self.interval_begun_ns);
        self.interval_begun_ns = now_ns;
        self.ended_ns = now_ns;
        self.all.end_interval(None);
        if let Some((client, pair)) = &mut self.focus {
            pair.end_interval(Some(*client));
        }
    }

    fn shown(&self) -> &Pair {
        self.focus.as_ref().map_or(&self.all, |(_, pair)| pair)
    }

    /// The last whole interval, of the client that is looked at or of all.
    pub(crate) fn interval(&self) -> &Tables {
        &self.shown().interval
    }

    /// All whole intervals.
    pub(crate) fn total(&self) -> &Tables {
        &self.shown().total
    }

    pub(crate) fn interval_seconds(&self) -> f64 {
        self.interval_ns as f64 / 1e9
    }

    pub(crate) fn total_seconds(&self) -> f64 {
        self.ended_ns.saturating_sub(self.begun_ns) as f64 / 1e9
    }

    /// When the present interval began.
    pub(crate) fn interval_begun_ns(&self) -> u64 {
        self.interval_begun_ns
    }

    pub(crate) fn dissector(&self) -> &Dissector {
        &self.dissector
    }

    pub(crate) fn names(&self) -> &Names {
        self.dissector.names()
    }
}
