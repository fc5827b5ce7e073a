//! A pointer to a value that many own, as [`std::sync::Arc`], of which it is known why each owner has
//! it: the reason is a part of the pointer's type, and pins are counted by reason. The value can be
//! ended by whoever finds that nobody else has a pin, in the same atomic step: from then on no weak
//! pointer leads to it.
//!
//! All of that is one word, so a pin costs what a clone of an `Arc` costs: one atomic addition, and one
//! subtraction when it is dropped. It needs `unsafe` because the count decides about memory; only the
//! total does, which reasons cannot change: see `COUNT`.

use std::fmt;
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::ops::Deref;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering, fence};

/// The bits that have the number of all pins. Above them are [`ENDED`] and the lanes. Carries go upwards
/// only, so whatever overflows a lane makes the lanes' numbers wrong, and not this one.
const COUNT: u64 = (1 << 31) - 1;
/// More pins than this end the process, as with [`std::sync::Arc`]: there is room for as many threads
/// that come here at once.
const COUNT_MAX: u64 = COUNT / 2;
/// No weak pointer leads to the value any more.
const ENDED: u64 = 1 << 31;
/// Weak pointers of which there may be so many at most, as with [`std::sync::Arc`].
const WEAK_MAX: usize = isize::MAX as usize;

/// Why a pin is there.
pub trait Reason {
    /// Where pins for this reason are counted.
    const LANE: Lane;
}

/// What is counted apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lane {
    /// Its place among the bits for lanes.
    shift: u8,
    /// None of [`Lane::REST`].
    bits: u8,
}

impl Lane {
    /// Of all pins that have no lane of their own.
    pub const REST: Self = Self { shift: 0, bits: 0 };
    /// Bits that lanes may have together.
    pub const BITS: u8 = 32;

    /// A lane of so many bits above the lanes `below`. What more pins than fit do to the numbers of
    /// this lane and those above does no harm but that these are wrong.
    ///
    /// # Panics
    /// When there is no room for it. To be made as a constant.
    pub const fn above(below: Self, bits: u8) -> Self {
        let shift = below.shift + below.bits;
        assert!(bits > 0 && bits <= Self::BITS && shift + bits <= Self::BITS, "no room for a lane");
        Self { shift, bits }
    }

    const fn lowest_bit(self) -> u32 {
        (self.shift + Self::BITS) as u32
    }

    /// What one pin adds to the word.
    const fn unit(self) -> u64 {
        if self.bits == 0 { 1 } else { 1 | 1 << self.lowest_bit() }
    }
}

/// How many pins there were at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pins(u64);

impl Pins {
    /// All of them.
    pub fn total(self) -> u64 {
        self.0 & COUNT
    }

    /// Those of a lane; of [`Lane::REST`] all.
    pub fn of(self, lane: Lane) -> u64 {
        if lane.bits == 0 {
            return self.total();
        }
        self.0 >> lane.lowest_bit() & ((1 << lane.bits) - 1)
    }
}

struct Inner<T> {
    /// Lanes, [`ENDED`] and [`COUNT`].
    pins: AtomicU64,
    /// Weak pointers, and one that all pins have together.
    weak: AtomicUsize,
    /// Dropped with the last pin.
    value: ManuallyDrop<T>,
}

/// The word of an allocation. Never a reference to all of it is made where there may be no pin: another
/// thread may be dropping the value.
fn word<'p, T>(inner: NonNull<Inner<T>>) -> &'p AtomicU64 {
    // SAFETY: callers have a pin or a weak pointer, which keeps the allocation, as long as they use it.
    unsafe { &(*inner.as_ptr()).pins }
}

/// Adds a weak pointer to those of an allocation.
fn add_weak<T>(inner: NonNull<Inner<T>>) -> WeakPinned<T> {
    // SAFETY: as in `word`.
    let before = unsafe { &(*inner.as_ptr()).weak }.fetch_add(1, Ordering::Relaxed);
    if before > WEAK_MAX {
        std::process::abort();
    }
    WeakPinned { inner, shares: PhantomData }
}

/// A pin: one of the owners of a value, and why it is one.
pub struct Pinned<T, R: Reason> {
    inner: NonNull<Inner<T>>,
    owns: PhantomData<Inner<T>>,
    reason: PhantomData<R>,
}

