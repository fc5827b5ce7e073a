//! Unit, property and simulation ring: windows that share a simulated link with a queue.

use std::collections::VecDeque;

use proptest::prelude::*;

use super::*;

const MS: Duration = Duration::from_millis(1);
/// Of the simulation.
const STEP: Duration = Duration::from_micros(100);
/// As a mount looks.
const TICK: Duration = Duration::from_millis(5);
/// The server takes so long WRITEs, and the mount sends so many at one time.
const WRITE_BYTES: u64 = 1 << 20;
const THREADS: usize = 16;

/// A link of so many bytes a second, with a queue without an end.
#[derive(Clone, Copy, Debug)]
struct Road {
    bytes_s: u64,
    /// There and back without a queue.
    base: Duration,
    /// From the last byte of a WRITE to its answer.
    server: Duration,
    segment_bytes: u64,
}

/// 100 Mbit/s, as in the paper's network.
const SLOW: Road =
    Road { bytes_s: 12_500_000, base: Duration::from_micros(200), server: MS, segment_bytes: 1448 };

#[derive(Debug)]
struct Segment {
    mount: usize,
    bytes: u64,
    sent: Duration,
    /// The length of the WRITE that it ends.
    ends: Option<u64>,
}

/// A mount that always has more to write, from some moment on. Its connection is made then, or before all others
/// write.
#[derive(Debug)]
struct Writer {
    window: Window,
    begins: Duration,
    calls: usize,
    in_flight: u64,
    sample: Sample,
    answered: u64,
}

impl Writer {
    fn new(begins: Duration, base: Duration) -> Self {
        let (lowest, round_trip) =
            if begins.is_zero() { (base, base) } else { (Duration::MAX, Duration::ZERO) };
        Self {
            window: Window::default(),
            begins,
            calls: 0,
            in_flight: 0,
            sample: Sample { lowest, round_trip, unacknowledged_bytes: 0 },
            answered: 0,
        }
    }

    /// As the kernel does it (RFC 6298).
    fn acknowledge(&mut self, took: Duration, bytes: u64) {
        let sample = &mut self.sample;
        sample.unacknowledged_bytes -= bytes;
        sample.lowest = sample.lowest.min(took);
        sample.round_trip = match sample.round_trip {
            Duration::ZERO => took,
            smoothed => (smoothed * 7 + took) / 8,
        };
    }

    /// The next WRITE, if it may take off.
    fn next(&mut self) -> Option<u64> {
        let piece = self.window.piece_bytes().min(WRITE_BYTES);
        if self.calls >= THREADS {
            return None;
        }
        if self.calls > 0 && self.in_flight + piece > self.window.bytes() {
            self.window.note_limiting();
            return None;
        }
        if piece < WRITE_BYTES {
            self.window.note_limiting();
        }
        self.calls += 1;
        self.in_flight += piece;
        self.sample.unacknowledged_bytes += piece;
        Some(piece)
    }
}

/// The first one, if it is as wanted.
fn pop_if<T>(queue: &mut VecDeque<T>, is_wanted: impl Fn(&T) -> bool) -> Option<T> {
    queue.front().is_some_and(is_wanted).then(|| queue.pop_front()).flatten()
}

struct World {
    road: Road,
    now: Duration,
    writers: Vec<Writer>,
    queue: VecDeque<Segment>,
    queued: u64,
    /// What the link may send now, in bytes times nanoseconds a second.
    credit: u128,
    acknowledged: VecDeque<(Duration, Segment)>,
    replies: VecDeque<(Duration, usize, u64)>,
}

/// What was seen in a time.
#[derive(Debug)]
struct Seen {
    /// How long whatever came last had to wait at the most.
    longest: Duration,
    /// Of each writer, as a part of what the link carries.
    parts: Vec<f64>,
}

impl Seen {
    fn used(&self) -> f64 {
        self.parts.iter().sum()
    }

    fn fairness(&self) -> f64 {
        let most = self.parts.iter().copied().fold(0.0, f64::max);
        most / self.parts.iter().copied().fold(f64::MAX, f64::min)
    }
}

impl World {
    fn new(road: Road, begins: impl IntoIterator<Item = Duration>) -> Self {
        Self {
            road,
            now: Duration::ZERO,
            writers: begins.into_iter().map(|begins| Writer::new(begins, road.base)).collect(),
            queue: VecDeque::new(),
            queued: 0,
            credit: 0,
            acknowledged: VecDeque::new(),
            replies: VecDeque::new(),
        }
    }

    fn run(&mut self, time: Duration) -> Seen {
        let until = self.now + time;
        let before: Vec<u64> = self.writers.iter().map(|writer| writer.answered).collect();
        let mut longest = Duration::ZERO;
        while self.now < until {
            self.step();
            let wait = self.queued * 1_000_000 / self.road.bytes_s;
            longest = longest.max(Duration::from_micros(wait));
        }
        let carried = self.road.bytes_s as f64 * time.as_secs_f64();
        let part = |(writer, before): (&Writer, u64)| (writer.answered - before) as f64 / carried;
        Seen { longest, parts: self.writers.iter().zip(before).map(part).collect() }
    }

