//! Bounds on what one sample produces and what the state keeps: rules multiply with
//! processes.

use gpukill_proto::collect::SortIndirect as _;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct EvaluationBounds {
    /// Findings of one sample: one for each rule and subject. Beyond them each person has an
    /// equal share of half as many, for conditions that hold.
    pub(crate) findings: usize,
    /// Violation states, confirmed or not. Each person has an equal share, or room for all
    /// of their violations.
    pub(crate) violations: usize,
    /// Windows that rules look back over: one for each rule and job, or process. Each person
    /// has an equal share, or room for all of their windows.
    pub(crate) lookback_windows: usize,
}

impl EvaluationBounds {
    /// For the admin's own rules: ten thousand processes that each violate two rules, and
    /// that two rules look back over.
    pub(crate) const LIVE: Self = Self {
        findings: 200_000,
        violations: 20_000,
        lookback_windows: 20_000,
    };

    /// For rules that any user may try: within these bounds the result takes some tens of
    /// MiB. A finding has about 250 bytes, a violation with its records up to 30 KiB, and a
    /// lookback window up to 9 KiB.
    pub(crate) const TRIAL: Self = Self {
        findings: 30_000,
        violations: 1_000,
        lookback_windows: 3_000,
    };
}

/// How much exceeded the bounds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Overflow {
    /// Findings that were dropped.
    pub findings: usize,
    /// Violations that were not opened, or were dropped.
    pub violations: usize,
    /// Lookback windows that were not kept.
    pub lookback_windows: usize,
}

impl Overflow {
    /// The sum of all.
    #[must_use]
    pub const fn total(&self) -> usize {
        self.findings
            .saturating_add(self.violations)
            .saturating_add(self.lookback_windows)
    }
}

/// The most places that each person may have so that `bound` places suffice for people with
/// these counts. At least one: with more people than places, some have none.
pub(super) fn fair_share(mut counts: Vec<usize>, bound: usize) -> usize {
    counts.sort_indirect();
    let mut left = bound;
    for (at, count) in counts.iter().enumerate() {
        let share = left / (counts.len() - at);
        if *count > share {
            return share.max(1);
        }
        left -= count;
    }
    usize::MAX
}

#[cfg(test)]
mod tests {
    use super::fair_share;

    #[test]
    fn shares_are_equal() {
        for (counts, bound, share) in [
            (vec![3, 4], 7, usize::MAX),
            (vec![3, 5], 7, 4),
            (vec![100, 1, 100], 9, 4),
            (vec![100, 100, 100], 10, 3),
            (vec![1, 1, 1], 2, 1),
            (Vec::new(), 0, usize::MAX),
        ] {
            assert_eq!(
                fair_share(counts.clone(), bound),
                share,
                "{counts:?}, {bound}"
            );
        }
    }
}