// SAFETY: as `Arc`: the value is shared by all threads that have a pin, and dropped by one of them.
unsafe impl<T: Send + Sync, R: Reason> Send for Pinned<T, R> {}
// SAFETY: as above: with a reference to a pin another one can be made.
unsafe impl<T: Send + Sync, R: Reason> Sync for Pinned<T, R> {}

impl<T, R: Reason> Pinned<T, R> {
    const UNIT: u64 = R::LANE.unit();

    /// The first pin of a value.
    pub fn new(value: T) -> Self {
        let inner = Box::new(Inner {
            pins: AtomicU64::new(Self::UNIT),
            weak: AtomicUsize::new(1),
            value: ManuallyDrop::new(value),
        });
        Self::of(NonNull::from(Box::leak(inner)))
    }

    /// A pin that was counted.
    fn of(inner: NonNull<Inner<T>>) -> Self {
        Self { inner, owns: PhantomData, reason: PhantomData }
    }

    /// Another pin.
    #[must_use]
    pub fn pin<Q: Reason>(&self) -> Pinned<T, Q> {
        // As with `Arc`: who makes one of another needs to see nothing.
        let before = word(self.inner).fetch_add(Pinned::<T, Q>::UNIT, Ordering::Relaxed);
        if before & COUNT > COUNT_MAX {
            std::process::abort();
        }
        Pinned::of(self.inner)
    }

    /// The same pin, for another reason from here on.
    #[must_use]
    pub fn now_for<Q: Reason>(self) -> Pinned<T, Q> {
        let change = Pinned::<T, Q>::UNIT.wrapping_sub(Self::UNIT);
        word(self.inner).fetch_add(change, Ordering::Relaxed);
        // It goes on as the other.
        Pinned::of(ManuallyDrop::new(self).inner)
    }

    /// A pointer that does not keep the value.
    pub fn downgrade(&self) -> WeakPinned<T> {
        add_weak(self.inner)
    }

    /// The pins of the value now.
    pub fn pins(&self) -> Pins {
        Pins(word(self.inner).load(Ordering::Relaxed))
    }

    /// Whether weak pointers lead to the value no more.
    pub fn has_ended(&self) -> bool {
        word(self.inner).load(Ordering::Acquire) & ENDED != 0
    }

    /// From here on weak pointers lead to the value no more. Who has a pin keeps it.
    pub fn end(&self) {
        word(self.inner).fetch_or(ENDED, Ordering::AcqRel);
    }

    /// Ends the value if it has no pins but this one and these, and has not ended. Then all that others
    /// did with their pins has happened before.
    pub fn end_if_alone_with(&self, others: &[Lane]) -> bool {
        let alone = others.iter().fold(Self::UNIT, |sum, lane| sum.wrapping_add(lane.unit()));
        let (success, failure) = (Ordering::AcqRel, Ordering::Relaxed);
        word(self.inner).compare_exchange(alone, alone | ENDED, success, failure).is_ok()
    }

    /// Whether both are of one value.
    pub fn is_same<Q: Reason>(&self, other: &Pinned<T, Q>) -> bool {
        self.inner == other.inner
    }
}

impl<T, R: Reason> Clone for Pinned<T, R> {
    /// Another pin for the same reason.
    fn clone(&self) -> Self {
        self.pin()
    }
}

impl<T, R: Reason> Deref for Pinned<T, R> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: this pin keeps the value, which is changed by nobody before it is dropped.
        unsafe { &(*self.inner.as_ptr()).value }
    }
}

impl<T, R: Reason> Drop for Pinned<T, R> {
    fn drop(&mut self) {
        let before = word(self.inner).fetch_sub(Self::UNIT, Ordering::Release);
        if before & COUNT == 1 {
            drop_value(self.inner);
        }
    }
}

/// Drops a value that has no pins any more.
#[cold]
fn drop_value<T>(inner: NonNull<Inner<T>>) {
    // What others did with the value comes before its end.
    fence(Ordering::Acquire);
    // Dropped after the value.
    let _weak = WeakPinned { inner, shares: PhantomData };
    // SAFETY: the caller has dropped the last pin, and no other can be made of weak pointers any more: the
    // value is nobody else's. The allocation is kept by the weak pointer that all pins had together.
    unsafe { ManuallyDrop::drop(&mut (*inner.as_ptr()).value) };
}