    fn step(&mut self) {
        self.now += STEP;
        self.credit += u128::from(self.road.bytes_s) * STEP.as_nanos();
        let cost = |segment: &Segment| u128::from(segment.bytes) * 1_000_000_000;
        while let Some(segment) = pop_if(&mut self.queue, |first| cost(first) <= self.credit) {
            self.credit -= cost(&segment);
            self.queued -= segment.bytes;
            self.acknowledged.push_back((self.now + self.road.base, segment));
        }
        if self.queue.is_empty() {
            self.credit = 0;
        }
        while let Some((_, segment)) = pop_if(&mut self.acknowledged, |(at, _)| *at <= self.now) {
            let took = self.now.saturating_sub(segment.sent);
            self.writers[segment.mount].acknowledge(took, segment.bytes);
            if let Some(bytes) = segment.ends {
                self.replies.push_back((self.now + self.road.server, segment.mount, bytes));
            }
        }
        while let Some((_, mount, bytes)) = pop_if(&mut self.replies, |(at, _, _)| *at <= self.now)
        {
            let writer = &mut self.writers[mount];
            writer.calls -= 1;
            writer.in_flight -= bytes;
            writer.answered += bytes;
            // It always has more to write.
            writer.window.handle_answer(bytes, true);
        }
        for mount in 0..self.writers.len() {
            self.look_and_send(mount);
        }
    }

    fn look_and_send(&mut self, mount: usize) {
        let writer = &mut self.writers[mount];
        // Not all at the same moment.
        let shifted = self.now + STEP * 7 * mount as u32;
        if shifted.as_micros().is_multiple_of(TICK.as_micros()) && writer.calls > 0 {
            writer.window.handle_sample(self.now, writer.sample);
            assert!((LEAST_BYTES..=MOST_BYTES).contains(&writer.window.bytes()));
        }
        while self.now >= writer.begins
            && let Some(piece) = writer.next()
        {
            let mut left = piece;
            while left > 0 {
                let bytes = left.min(self.road.segment_bytes);
                left -= bytes;
                let ends = (left == 0).then_some(piece);
                self.queue.push_back(Segment { mount, bytes, sent: self.now, ends });
                self.queued += bytes;
            }
        }
    }

    fn window_bytes(&self) -> u64 {
        self.writers.iter().map(|writer| writer.window.bytes()).max().unwrap()
    }
}

fn together(count: usize) -> Vec<Duration> {
    vec![Duration::ZERO; count]
}

#[test]
fn a_slow_link_is_used_and_its_queue_stays_short_however_many_write() {
    for count in [1, 6, 12] {
        let mut world = World::new(SLOW, together(count));
        let first = world.run(2000 * MS);
        assert!(first.longest < 50 * MS, "{count}, at first: {first:?}");
        let seen = world.run(8000 * MS);
        assert!(seen.longest < 30 * MS, "{count}: {seen:?}");
        assert!(seen.used() > 0.9, "{count}: {seen:?}");
        assert!(seen.fairness() < 2.0, "{count}: {seen:?}");
    }
}

#[test]
fn who_comes_later_gets_its_part_and_the_queue_stays_short() {
    for count in [2, 6, 12_u32] {
        let mut world = World::new(SLOW, (0..count).map(|index| 500 * MS * index));
        let first = world.run(500 * MS * count + 10_000 * MS);
        assert!(first.longest < 50 * MS, "{count}, at first: {first:?}");
        let seen = world.run(8000 * MS);
        assert!(seen.longest < 50 * MS, "{count}: {seen:?}");
        assert!(seen.used() > 0.9, "{count}: {seen:?}");
        // Who comes last never sees the way without the others.
        let least = seen.parts.iter().copied().fold(f64::MAX, f64::min);
        assert!(least > 0.4 / f64::from(count), "{count}: {seen:?}");
    }
}

#[test]
fn a_link_as_fast_as_memory_is_used_at_once_and_again_after_a_hitch() {
    let road = Road { bytes_s: 100 << 30, segment_bytes: 64 << 10, ..SLOW };
    let mut world = World::new(road, together(1));
    world.run(100 * MS);
    assert_eq!(world.window_bytes(), MOST_BYTES);
    // A machine that had no time for the network.
    let hitch =
        Sample { round_trip: 80 * MS, lowest: MS / 10, unacknowledged_bytes: TELLING_BYTES };
    let window = &mut world.writers[0].window;
    for _ in 0..40 {
        world.now += 10 * MS;
        window.handle_sample(world.now, hitch);
    }
    assert!(window.bytes() < MOST_BYTES / 4);
    world.run(1000 * MS);
    assert_eq!(world.window_bytes(), MOST_BYTES);
}

