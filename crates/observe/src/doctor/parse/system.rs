//! CPUs, memory, pressure and disks.

use super::{Counters, lines, number_or_zero};

/// Where the time of a CPU went, in ticks of 10 ms.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CpuTimes {
    /// All.
    pub total: u64,
    /// Nothing to do, or only disks to wait for.
    pub idle: u64,
    /// Software interrupts: packets, above all.
    pub soft_interrupt: u64,
    /// Taken by the host of a virtual machine.
    pub stolen: u64,
}

/// `/proc/stat`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stat {
    /// All CPUs together.
    pub all: CpuTimes,
    /// Each.
    pub each: Vec<CpuTimes>,
    /// Tasks that run or want to.
    pub running: u64,
    /// Tasks that wait for disks.
    pub blocked: u64,
}

/// Reads `/proc/stat`.
pub fn stat(text: &str) -> Stat {
    let mut told = Stat::default();
    for line in lines(text) {
        let mut words = line.split_whitespace();
        match words.next() {
            Some("cpu") => told.all = cpu_times(words),
            Some(name) if name.starts_with("cpu") => told.each.push(cpu_times(words)),
            Some("procs_running") => told.running = number_or_zero(&mut words),
            Some("procs_blocked") => told.blocked = number_or_zero(&mut words),
            _ => {}
        }
    }
    told
}

/// The state of a process in `/proc/PID/stat` (`proc_pid_stat(5)`); its name may have blanks and parentheses.
pub fn process_state(text: &str) -> Option<char> {
    text.rsplit_once(") ")?.1.chars().next()
}

fn cpu_times<'a>(words: impl Iterator<Item = &'a str>) -> CpuTimes {
    // Guests' times are in the first two already.
    let times: Vec<u64> = words.take(8).map(|word| word.parse().unwrap_or(0)).collect();
    let at = |index: usize| times.get(index).copied().unwrap_or(0);
    CpuTimes {
        total: times.iter().fold(0, |sum: u64, time| sum.saturating_add(*time)),
        idle: at(3).saturating_add(at(4)),
        soft_interrupt: at(6),
        stolen: at(7),
    }
}

impl CpuTimes {
    /// What passed since.
    #[must_use]
    pub fn since(&self, before: &Self) -> Self {
        Self {
            total: self.total.saturating_sub(before.total),
            idle: self.idle.saturating_sub(before.idle),
            soft_interrupt: self.soft_interrupt.saturating_sub(before.soft_interrupt),
            stolen: self.stolen.saturating_sub(before.stolen),
        }
    }
}

/// How long tasks waited for a resource, in µs since the start of the machine (kernel documentation,
/// `accounting/psi`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pressure {
    /// Some of them.
    pub some_us: u64,
    /// All that had something to do.
    pub full_us: u64,
}

/// Reads `/proc/pressure/*`.
pub fn pressure(text: &str) -> Pressure {
    let mut told = Pressure::default();
    for line in lines(text) {
        let total = line.split_whitespace().find_map(|word| word.strip_prefix("total="));
        let total = total.and_then(|total| total.parse().ok()).unwrap_or(0);
        if line.starts_with("some ") {
            told.some_us = total;
        } else if line.starts_with("full ") {
            told.full_us = total;
        }
    }
    told
}

/// What a disk has done.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DiskCounters {
    /// Its name.
    pub name: String,
    /// Reads that ended.
    pub reads: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Sum of their times, in ms.
    pub read_ms: u64,
    /// Writes that ended.
    pub writes: u64,
    /// Bytes written.
    pub written_bytes: u64,
    /// Sum of their times, in ms.
    pub write_ms: u64,
    /// Time with anything to do, in ms.
    pub busy_ms: u64,
    /// Sum over that time of what there was to do, in ms.
    pub queue_ms: u64,
    /// Flushes that ended.
    pub flushes: u64,
    /// Sum of their times, in ms.
    pub flush_ms: u64,
}

