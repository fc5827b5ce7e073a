//! Unit and property tests of the recognition of streams.

use proptest::prelude::*;

use super::*;

const MIB: u64 = 1 << 20;
const ROOM: u64 = 1 << 30;

/// Streams of one file, with what was asked for.
struct File {
    streams: Streams,
    budget: WindowBudget,
    bytes: u64,
    asked: Vec<Range<u64>>,
    came_again: usize,
}

impl File {
    fn new(bytes: u64) -> Self {
        Self {
            streams: Streams::default(),
            budget: WindowBudget::new(ROOM),
            bytes,
            asked: Vec::new(),
            came_again: 0,
        }
    }

    /// As the server does it: a read that finds its data in memory (as far as it was asked for)
    /// is a hit, unless it is time to ask for more.
    fn read(&mut self, offset: u64, length: u64) {
        let length = length.min(self.bytes.saturating_sub(offset));
        if length == 0 {
            return;
        }
        let read = Read { offset, length, file_bytes: self.bytes };
        let is_there = self
            .asked
            .iter()
            .any(|range| range.start <= offset && range.end >= offset.saturating_add(length));
        let wants = self.streams.is_cold() && self.streams.wants(read, &self.budget);
        if is_there && !wants {
            self.streams.note_hit(read, &self.budget);
            return;
        }
        let noted = self.streams.note(read, &self.budget);
        self.came_again += usize::from(is_there);
        if let Some(range) = noted.ask {
            assert!(range.start < range.end && range.end <= self.bytes, "{range:?}");
            assert!(range.end - range.start <= ASK_BYTES_MAX);
            self.asked.push(range);
        } else {
            assert!(!wants, "a read that was sent back must bring something");
        }
    }

    fn asked_bytes(&self) -> u64 {
        self.asked.iter().map(|range| range.end - range.start).sum()
    }

    /// Bytes from `from` on that were never asked for, and bytes that were asked for again.
    fn missing_and_repeated(&self, from: u64) -> (u64, u64) {
        let mut ranges = self.asked.clone();
        ranges.sort_by_key(|range| range.start);
        let (mut at, mut missing, mut repeated) = (from, 0, 0);
        for range in ranges {
            missing += range.start.saturating_sub(at);
            repeated += at.min(range.end).saturating_sub(range.start.max(from));
            at = at.max(range.end);
        }
        (missing + self.bytes.saturating_sub(at), repeated)
    }
}

/// The reads of a sequential client as they arrive: each late by some places.
fn arriving(count: u64, late: &[u64]) -> Vec<u64> {
    let mut order: Vec<(u64, u64)> =
        (0..count).zip(late.iter().cycle()).map(|(index, late)| (index + late, index)).collect();
    order.sort_unstable();
    order.into_iter().map(|(_, index)| index).collect()
}

#[test]
fn a_stream_is_known_at_its_second_read_and_its_window_grows() {
    let mut file = File::new(1 << 30);
    file.read(0, 65_536);
    assert!(file.asked.is_empty());
    file.read(65_536, 65_536);
    let first = 65_536..65_536 * 2 + WINDOW_BYTES_MIN;
    assert_eq!(file.asked, vec![first]);
    for index in 2..16_384 {
        file.read(index * 65_536, 65_536);
    }
    let longest = |file: &File| {
        let lengths = file.asked.iter().map(|range| range.end - range.start);
        lengths.max().unwrap()
    };
    assert!((WINDOW_BYTES_USUAL / 2..=WINDOW_BYTES_USUAL).contains(&longest(&file)));
    assert_eq!(file.missing_and_repeated(65_536), (0, 0));
    // Once in half a window.
    let most = (1 << 30) / (WINDOW_BYTES_USUAL as usize / 2) + 10;
    assert!(file.asked.len() < most, "{} asks", file.asked.len());
    assert!(file.came_again < most, "{} reads came again", file.came_again);
    assert_eq!(file.budget.left(), ROOM, "at its end a stream gives its window back");
    // A disk that does not keep up makes it grow further.
    let mut file = File::new(1 << 30);
    for index in 0..16_384 {
        if index % 10 == 9 {
            let read = Read { offset: index * 65_536, length: 65_536, file_bytes: file.bytes };
            let ask = file.streams.note(read, &file.budget).ask;
            if ask.is_none() {
                file.streams.note_late(read);
            }
            file.asked.extend(ask);
        } else {
            file.read(index * 65_536, 65_536);
        }
    }
    assert!((WINDOW_BYTES_MAX / 2..=WINDOW_BYTES_MAX).contains(&longest(&file)));
    assert_eq!(file.missing_and_repeated(65_536), (0, 0));
}

