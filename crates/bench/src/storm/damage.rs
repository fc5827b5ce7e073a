//! What happens to a call on its way.

use steadfast_rpc::record::{FRAGMENT_BYTES_MAX, Mark};

/// Numbers at the edges of types, counts and offsets.
const EDGES: [u32; 14] = [
    0,
    1,
    2,
    3,
    64,
    65,
    255,
    256,
    0x1000,
    0x10_0001,
    0x7fff_ffff,
    0x8000_0000,
    0xffff_fffe,
    0xffff_ffff,
];

/// Splitmix64: small, seeded, good enough to break things.
#[derive(Clone, Debug)]
pub(super) struct Random(u64);

impl Random {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `bound` (0 for a bound of 0).
    fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound.max(1) as u64) as usize
    }
}

/// A damaged message with the record mark it is sent under.
#[derive(Clone, Debug)]
pub(super) struct Damage {
    message: Vec<u8>,
    mark: Mark,
    /// Where the message is cut into two fragments, if it is.
    fragment_at: Option<usize>,
}

impl Damage {
    /// Takes one of the valid calls and damages it.
    pub(super) fn draw(random: &mut Random, valid: &[Vec<u8>]) -> Self {
        let choice = random.below(valid.len());
        let mut message = valid.get(choice).cloned().unwrap_or_default();
        let xid = random.next() as u32;
        if let Some(place) = message.first_chunk_mut::<4>() {
            *place = xid.to_be_bytes();
        }
        // Damage to the header is found there and never reaches a procedure: mostly the arguments
        // are hit.
        let spared = if random.below(4) > 0 { arguments_at(&message) } else { 0 };
        for _ in 0..=random.below(3) {
            match random.below(8) {
                0 | 1 => flip_bits(random, &mut message, spared),
                2 | 3 => replace_word(random, &mut message, spared),
                4 => {
                    let length = place(random, &message, spared);
                    message.truncate(length);
                }
                5 => {
                    let more = random.below(64) + 1;
                    message.extend((0..more).map(|_| random.next() as u8));
                }
                6 => splice(random, &mut message, spared, valid),
                _ => change_length(random, &mut message, spared),
            }
        }
        // What is no call at all ends the connection and takes the rest of the batch along: enough
        // of those, but not most.
        if random.below(200) > 0 {
            message.resize(message.len().max(12), 0);
            if let Some(kind) = message.get_mut(4..8) {
                kind.fill(0);
            }
        }
        let mark = match random.below(4000) {
            0 => Mark::whole(random.next() as usize & FRAGMENT_BYTES_MAX),
            1 => Mark::whole(FRAGMENT_BYTES_MAX),
            2 => Mark::new(random.next() as usize & FRAGMENT_BYTES_MAX, false),
            _ => Mark::whole(message.len()),
        };
        let fragment_at = (random.below(20) == 0).then(|| random.below(message.len() + 1));
        Self { message, mark, fragment_at }
    }

    /// Whether the stream cannot be taken apart behind it.
    pub(super) fn loses_framing(&self) -> bool {
        self.mark != Mark::whole(self.message.len())
    }

    /// Appends mark and message as they go on the wire.
    pub(super) fn append(&self, bytes: &mut Vec<u8>) {
        match self.fragment_at {
            Some(at) if !self.loses_framing() => {
                let (head, tail) = self.message.split_at(at);
                for (fragment, is_last) in [(head, false), (tail, true)] {
                    bytes.extend_from_slice(&Mark::new(fragment.len(), is_last).to_bytes());
                    bytes.extend_from_slice(fragment);
                }
            }
            _ => {
                bytes.extend_from_slice(&self.mark.to_bytes());
                bytes.extend_from_slice(&self.message);
            }
        }
    }
}

/// Where a call's arguments begin: behind six words, credentials and an empty verifier.
fn arguments_at(message: &[u8]) -> usize {
    let length = message.get(28..32).and_then(|word| <[u8; 4]>::try_from(word).ok());
    let credentials = length.map_or(0, |word| u32::from_be_bytes(word) as usize);
    (40 + credentials.next_multiple_of(4)).min(message.len())
}

/// A place in the message, behind what is spared as long as there is something behind it.
fn place(random: &mut Random, message: &[u8], spared: usize) -> usize {
    let spared = if spared < message.len() { spared } else { 0 };
    spared + random.below(message.len() - spared)
}

fn flip_bits(random: &mut Random, message: &mut [u8], spared: usize) {
    for _ in 0..=random.below(8) {
        let at = place(random, message, spared);
        if let Some(byte) = message.get_mut(at) {
            *byte ^= 1 << random.below(8);
        }
    }
}

fn word_at(random: &mut Random, message: &[u8], spared: usize) -> std::ops::Range<usize> {
    let at = place(random, message, spared) / 4 * 4;
    at..at + 4
}

fn replace_word(random: &mut Random, message: &mut [u8], spared: usize) {
    let place = word_at(random, message, spared);
    let edge = EDGES.get(random.below(EDGES.len())).copied().unwrap_or(0);
    if let Some(word) = message.get_mut(place) {
        word.copy_from_slice(&edge.to_be_bytes());
    }
}

/// Words are often lengths: off by a little.
fn change_length(random: &mut Random, message: &mut [u8], spared: usize) {
    let place = word_at(random, message, spared);
    if let Some(word) = message.get_mut(place)
        && let Ok(bytes) = <[u8; 4]>::try_from(&*word)
    {
        let off_by = random.below(9) as u32;
        let length = u32::from_be_bytes(bytes).wrapping_add(off_by).wrapping_sub(4);
        word.copy_from_slice(&length.to_be_bytes());
    }
}

/// The head of one call, the tail of another.
fn splice(random: &mut Random, message: &mut Vec<u8>, spared: usize, valid: &[Vec<u8>]) {
    let other = random.below(valid.len());
    let Some(other) = valid.get(other) else { return };
    let cut = place(random, message, spared) / 4 * 4;
    let from = place(random, other, spared.min(arguments_at(other))) / 4 * 4;
    message.truncate(cut);
    message.extend_from_slice(other.get(from..).unwrap_or(&[]));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_does_the_same_damage_and_all_kinds_come() {
        let valid = vec![vec![7; 100], vec![9; 40]];
        let draw = |seed| {
            let mut random = Random::new(seed);
            (0..20_000).map(|_| Damage::draw(&mut random, &valid)).collect::<Vec<_>>()
        };
        let (first, again) = (draw(1), draw(1));
        assert!(first.iter().zip(&again).all(|(a, b)| a.message == b.message && a.mark == b.mark));
        assert!(draw(2).iter().zip(&first).any(|(a, b)| a.message != b.message));
        assert!(first.iter().any(Damage::loses_framing));
        assert!(first.iter().any(|one| one.message.len() > 100));
        assert!(first.iter().any(|one| one.message.len() < 12));
        assert!(first.iter().any(|one| one.fragment_at.is_some()));
        let mut bytes = Vec::new();
        let fragmented = first.iter().find(|one| one.fragment_at.is_some_and(|at| at > 0));
        fragmented.unwrap().append(&mut bytes);
        assert_eq!(bytes[0] & 0x80, 0);
    }
}
