//! Which CPUs and NUMA nodes there are, and pinning threads to them.

use std::fs;
use std::io;

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
