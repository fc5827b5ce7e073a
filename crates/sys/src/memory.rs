//! Advice on the memory of this process.

use std::ops::Range;

/// What a huge page has on the architectures that have them at this size (x86-64, and arm64 with
/// pages of 4 KiB). Elsewhere the kernel takes the advice for what it has.
const HUGE_PAGE_BYTES: usize = 2 << 20;

/// Memory that is written to for the first time after this is to be made of huge pages, where whole
/// ones fit into the range (`MADV_HUGEPAGE`). What a device reads from it then is one piece and not
/// one for each page of 4 KiB. Says nothing if the kernel has none: nothing but speed depends on it.
pub fn prefer_huge_pages(range: &Range<*const u8>) {
    let end = range.end.addr() & !(HUGE_PAGE_BYTES - 1);
    if let Some(begin) = range.start.addr().checked_next_multiple_of(HUGE_PAGE_BYTES)
        && let Some(bytes) = end.checked_sub(begin)
        && bytes > 0
    {
        let address = range.start.with_addr(begin).cast_mut().cast();
        // SAFETY: this advice changes no contents and no permissions of whatever is at the address,
        // and the kernel passes over what is not mapped.
        unsafe { libc::madvise(address, bytes, libc::MADV_HUGEPAGE) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_huge_pages_of_a_range_have_the_advice_and_nothing_else() {
        let setting = std::fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled");
        if setting.is_err() {
            println!("skipped: this kernel has no huge pages");
            return;
        }
        let mut memory = Vec::<u8>::with_capacity(4 * HUGE_PAGE_BYTES);
        let range = memory.spare_capacity_mut().as_ptr_range();
        let (start, end) = (range.start.cast::<u8>(), range.end.cast::<u8>());
        // Without a whole one; at the end of all addresses; where nothing is.
        prefer_huge_pages(&(start..start.wrapping_add(4096)));
        prefer_huge_pages(&(std::ptr::without_provenance(usize::MAX - 9)..std::ptr::null()));
        prefer_huge_pages(&(std::ptr::null()..std::ptr::without_provenance(4 << 20)));
        let first = start.addr().next_multiple_of(HUGE_PAGE_BYTES);
        let is_advised = |address| advised().iter().any(|range| range.contains(&address));
        assert!(!is_advised(first));
        prefer_huge_pages(&(start..end));
        assert!(is_advised(first) && is_advised(first + 3 * HUGE_PAGE_BYTES - 1));
        assert!(start.addr() == first || !is_advised(start.addr()));
        memory.resize(4 * HUGE_PAGE_BYTES, 1);
        assert!(memory.iter().all(|byte| *byte == 1));
    }

    /// Where mappings of this process have the advice.
    fn advised() -> Vec<Range<usize>> {
        let mut ranges = Vec::new();
        let mut here = 0..0;
        for line in std::fs::read_to_string("/proc/self/smaps").unwrap().lines() {
            let (word, rest) = line.split_once(' ').unwrap_or_default();
            let number = |text| usize::from_str_radix(text, 16).ok();
            if let Some((from, to)) = word.split_once('-')
                && let (Some(from), Some(to)) = (number(from), number(to))
            {
                here = from..to;
            } else if word == "VmFlags:" && rest.split_whitespace().any(|flag| flag == "hg") {
                ranges.push(here.clone());
            }
        }
        ranges
    }
}