#[test]
fn a_server_that_waits_for_its_disk_is_no_queue() {
    for bytes_s in [12_500_000, 125_000_000] {
        let mut world = World::new(Road { bytes_s, server: 30 * MS, ..SLOW }, together(1));
        world.run(2000 * MS);
        let seen = world.run(4000 * MS);
        assert!(seen.used() > 0.9, "{bytes_s}: {seen:?}");
        assert!(seen.longest < 30 * MS, "{bytes_s}: {seen:?}");
    }
}

#[test]
fn a_long_way_is_no_queue() {
    let mut world = World::new(Road { base: 50 * MS, ..SLOW }, together(1));
    world.run(4000 * MS);
    let seen = world.run(8000 * MS);
    assert!(seen.used() > 0.85, "{seen:?}");
    assert!(seen.longest < 30 * MS, "{seen:?}");
}

#[test]
fn late_acknowledgements_of_short_messages_are_no_queue() {
    let mut window = Window::default();
    let sample =
        Sample { round_trip: 40 * MS, lowest: MS, unacknowledged_bytes: TELLING_BYTES - 1 };
    for tick in 0..1000 {
        window.note_limiting();
        window.handle_sample(TICK * tick, sample);
        window.handle_answer(16 << 10, true);
    }
    assert_eq!(window.bytes(), MOST_BYTES);
}

#[test]
fn what_nobody_waits_for_does_not_grow_and_begins_anew() {
    let mut window = Window::default();
    let sample = Sample { round_trip: MS, lowest: MS, unacknowledged_bytes: 0 };
    window.handle_answer(1 << 20, false);
    window.handle_sample(TICK, sample);
    assert_eq!(window.bytes(), START_BYTES);
    window.note_limiting();
    window.handle_answer(1 << 20, false);
    window.handle_sample(TICK * 2, sample);
    let grown = window.bytes();
    assert!(grown >= START_BYTES * 2);
    window.handle_sample(900 * MS, sample);
    assert_eq!(window.bytes(), grown);
    // Somebody waits again: the first sample after a pause comes when something is in flight.
    window.note_limiting();
    window.handle_sample(1100 * MS, sample);
    assert_eq!(window.bytes(), START_BYTES);
    window.note_limiting();
    window.handle_sample(1105 * MS, sample);
    assert!(window.bytes() > START_BYTES);
}

#[test]
fn a_pause_while_the_window_is_small_for_a_moment_begins_it_anew_too() {
    let mut window = Window { bytes: 1 << 20, threshold: 1 << 20, ..Window::default() };
    let queue = Sample { round_trip: 6 * MS, lowest: MS, unacknowledged_bytes: TELLING_BYTES };
    let mut now = Duration::ZERO;
    while window.probing.is_none() {
        now += TICK;
        window.note_limiting();
        window.handle_sample(now, queue);
        assert!(now < PROBED_AFTER * 2);
    }
    assert_eq!(window.bytes(), LEAST_BYTES);
    window.note_limiting();
    window.handle_sample(now + IDLE, queue);
    assert_eq!((window.bytes(), window.probing), (START_BYTES, None));
}

#[test]
fn an_answer_that_comes_after_a_sample_counts_as_what_it_was_sent_as() {
    let mut window = Window::default();
    let sample = Sample { round_trip: MS, lowest: MS, unacknowledged_bytes: 0 };
    window.note_limiting();
    window.handle_sample(TICK, sample);
    let before = window.bytes();
    window.handle_answer(16 << 10, false);
    assert_eq!(window.bytes(), before);
    window.handle_answer(16 << 10, true);
    assert_eq!(window.bytes(), before + (16 << 10));
}

#[test]
fn pieces_fit_the_window() {
    let mut window = Window::default();
    assert_eq!(window.piece_bytes(), LEAST_BYTES);
    window.bytes = 1_000_000;
    assert_eq!(window.piece_bytes(), 61_440);
    window.bytes = MOST_BYTES;
    assert_eq!(window.piece_bytes(), 1 << 20);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    /// Whatever the link, unless the least windows of all fill its queue by themselves.
    #[test]
    fn any_link_is_used_shared_and_kept_open_for_others(
        mbit_s in 20_u64..1000,
        base_us in 100_u64..40_000,
        server_us in 100_u64..20_000,
        begins in proptest::collection::vec(0_u64..2000, 1..12),
    ) {
        let bytes_s = mbit_s * 125_000;
        let least = begins.len() as u64 * LEAST_BYTES * 1000 / bytes_s;
        prop_assume!(least < 20);
        let us = Duration::from_micros;
        let segment_bytes = 1448 * (1 + mbit_s / 100);
        let road = Road { bytes_s, base: us(base_us), server: us(server_us), segment_bytes };
        let mut world = World::new(road, begins.into_iter().map(Duration::from_millis));
        world.run(6000 * MS);
        let seen = world.run(6000 * MS);
        prop_assert!(seen.longest < 50 * MS, "{:?}", seen);
        prop_assert!(seen.used() > 0.7, "{:?}", seen);
    }
}
