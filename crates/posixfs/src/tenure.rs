//! How long the cache has an object, for those who have found it without the cache's locks.

use std::sync::atomic::{AtomicBool, Ordering, fence};

/// Whether the cache has a node, or has let it go, which it does only with those that nobody
/// uses: so that there is one node an object.
#[derive(Debug, Default)]
pub(crate) struct Tenure(AtomicBool);

impl Tenure {
    /// The cache no longer has it.
    pub(crate) fn end(&self) {
        self.0.store(true, Ordering::SeqCst);
    }

    /// The cache lets it go if nobody uses it. Who asks meanwhile is told that it has, unless
    /// `is_unused` has seen his reference.
    pub(crate) fn end_if(&self, is_unused: impl FnOnce() -> bool) -> bool {
        let before = self.0.swap(true, Ordering::SeqCst);
        // Pairs with the fence of `has_ended`. There a reference is made and then the mark looked
        // at; here the mark is made and then the references are looked at: one sees the other.
        fence(Ordering::SeqCst);
        let is_unused = is_unused();
        if !is_unused {
            self.0.store(before, Ordering::SeqCst);
        }
        is_unused
    }

    /// To be asked by who has just made a reference of a weak one.
    pub(crate) fn has_ended(&self) -> bool {
        fence(Ordering::SeqCst);
        self.0.load(Ordering::SeqCst)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Barrier, Weak};

    use super::*;

    #[test]
    fn nothing_is_let_go_that_somebody_has_found() {
        for round in 0..20 {
            let cached: Vec<Arc<Tenure>> = (0..5_000).map(|_| Arc::default()).collect();
            let noted: Vec<Weak<Tenure>> = cached.iter().map(Arc::downgrade).collect();
            let start = Barrier::new(2);
            let (found, let_go) = std::thread::scope(|scope| {
                let user = scope.spawn(|| {
                    start.wait();
                    let find =
                        |weak: &Weak<Tenure>| weak.upgrade().filter(|tenure| !tenure.has_ended());
                    noted.iter().map(find).collect::<Vec<_>>()
                });
                start.wait();
                let let_go: Vec<bool> = cached
                    .iter()
                    .map(|tenure| tenure.end_if(|| Arc::strong_count(tenure) == 1))
                    .collect();
                (user.join().unwrap(), let_go)
            });
            for (found, let_go) in found.iter().zip(let_go) {
                assert!(found.is_none() || !let_go, "round {round}");
            }
        }
    }

    #[test]
    fn what_has_ended_stays_so() {
        let tenure = Tenure::default();
        assert!(!tenure.end_if(|| false) && !tenure.has_ended());
        tenure.end();
        assert!(!tenure.end_if(|| false) && tenure.has_ended());
    }
}
