//! Arithmetic of times from and until, in ns.

/// In order, and those that touch put together.
pub fn merged(mut times: Vec<(u64, u64)>) -> Vec<(u64, u64)> {
    times.sort_unstable();
    let mut merged: Vec<(u64, u64)> = Vec::new();
    for (from, until) in times.into_iter().filter(|(from, until)| from < until) {
        match merged.last_mut() {
            Some(last) if from <= last.1 => last.1 = last.1.max(until),
            _ => merged.push((from, until)),
        }
    }
    merged
}

/// What two merged lists have in common.
pub fn common(left: &[(u64, u64)], right: &[(u64, u64)]) -> Vec<(u64, u64)> {
    let pairs = left.iter().flat_map(|one| right.iter().map(move |other| (one.0.max(other.0), one.1.min(other.1))));
    pairs.filter(|(from, until)| from < until).collect()
}

/// Sum of a merged list.
pub fn length(times: &[(u64, u64)]) -> u64 {
    times.iter().map(|(from, until)| until - from).sum()
}

#[cfg(test)]
mod tests {
    use super::{common, length, merged};

    #[test]
    fn times_are_merged_and_cut() {
        let times = merged(vec![(5, 9), (1, 3), (3, 4), (8, 12), (7, 7)]);
        assert_eq!(times, [(1, 4), (5, 12)]);
        assert_eq!(length(&times), 10);
        assert_eq!(common(&times, &[(2, 6), (11, 20)]), [(2, 4), (5, 6), (11, 12)]);
    }
}