/// Reads `/proc/diskstats` (kernel documentation, `admin-guide/iostats`).
pub fn disks(text: &str) -> Vec<DiskCounters> {
    const SECTOR_BYTES: u64 = 512;
    let read = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let name = (*words.get(2)?).to_owned();
        let at =
            |index: usize| words.get(index).and_then(|word| word.parse().ok()).unwrap_or(0_u64);
        Some(DiskCounters {
            name,
            reads: at(3),
            read_bytes: at(5).saturating_mul(SECTOR_BYTES),
            read_ms: at(6),
            writes: at(7),
            written_bytes: at(9).saturating_mul(SECTOR_BYTES),
            write_ms: at(10),
            busy_ms: at(12),
            queue_ms: at(13),
            flushes: at(18),
            flush_ms: at(19),
        })
    };
    lines(text).filter_map(read).collect()
}

impl DiskCounters {
    /// What happened since.
    #[must_use]
    pub fn since(&self, before: &Self) -> Self {
        let less = |now: u64, then: u64| now.saturating_sub(then);
        Self {
            name: self.name.clone(),
            reads: less(self.reads, before.reads),
            read_bytes: less(self.read_bytes, before.read_bytes),
            read_ms: less(self.read_ms, before.read_ms),
            writes: less(self.writes, before.writes),
            written_bytes: less(self.written_bytes, before.written_bytes),
            write_ms: less(self.write_ms, before.write_ms),
            busy_ms: less(self.busy_ms, before.busy_ms),
            queue_ms: less(self.queue_ms, before.queue_ms),
            flushes: less(self.flushes, before.flushes),
            flush_ms: less(self.flush_ms, before.flush_ms),
        }
    }

    /// Operations of all kinds.
    pub fn operations(&self) -> u64 {
        self.reads.saturating_add(self.writes).saturating_add(self.flushes)
    }

    /// The mean time of a read or write, in ms; a flush counts with the time that it took.
    pub fn mean_ms(&self) -> f64 {
        let sum = self.read_ms.saturating_add(self.write_ms).saturating_add(self.flush_ms);
        sum as f64 / self.operations().max(1) as f64
    }
}

/// Reads `/proc/meminfo` (in KiB) and `/proc/vmstat`: a name and a number a line.
pub fn named_numbers(text: &str) -> Counters {
    lines(text)
        .filter_map(|line| {
            let mut words = line.split_whitespace();
            let name = words.next()?.trim_end_matches(':').to_owned();
            Some((name, words.next()?.parse().ok()?))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpus_and_tasks_are_read() {
        let text = "cpu  48226 127 4071 23223 521 0 54 17 0 0\ncpu0 1 2 3 4 5 6 7 8 9 10\n\
                    intr 366240 0\nprocs_running 4\nprocs_blocked 1\n";
        let told = stat(text);
        let wanted = CpuTimes { total: 76_239, idle: 23_744, soft_interrupt: 54, stolen: 17 };
        assert_eq!(told.all, wanted);
        assert_eq!(told.each, [CpuTimes { total: 36, idle: 9, soft_interrupt: 7, stolen: 8 }]);
        assert_eq!((told.running, told.blocked), (4, 1));
    }

    #[test]
    fn pressure_memory_and_disks_are_read() {
        let text = "some avg10=0.20 avg60=0.38 avg300=0.58 total=4674273\n\
                    full avg10=0.01 avg60=0.27 avg300=0.50 total=4243941\n";
        assert_eq!(pressure(text), Pressure { some_us: 4_674_273, full_us: 4_243_941 });
        let text = " 254 0 vda 57600 7046 3334626 19227 9089 39987 3420088 18322 0 7972 38285 4112 97 191368 694 598 41\n";
        let [vda] = &disks(text)[..] else { panic!("one") };
        assert_eq!((vda.reads, vda.read_bytes, vda.read_ms), (57_600, 3_334_626 * 512, 19_227));
        assert_eq!(
            (vda.writes, vda.write_ms, vda.busy_ms, vda.queue_ms),
            (9089, 18_322, 7972, 38_285)
        );
        assert_eq!((vda.flushes, vda.flush_ms, vda.operations()), (598, 41, 67_287));
        let numbers =
            named_numbers("MemTotal:  24684084 kB\nworkingset_refault_file 112715\nodd\n");
        assert_eq!(numbers.get("MemTotal"), Some(&24_684_084));
        assert_eq!(numbers.get("workingset_refault_file"), Some(&112_715));
    }
}
