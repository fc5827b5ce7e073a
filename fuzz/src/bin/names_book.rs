//! The file of names that is kept across restarts: with a wrong checksum it is not read, and with
//! a right one, whatever is in it, what is taken in is kept alike.
#![no_main]

use std::sync::Arc;

use libfuzzer_sys::fuzz_target;
use steadfast_access::testing::{ManualClock, ScriptedService};
use steadfast_access::{Bounds, Kept, NameBook};

fn book() -> Arc<NameBook> {
    let clock = Arc::new(ManualClock::default());
    NameBook::new(Bounds::default(), ScriptedService::new(), clock)
}

fuzz_target!(|bytes: &[u8]| {
    let read = Kept::of_bytes(bytes);
    let Ok(kept) = read.or_else(|_| serde_json::from_slice(bytes)) else { return };
    assert_eq!(Kept::of_bytes(&kept.to_bytes()).as_ref(), Ok(&kept));
    let first = book();
    let count = first.restore(kept);
    let kept = first.kept();
    assert_eq!(kept.names.len(), count);
    let second = book();
    assert_eq!(second.restore(kept), count);
    first.turn();
    second.turn();
});
