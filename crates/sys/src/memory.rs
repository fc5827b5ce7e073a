//! Advice on the memory of this process.

use std::ops::Range;

/// What a huge page has on the architectures that have them at this size (x86-64, and arm64 with
/// pages of 4 KiB). Elsewhere the kernel takes the advice for what it has.
pub const HUGE_PAGE_BYTES: usize = 2 << 20;

/// Memory that is written to for the first time after this is to be made of huge pages, where whole
/// ones fit into the range (`MADV_HUGEPAGE`). What a device reads from it then is one piece and not
/// one for each page of 4 KiB. Says nothing if the kernel has none: nothing but speed depends on it.
pub fn prefer_huge_pages(range: &Range<*const u8>) {
    let begin = range.start.addr().next_multiple_of(HUGE_PAGE_BYTES);
    let end = range.end.addr() & !(HUGE_PAGE_BYTES - 1);
    if let Some(bytes) = end.checked_sub(begin)
        && bytes > 0
    {
        let address = range.start.with_addr(begin).cast_mut().cast();
        // SAFETY: this advice changes no contents and no permissions of whatever is at the address,
        // and the kernel refuses what is not mapped.
        unsafe { libc::madvise(address, bytes, libc::MADV_HUGEPAGE) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_with_the_advice_is_on_huge_pages_where_there_are_any() {
        let setting = std::fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled");
        if setting.map_or(true, |setting| setting.contains("[never]")) {
            println!("skipped: this kernel has no huge pages");
            return;
        }
        let mut memory = Vec::<u8>::with_capacity(3 * HUGE_PAGE_BYTES);
        let range = memory.spare_capacity_mut().as_ptr_range();
        prefer_huge_pages(&(range.start.cast()..range.end.cast()));
        let advised = huge_advised();
        assert!(advised > 0, "no mapping has the advice");
        memory.resize(3 * HUGE_PAGE_BYTES, 1);
        assert!(memory.iter().all(|byte| *byte == 1));
    }

    #[test]
    fn a_range_without_a_whole_huge_page_is_left_alone() {
        let memory = [0_u8; 4096];
        prefer_huge_pages(&memory.as_ptr_range());
        prefer_huge_pages(&(std::ptr::null()..std::ptr::null()));
        // Nothing is mapped there, and nothing happens.
        prefer_huge_pages(&(std::ptr::null()..std::ptr::without_provenance(4 << 20)));
    }

    /// Mappings of this process that have the advice.
    fn huge_advised() -> usize {
        let smaps = std::fs::read_to_string("/proc/self/smaps").unwrap();
        let flags = smaps.lines().filter_map(|line| line.strip_prefix("VmFlags:"));
        flags.filter(|flags| flags.split_whitespace().any(|flag| flag == "hg")).count()
    }
}