impl<T: fmt::Debug, R: Reason> fmt::Debug for Pinned<T, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

/// A pointer to a value that others keep as long as they have pins.
pub struct WeakPinned<T> {
    inner: NonNull<Inner<T>>,
    shares: PhantomData<Inner<T>>,
}

// SAFETY: as `Weak`: a pin can be made of it.
unsafe impl<T: Send + Sync> Send for WeakPinned<T> {}
// SAFETY: as above.
unsafe impl<T: Send + Sync> Sync for WeakPinned<T> {}

impl<T> WeakPinned<T> {
    /// A pin, unless the last one is gone or the value was [ended](Pinned::end).
    pub fn upgrade<R: Reason>(&self) -> Option<Pinned<T, R>> {
        let word = word(self.inner);
        let mut before = word.load(Ordering::Relaxed);
        loop {
            if before & COUNT == 0 || before & ENDED != 0 {
                return None;
            }
            if before & COUNT > COUNT_MAX {
                std::process::abort();
            }
            let after = before.wrapping_add(Pinned::<T, R>::UNIT);
            let (success, failure) = (Ordering::Acquire, Ordering::Relaxed);
            match word.compare_exchange_weak(before, after, success, failure) {
                Ok(_) => return Some(Pinned::of(self.inner)),
                Err(now) => before = now,
            }
        }
    }

    /// Whether there are no pins any more.
    pub fn is_gone(&self) -> bool {
        word(self.inner).load(Ordering::Relaxed) & COUNT == 0
    }
}

impl<T> Clone for WeakPinned<T> {
    fn clone(&self) -> Self {
        add_weak(self.inner)
    }
}

impl<T> Drop for WeakPinned<T> {
    fn drop(&mut self) {
        // SAFETY: as in `word`.
        let weak = unsafe { &(*self.inner.as_ptr()).weak };
        if weak.fetch_sub(1, Ordering::Release) == 1 {
            fence(Ordering::Acquire);
            // SAFETY: there is no weak pointer left, and so no pin, which all have one together: nobody
            // else knows the allocation, which was made by `Box`. Its value was dropped, or never will be.
            drop(unsafe { Box::from_raw(self.inner.as_ptr()) });
        }
    }
}