#[test]
fn strides_ask_for_nothing() {
    for (length, stride) in [(4096, 8192), (4096, 65_536), (65_536, 131_072), (MIB, 2 * MIB)] {
        let mut file = File::new(8 << 30);
        for index in 0..1000 {
            file.read(index * stride, length);
        }
        assert_eq!(file.asked, [], "{length} bytes every {stride}");
    }
}

#[test]
fn a_stream_that_begins_to_skip_is_let_go() {
    let mut file = File::new(1 << 40);
    for index in 0..1000 {
        file.read(index * 65_536, 65_536);
    }
    let before = file.asked_bytes();
    for index in 0..10_000 {
        file.read(1000 * 65_536 + index * 10 * 65_536, 65_536);
    }
    let more = file.asked_bytes() - before;
    assert!(more < 2 * HORIZON_BYTES, "{more} bytes more");
}

#[test]
fn backwards_asks_for_nothing_and_a_little_back_does_not_end_a_stream() {
    let mut file = File::new(1 << 30);
    for index in (0..16_384).rev() {
        file.read(index * 65_536, 65_536);
    }
    assert_eq!(file.asked, []);
    let mut file = File::new(64 * MIB);
    for index in 0..1024 {
        file.read(index * 65_536, 65_536);
        if index % 16 == 15 {
            file.read((index - 10) * 65_536, 65_536);
        }
    }
    assert_eq!(file.missing_and_repeated(65_536), (0, 0));
}

#[test]
fn what_is_in_memory_is_asked_for_once_and_the_file_is_warm_until_the_next_miss() {
    let budget = WindowBudget::new(ROOM);
    let mut streams = Streams::default();
    let read = |index: u64| Read { offset: index * 65_536, length: 65_536, file_bytes: 1 << 30 };
    assert!(!streams.is_cold());
    assert_eq!(streams.note(read(0), &budget), Noted::default());
    assert!(streams.is_cold());
    assert!(streams.wants(read(1), &budget));
    let range = streams.note(read(1), &budget).ask.unwrap();
    streams.note_found(&range, MIB, &budget);
    assert!(streams.is_cold(), "so much the kernel may have read by itself");
    for index in 2..40 {
        if let Some(range) = streams.note(read(index), &budget).ask {
            streams.note_found(&range, MIB, &budget);
            if !streams.is_cold() {
                break;
            }
        }
    }
    assert!(!streams.is_cold());
    assert!((2..200).all(|index| !streams.wants(read(index), &budget)));
    assert_eq!(budget.left(), ROOM);
    // A miss far on: another stream begins; near by: this one is cold again.
    assert_eq!(streams.note(read(9000), &budget).ask, None);
    assert!(streams.is_cold());
    assert!(streams.note(read(9001), &budget).ask.is_some());
}

#[test]
fn reads_that_lead_nowhere_are_forgotten_among_hits() {
    let budget = WindowBudget::new(ROOM);
    let mut streams = Streams::default();
    let read = |offset: u64| Read { offset, length: 4096, file_bytes: 1 << 40 };
    streams.note(read(0), &budget);
    for index in 0..=QUIET_READS {
        assert!(streams.is_cold());
        streams.note_hit(read(u64::from(index + 1) << 30), &budget);
    }
    assert!(!streams.is_cold());
}

#[test]
fn idle_streams_give_their_windows_back() {
    let budget = WindowBudget::new(ROOM);
    let mut streams = Streams::default();
    let read = |index: u64| Read { offset: index * 65_536, length: 65_536, file_bytes: 1 << 30 };
    streams.note(read(0), &budget);
    streams.note(read(1), &budget);
    assert!(budget.left() < ROOM);
    streams.forget_idle(&budget);
    assert!(streams.is_cold(), "it was used since the last time");
    streams.forget_idle(&budget);
    assert!(!streams.is_cold());
    assert_eq!(budget.left(), ROOM);
}

