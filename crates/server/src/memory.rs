//! How short of memory the machine is, by the kernel's pressure stall information, for the engine's
//! caches.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use steadfast_access::Access;
use steadfast_engine::{Engine, MemoryPressure};
use steadfast_sys::process;

/// Percent of the last ten seconds in which some, or all, processes waited for memory.
const SOME_PERCENT: f64 = 10.0;
const FULL_PERCENT: f64 = 5.0;

/// The part of the remembered decisions that is given back each second while some wait.
const SOME_RECLAIMED: f64 = 0.1;

/// What is to be done every second: tells the engine, and the log when the duplicate request
/// cache is too small for its history.
pub(crate) fn watch(engine: &Arc<Engine>, access: &Arc<Access>) -> Box<dyn Fn() + Send> {
    let (engine, access) = (Arc::clone(engine), Arc::clone(access));
    let files = pressure_files();
    let (told, told_pressure) = (AtomicU64::new(0), AtomicU64::new(0));
    let seconds = AtomicU64::new(0);
    Box::new(move || {
        let pressure = files.iter().map(|file| pressure(file)).max().unwrap_or_default();
        engine.set_memory_pressure(pressure);
        match pressure {
            MemoryPressure::None => {}
            MemoryPressure::Some => drop(access.reclaim(SOME_RECLAIMED)),
            MemoryPressure::Full => {
                access.reclaim(1.0);
                process::release_free_memory();
            }
        }
        // Once a minute is often enough.
        if !seconds.fetch_add(1, Ordering::Relaxed).is_multiple_of(60) {
            return;
        }
        let usage = engine.statistics().reply_cache;
        let before = told_pressure.swap(usage.evicted_by_pressure, Ordering::Relaxed);
        if usage.evicted_by_pressure > before {
            tracing::warn!(
                "the machine is very short of memory: the duplicate request cache let {} replies \
                 go that clients may ask for again",
                usage.evicted_by_pressure - before
            );
        }
        let before = told.swap(usage.evicted_young, Ordering::Relaxed);
        if usage.evicted_young > before {
            tracing::warn!(
                "the duplicate request cache let {} replies go that clients may ask for again; \
                 raise reply_cache_bytes_max (it uses {} bytes)",
                usage.evicted_young - before,
                usage.bytes
            );
        }
    })
}

/// The machine's, and that of the control group that the server runs in.
fn pressure_files() -> Vec<PathBuf> {
    let groups = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let own = groups.lines().find_map(|line| line.strip_prefix("0::/"));
    let own = own.map(|group| Path::new("/sys/fs/cgroup").join(group).join("memory.pressure"));
    own.into_iter().chain([PathBuf::from("/proc/pressure/memory")]).collect()
}

/// A kernel without this file knows of no pressure.
fn pressure(file: &Path) -> MemoryPressure {
    std::fs::read_to_string(file).map_or(MemoryPressure::None, |text| of_text(&text))
}

fn of_text(text: &str) -> MemoryPressure {
    let percent = |kind: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(kind))?;
        let average = line.split_whitespace().find_map(|word| word.strip_prefix("avg10="))?;
        average.parse::<f64>().ok()
    };
    if percent("full ").is_some_and(|percent| percent >= FULL_PERCENT) {
        MemoryPressure::Full
    } else if percent("some ").is_some_and(|percent| percent >= SOME_PERCENT) {
        MemoryPressure::Some
    } else {
        MemoryPressure::None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(some: f64, full: f64) -> String {
        format!(
            "some avg10={some:.2} avg60=99.00 avg300=99.00 total=1\n\
             full avg10={full:.2} avg60=99.00 avg300=99.00 total=1\n"
        )
    }

    #[test]
    fn the_kernels_file_is_understood() {
        assert_eq!(of_text(&text(0.0, 0.0)), MemoryPressure::None);
        assert_eq!(of_text(&text(12.5, 0.3)), MemoryPressure::Some);
        assert_eq!(of_text(&text(12.5, 6.1)), MemoryPressure::Full);
        for odd in ["", "some", "some avg10=", "some avg10=x", "full avg60=99"] {
            assert_eq!(of_text(odd), MemoryPressure::None, "{odd:?}");
        }
    }

    #[test]
    fn a_kernel_without_it_has_no_pressure() {
        assert_eq!(pressure(Path::new("/nowhere/memory.pressure")), MemoryPressure::None);
    }
}
