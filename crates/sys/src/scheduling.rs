//! Which CPUs and NUMA nodes there are, pinning threads to them, and how soon they go on.

use std::fs;
use std::io;
use std::time::Duration;

use rustix::thread::CpuSet;

/// The CPUs that this process may run on, ascending.
pub fn allowed_cpus() -> io::Result<Vec<usize>> {
    let set = rustix::thread::sched_getaffinity(None)?;
    Ok((0..CpuSet::MAX_CPU).filter(|cpu| set.is_set(*cpu)).collect())
}

/// Lets the calling thread run on these CPUs only. Numbers that the kernel cannot express are
/// left out.
pub fn pin_current_thread(cpus: &[usize]) -> io::Result<()> {
    let mut set = CpuSet::new();
    for cpu in cpus.iter().filter(|cpu| **cpu < CpuSet::MAX_CPU) {
        set.set(*cpu);
    }
    rustix::thread::sched_setaffinity(None, &set)?;
    Ok(())
}

fn attributes() -> io::Result<libc::sched_attr> {
    let mut attributes = libc::sched_attr {
        size: 0,
        sched_policy: 0,
        sched_flags: 0,
        sched_nice: 0,
        sched_priority: 0,
        sched_runtime: 0,
        sched_deadline: 0,
        sched_period: 0,
    };
    let size = size_of::<libc::sched_attr>();
    // SAFETY: the kernel writes `size` bytes at the most, which is what is there; 0 is the thread
    // that asks.
    let failed = unsafe { libc::syscall(libc::SYS_sched_getattr, 0, &raw mut attributes, size, 0) };
    if failed == 0 { Ok(attributes) } else { Err(io::Error::last_os_error()) }
}

/// Lets the calling thread, and threads that it starts, have the CPU for so long at a time while
/// others want it, from 100 µs to 100 ms. It has not less of it in all, and gets it sooner when it
/// wakes up. Linux before 6.12 takes that for nothing (sched(7), EEVDF).
pub fn set_slice(slice: Duration) -> io::Result<()> {
    let mut attributes = attributes()?;
    attributes.sched_runtime = slice.as_nanos() as u64;
    set_attributes(&attributes)
}

/// Lets the calling thread, and threads that it starts, go before others by so many steps of
/// niceness. Needs `CAP_SYS_NICE`, or a limit (`RLIMIT_NICE`) that allows it.
///
/// It is done by setpriority(2). A service manager that forbids real-time scheduling may forbid `sched_setattr` as a
/// whole, as its filter cannot see what is asked for there.
pub fn go_before_others(steps: i32) -> io::Result<()> {
    let niceness = rustix::process::getpriority_process(None)?;
    // Without a process it is of the calling thread (setpriority(2), C library/kernel differences).
    let wanted = niceness.saturating_sub(steps).max(-20);
    rustix::process::setpriority_process(None, wanted)?;
    Ok(())
}

fn set_attributes(attributes: &libc::sched_attr) -> io::Result<()> {
    // SAFETY: the kernel reads as many bytes as `size` says, which the kernel has written there.
    let failed = unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const *attributes, 0) };
    if failed == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// The CPUs of each NUMA node that this process may run on, nodes without any left out. One node
/// with all CPUs where the kernel tells nothing.
pub fn numa_nodes() -> io::Result<Vec<Vec<usize>>> {
    let allowed = allowed_cpus()?;
    let mut nodes: Vec<(usize, Vec<usize>)> = Vec::new();
    if let Ok(directory) = fs::read_dir("/sys/devices/system/node") {
        for entry in directory.flatten() {
            let name = entry.file_name();
            let number = name.to_str().and_then(|name| name.strip_prefix("node")?.parse().ok());
            let list = fs::read_to_string(entry.path().join("cpulist"));
            if let (Some(number), Ok(list)) = (number, list) {
                let mut cpus = parse_cpu_list(&list);
                cpus.retain(|cpu| allowed.contains(cpu));
                if !cpus.is_empty() {
                    nodes.push((number, cpus));
                }
            }
        }
    }
    nodes.sort();
    let mut nodes: Vec<Vec<usize>> = nodes.into_iter().map(|(_, cpus)| cpus).collect();
    if nodes.is_empty() {
        nodes.push(allowed);
    }
    Ok(nodes)
}

/// Reads the kernel's list format (`0-3,8,10-11`); what is no number is left out.
pub fn parse_cpu_list(list: &str) -> Vec<usize> {
    let mut cpus = Vec::new();
    for part in list.trim().split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        if let (Ok(first), Ok(last)) = (first.trim().parse(), last.trim().parse::<usize>()) {
            cpus.extend((first..=last).take(CpuSet::MAX_CPU));
        }
    }
    cpus
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_lists_are_read_as_the_kernel_writes_them() {
        assert_eq!(parse_cpu_list("0-3,8,10-11\n"), [0, 1, 2, 3, 8, 10, 11]);
        assert_eq!(parse_cpu_list("0\n"), [0]);
        assert!(parse_cpu_list("\n").is_empty());
        assert!(parse_cpu_list("x-2,-").is_empty());
    }

    #[test]
    fn nodes_hold_exactly_the_allowed_cpus() {
        let mut cpus: Vec<usize> = numa_nodes().unwrap().concat();
        cpus.sort_unstable();
        assert_eq!(cpus, allowed_cpus().unwrap());
    }

    #[test]
    fn a_thread_can_have_shorter_slices() {
        let slice = || attributes().unwrap().sched_runtime;
        let before = slice();
        let after = std::thread::spawn(move || {
            set_slice(Duration::from_micros(700)).unwrap();
            slice()
        });
        // What an older kernel has not learnt it does not tell.
        assert!([700_000, 0].contains(&after.join().unwrap()));
        assert_eq!(slice(), before);
    }

    #[test]
    fn a_thread_can_go_before_others_if_it_may() {
        let niceness = || attributes().unwrap().sched_nice;
        let before = niceness();
        let (outcome, after) =
            std::thread::spawn(move || (go_before_others(3), niceness())).join().unwrap();
        match outcome {
            Ok(()) => assert_eq!(after, before - 3),
            Err(error) => {
                assert_eq!((error.kind(), after), (io::ErrorKind::PermissionDenied, before));
            }
        }
        assert_eq!(niceness(), before);
    }

    #[test]
    fn a_thread_can_be_pinned() {
        let cpus = allowed_cpus().unwrap();
        let first = cpus[0];
        std::thread::spawn(move || {
            pin_current_thread(&[first]).unwrap();
            assert_eq!(allowed_cpus().unwrap(), [first]);
        })
        .join()
        .unwrap();
    }
}