#[test]
fn what_was_lost_makes_the_window_smaller_for_a_while() {
    let budget = WindowBudget::new(ROOM);
    let mut streams = Streams::default();
    let read = |index: u64| Read { offset: index * 65_536, length: 65_536, file_bytes: 1 << 30 };
    let mut longest = 0;
    let mut index = 0;
    let mut run = |streams: &mut Streams, reads: u64, loses: bool| {
        longest = 0;
        for _ in 0..reads {
            let noted = streams.note(read(index), &budget);
            let bytes = noted.ask.map_or(0, |range| range.end - range.start);
            longest = longest.max(bytes);
            if loses && noted.was_asked {
                streams.note_lost(read(index));
            } else if bytes == 0 {
                streams.note_late(read(index));
            }
            index += 1;
        }
        longest
    };
    assert!(run(&mut streams, 1000, false) >= WINDOW_BYTES_MAX / 2);
    run(&mut streams, 1000, true);
    assert!(run(&mut streams, 20, false) <= WINDOW_BYTES_MIN);
    assert!(run(&mut streams, 4000, false) >= WINDOW_BYTES_MAX / 2);
}

#[test]
fn thousands_of_streams_share_the_budget() {
    let budget = WindowBudget::new(64 * MIB);
    let mut files: Vec<Streams> = (0..2000).map(|_| Streams::default()).collect();
    let mut wanting = 0;
    for index in 0..200_u64 {
        for streams in &mut files {
            let read = Read { offset: index * MIB, length: MIB, file_bytes: 1 << 40 };
            wanting += usize::from(streams.wants(read, &budget));
            streams.note(read, &budget);
        }
    }
    let windows: Vec<u64> =
        files.iter().flat_map(|file| &file.all).map(|stream| stream.window).collect();
    let sum: u64 = windows.iter().sum();
    assert_eq!(sum + budget.left(), 64 * MIB);
    let with = windows.iter().filter(|window| **window > 0).count();
    assert!(with > 200, "only {with} streams have a window");
    // One without a window is not sent back in vain.
    assert!(wanting < (with + 10) * 200, "{wanting}");
    for file in &mut files {
        file.clear(&budget);
    }
    assert_eq!(budget.left(), 64 * MIB);
}

#[test]
fn a_new_stream_gets_a_window_while_others_have_theirs() {
    let budget = WindowBudget::new(64 * MIB);
    let mut windows = vec![0; 100];
    // The first ones take much, and give it back when they next ask for something.
    for round in 0..10 {
        for window in &mut windows {
            *window = budget.change(*window, WINDOW_BYTES_MAX);
            assert!(round < 2 || *window >= WINDOW_BYTES_MIN);
        }
    }
    let (least, most) = (windows.iter().min().unwrap(), windows.iter().max().unwrap());
    assert!(most / least <= 4, "{least} to {most}");
}

#[test]
fn random_reads_do_not_displace_a_stream() {
    let mut file = File::new(1 << 40);
    let mut random = 1_u64;
    for index in 0..2000 {
        file.read(index * 65_536, 65_536);
        for _ in 0..4 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            file.read((1 << 39) + (random >> 26), 4096);
        }
    }
    let head = 2000 * 65_536;
    let is_ahead = |range: &&Range<u64>| range.start < head + WINDOW_BYTES_MAX;
    let asked: u64 = file.asked.iter().filter(is_ahead).map(|range| range.end - range.start).sum();
    assert!(asked >= head - 65_536, "{asked} of {head}");
    assert!(file.asked_bytes() - asked <= 4 * WINDOW_BYTES_MIN);
}

