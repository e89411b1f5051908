//! How much is kept of one bucket, and from it to the next: rules multiply with
//! processes.

/// The most that is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Bounds {
    /// What is found in one bucket: of each rule and subject one thing.
    pub(crate) findings: usize,
    /// Violations, and what may become one.
    pub(crate) violations: usize,
    /// Stretches of the past that rules look back over: of each rule and job, or
    /// process.
    pub(crate) looked_back: usize,
}

impl Bounds {
    /// For an admin's own rules: ten thousand processes that each break two of them,
    /// and that two rules look back over.
    pub(crate) const LIVE: Self = Self {
        findings: 200_000,
        violations: 20_000,
        looked_back: 20_000,
    };

    /// For rules that anybody may try: what comes of these is some tens of MiB. A
    /// finding has about 250 bytes, a violation with its records up to 30 KiB, and a
    /// stretch of the past up to 9 KiB.
    pub(crate) const TRIED: Self = Self {
        findings: 30_000,
        violations: 1_000,
        looked_back: 3_000,
    };
}

/// What there was no room for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Beyond {
    /// So many things that were found.
    pub findings: usize,
    /// So many violations that were not opened.
    pub violations: usize,
    /// So many stretches of the past.
    pub looked_back: usize,
}

impl Beyond {
    /// How much in all.
    #[must_use]
    pub const fn total(&self) -> usize {
        self.findings
            .saturating_add(self.violations)
            .saturating_add(self.looked_back)
    }
}
