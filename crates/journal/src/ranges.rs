//! Lists of ranges of a file: in order, none touches another.

use std::ops::Range;

/// What two ranges share. May be empty.
pub(crate) fn common(a: &Range<u64>, b: &Range<u64>) -> Range<u64> {
    let start = a.start.max(b.start);
    start..a.end.min(b.end).max(start)
}

/// Adds a range to a list.
pub(crate) fn add(list: &mut Vec<Range<u64>>, range: Range<u64>) {
    if range.is_empty() {
        return;
    }
    let first = list.partition_point(|one| one.end < range.start);
    let after = list.partition_point(|one| one.start <= range.end);
    let start = list.get(first).map_or(range.start, |one| one.start.min(range.start));
    let last = after.checked_sub(1).and_then(|at| list.get(at));
    let end = last.map_or(range.end, |one| one.end.max(range.end));
    // Those in between touch it; if there is none it goes between two.
    if first < after {
        list.splice(first..after, std::iter::once(start..end));
    } else {
        list.insert(first, range);
    }
}

/// What of a list is not in a range.
pub(crate) fn without(list: &[Range<u64>], range: &Range<u64>) -> Vec<Range<u64>> {
    let mut rest = Vec::new();
    for one in list {
        let shared = common(one, range);
        if shared.is_empty() {
            rest.push(one.clone());
            continue;
        }
        let parts = [one.start..shared.start, shared.end..one.end];
        rest.extend(parts.into_iter().filter(|part| !part.is_empty()));
    }
    rest
}

#[cfg(test)]
#[allow(clippy::indexing_slicing)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_sets_of_bytes() {
        let bytes = |list: &[Range<u64>]| list.iter().cloned().flatten().collect::<Vec<_>>();
        let (mut list, mut model) = (Vec::new(), std::collections::BTreeSet::new());
        for number in 0..400u64 {
            let start = number * 7919 % 97;
            let range = start..start + number * 31 % 9;
            if number % 3 == 0 {
                list = without(&list, &range);
                model.retain(|at| !range.contains(at));
            } else {
                model.extend(range.clone());
                add(&mut list, range);
            }
            assert_eq!(bytes(&list), model.iter().copied().collect::<Vec<_>>());
            assert!(list.windows(2).all(|two| two[0].end <= two[1].start));
        }
        add(&mut list, 0..200);
        assert!(list.len() == 1 && list[0] == (0..200));
    }
}