impl<T> fmt::Debug for WeakPinned<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("WeakPinned")
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::AtomicBool;

    use super::*;

    struct Rest;
    struct One;
    struct Two;
    struct Top;

    impl Reason for Rest {
        const LANE: Lane = Lane::REST;
    }

    impl Reason for One {
        const LANE: Lane = Lane::above(Lane::REST, 2);
    }

    impl Reason for Two {
        const LANE: Lane = Lane::above(One::LANE, 29);
    }

    impl Reason for Top {
        const LANE: Lane = Lane::above(Two::LANE, 1);
    }

    #[test]
    fn pins_are_counted_by_reason_and_the_last_drops_the_value() {
        let dropped = Arc::new(());
        let first = Pinned::<_, Rest>::new(Arc::clone(&dropped));
        let weak = first.downgrade();
        let second = first.pin::<One>();
        let third = second.clone();
        let numbers = |pins: Pins| (pins.total(), pins.of(One::LANE), pins.of(Two::LANE));
        assert_eq!(numbers(first.pins()), (3, 2, 0));
        let third = third.now_for::<Two>();
        assert_eq!(numbers(first.pins()), (3, 1, 1));
        assert!(third.is_same(&first));
        assert!(!third.is_same(&Pinned::<_, One>::new(Arc::default())));
        drop((first, second));
        assert_eq!(numbers(third.pins()), (1, 0, 1));
        assert_eq!(numbers(weak.upgrade::<One>().unwrap().pins()), (2, 1, 1));
        assert!(!weak.is_gone() && Arc::strong_count(&dropped) == 2);
        drop(third);
        assert!(weak.is_gone() && weak.upgrade::<One>().is_none());
        assert_eq!(Arc::strong_count(&dropped), 1);
        drop(weak.clone());
    }

    #[test]
    fn more_pins_than_fit_a_lane_leave_the_total_right() {
        let first = Pinned::<_, Two>::new(());
        let weak = first.downgrade();
        let many: Vec<_> = (0..9).map(|_| first.pin::<One>()).collect();
        assert_eq!(first.pins().total(), 10);
        assert!(!first.end_if_alone_with(&[]));
        drop(many);
        let pins = first.pins();
        assert_eq!((pins.total(), pins.of(One::LANE), pins.of(Two::LANE)), (1, 0, 1));
        // Beyond the last bit.
        let many: Vec<_> = (0..5).map(|_| first.pin::<Top>()).collect();
        assert_eq!((first.pins().total(), first.pins().of(Top::LANE)), (6, 1));
        drop(many);
        assert!(first.end_if_alone_with(&[]) && weak.upgrade::<One>().is_none());
        assert!(!weak.is_gone());
    }

    #[test]
    fn what_has_ended_is_found_by_nobody_and_kept_by_who_has_it() {
        let first = Pinned::<_, Rest>::new(7);
        let (kept, weak) = (first.pin::<One>(), first.downgrade());
        assert!(!first.end_if_alone_with(&[]) && !first.end_if_alone_with(&[Two::LANE]));
        assert!(first.end_if_alone_with(&[One::LANE]) && first.has_ended());
        assert!(weak.upgrade::<Two>().is_none() && *kept == 7 && *kept.clone() == 7);
        // Once only.
        assert!(!first.end_if_alone_with(&[One::LANE]));
        let other = Pinned::<_, Rest>::new(8);
        let weak = other.downgrade();
        let _kept = other.pin::<Two>();
        other.end();
        assert!(other.has_ended() && weak.upgrade::<Two>().is_none() && !weak.is_gone());
    }

    /// One thread ends values that it has alone, others make pins of weak pointers and of pins.
    #[test]
    fn nothing_is_ended_under_a_pin() {
        #[derive(Default)]
        struct Value {
            is_ended: AtomicBool,
            uses: AtomicUsize,
        }
        const VALUES: usize = 2_000;
        for _ in 0..20 {
            let values: Vec<_> =
                (0..VALUES).map(|_| Pinned::<_, One>::new(Value::default())).collect();
            std::thread::scope(|scope| {
                for _ in 0..2 {
                    let weak: Vec<_> = values.iter().map(Pinned::downgrade).collect();
                    scope.spawn(move || {
                        for weak in &weak {
                            let Some(pin) = weak.upgrade::<Rest>() else { continue };
                            assert!(!pin.is_ended.load(Ordering::Relaxed));
                            let other = pin.pin::<Two>();
                            drop(pin);
                            other.uses.fetch_add(1, Ordering::Relaxed);
                            assert!(!other.is_ended.load(Ordering::Relaxed));
                        }
                    });
                }
                for value in &values {
                    if value.end_if_alone_with(&[]) {
                        value.is_ended.store(true, Ordering::Relaxed);
                        let uses = value.uses.load(Ordering::Relaxed);
                        assert_eq!(value.pins().total(), 1);
                        std::hint::spin_loop();
                        assert_eq!(value.uses.load(Ordering::Relaxed), uses);
                    }
                }
            });
            assert!(values.iter().all(|value| value.pins().total() == 1));
        }
    }

    /// Pins, weak pointers and their copies are dropped by many threads in any order.
    #[test]
    fn a_value_is_dropped_once() {
        struct Counted(Arc<AtomicUsize>);
        impl Drop for Counted {
            fn drop(&mut self) {
                self.0.fetch_add(1, Ordering::Relaxed);
            }
        }
        const ROUNDS: usize = 2_000;
        let drops = Arc::new(AtomicUsize::new(0));
        for _ in 0..ROUNDS {
            let first = Pinned::<_, One>::new(Counted(Arc::clone(&drops)));
            std::thread::scope(|scope| {
                let (pin, weak) = (first.pin::<Two>(), first.downgrade());
                scope.spawn(move || drop((pin.downgrade(), pin)));
                scope.spawn(move || drop((weak.upgrade::<Rest>(), weak.clone(), weak)));
                drop(first);
            });
        }
        assert_eq!(drops.load(Ordering::Relaxed), ROUNDS);
    }
}