proptest! {
    #[test]
    fn lated_reads_ask_for_everything_once(
        count in 64_u64..2000,
        length in prop_oneof![Just(4096_u64), Just(65_536), Just(262_144), Just(MIB), 1_u64..MIB],
        late in prop::collection::vec(0_u64..8, 1..100),
        tail in 0_u64..4096,
    ) {
        let mut file = File::new(count * length + tail.min(length));
        let order = arriving(count + 1, &late);
        for index in &order {
            file.read(index * length, length);
        }
        // Recognised once three quarters of the first reads have come.
        let begin = 40 * length;
        if file.bytes > begin + length {
            let (missing, repeated) = file.missing_and_repeated(begin);
            prop_assert_eq!(missing, 0, "never asked for: {:?}", file.asked);
            prop_assert!(repeated <= file.bytes / 100, "{} bytes asked for again", repeated);
        }
        let (_, repeated) = file.missing_and_repeated(0);
        prop_assert!(repeated <= file.bytes / 100, "{} bytes asked for again", repeated);
    }

    #[test]
    fn random_reads_ask_for_nearly_nothing(
        offsets in prop::collection::vec(0_u64..1 << 40, 1..1000),
        length in prop_oneof![Just(4096_u64), Just(65_536), Just(MIB)],
    ) {
        let mut file = File::new(1 << 40);
        for offset in &offsets {
            file.read(offset - offset % length, length);
        }
        let read = offsets.len() as u64 * length;
        prop_assert!(
            file.asked_bytes() <= 2 * WINDOW_BYTES_MIN.max(2 * length) + read / 50,
            "{:?}", file.asked
        );
    }

    #[test]
    fn random_reads_of_a_small_part_ask_for_little(
        offsets in prop::collection::vec(0_u64..64 * MIB, 1..2000),
    ) {
        let mut file = File::new(1 << 40);
        for offset in &offsets {
            file.read(offset - offset % 4096, 4096);
        }
        prop_assert!(file.asked_bytes() <= 16 * MIB, "{}", file.asked_bytes());
    }

    #[test]
    fn several_streams_of_one_file_are_told_apart(
        streams in 2_u64..=STREAMS_MAX as u64,
        length in prop_oneof![Just(65_536_u64), Just(262_144), Just(MIB)],
        late in prop::collection::vec(0_u64..4, 1..50),
        turns in prop::collection::vec(0_u64..64, 50..200),
    ) {
        let part = 64 * MIB;
        let mut file = File::new(streams * part);
        let orders = arriving(part / length, &late);
        let mut next = vec![0_usize; streams as usize];
        // Whose turn it is, is random; all get to their end.
        let mut turn = turns.iter().cycle();
        while next.iter().any(|at| *at < orders.len()) {
            let wish = (*turn.next().unwrap() % streams) as usize;
            let who = (0..streams as usize)
                .map(|step| (wish + step) % streams as usize)
                .find(|who| next[*who] < orders.len())
                .unwrap();
            let at = orders[next[who]];
            next[who] += 1;
            file.read(who as u64 * part + at * length, length);
        }
        for who in 0..streams {
            let begin = who * part + 24 * length;
            let end = (who + 1) * part;
            let mut ranges: Vec<_> = file
                .asked
                .iter()
                .map(|range| range.start.max(begin)..range.end.min(end))
                .filter(|range| range.start < range.end)
                .collect();
            ranges.sort_by_key(|range| range.start);
            let mut at = begin;
            for range in ranges {
                prop_assert!(range.start <= at, "from {at} to {} was not asked for", range.start);
                at = at.max(range.end);
            }
            prop_assert!(at >= end, "from {at} to {end} was not asked for");
        }
    }

    #[test]
    fn any_numbers_do_no_harm(
        reads in prop::collection::vec(
            (any_number(), any_number(), any_number(), 0_u8..7), 1..200,
        ),
        room in any_number(),
    ) {
        let room = room / 2;
        let budget = WindowBudget::new(room);
        let mut streams = Streams::default();
        for (offset, length, file_bytes, what) in reads {
            let read = Read { offset, length, file_bytes };
            match what {
                0 => streams.note_hit(read, &budget),
                1 => streams.note_lost(read),
                2 => streams.forget_idle(&budget),
                4 => streams.note_late(read),
                3 => streams.note_found(&(offset..length), 0, &budget),
                _ => {
                    let mut times = 0;
                    loop {
                        if let Some(ask) = streams.note(read, &budget).ask {
                            prop_assert!(ask.start < ask.end && ask.end <= file_bytes);
                            prop_assert!(ask.end - ask.start <= ASK_BYTES_MAX);
                        }
                        // Nobody is sent back for the same again and again; only, when it
                        // repeats a read, for another stream each time.
                        if !streams.wants(read, &budget) {
                            break;
                        }
                        times += 1;
                        prop_assert!(times <= 2 * STREAMS_MAX);
                    }
                }
            }
            prop_assert!(streams.all.len() <= STREAMS_MAX);
            let windows: u64 = streams.all.iter().map(|stream| stream.window).sum();
            prop_assert_eq!(windows + budget.left(), room);
        }
    }
}

fn any_number() -> impl Strategy<Value = u64> {
    prop_oneof![
        any::<u64>(),
        0_u64..64 * MIB,
        (0_u32..64).prop_map(|shift| 1 << shift),
        (0_u64..1000).prop_map(|less| u64::MAX - less),
    ]
}
