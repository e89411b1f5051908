//! Bounds on what one sample produces and what the state keeps: rules multiply with
//! processes.

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct EvaluationBounds {
    /// Findings of one sample: one for each rule and subject.
    pub(crate) findings: usize,
    /// Violation states, confirmed or not.
    pub(crate) violations: usize,
    /// Windows that rules look back over: one for each rule and job, or process.
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
    /// Violations that were not opened.
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
