//! Returns free memory to the system.
//!
//! glibc keeps freed memory that lies below memory still in use: after 12,000 short processes it
//! kept more than the daemon held. This module contains unsafe code, as few places of this program
//! do: none of our crates wraps `malloc_trim(3)` and `mallopt(3)`.

use std::time::Duration;

/// Fewer ended processes leave too little memory to be worth a search.
const MIN_ENDED_PROCESSES: usize = 64;

/// How long the other threads have to forget the ended processes too. The search of a heap of 20 MB
/// with many holes takes 4 to 11 ms (measured with glibc 2.36 under load).
const TRIM_DELAY: Duration = Duration::from_secs(5);

/// Decides when there is enough memory to return.
#[derive(Debug, Default)]
pub(crate) struct TrimSchedule {
    ended: usize,
    /// When to trim, by the monotonic clock.
    due: Option<Duration>,
}

impl TrimSchedule {
    /// Counts more ended processes, and returns whether to trim now.
    pub(crate) fn is_due(&mut self, gone: usize, now: Duration) -> bool {
        self.ended = self.ended.saturating_add(gone);
        if self.ended >= MIN_ENDED_PROCESSES {
            self.due.get_or_insert(now.saturating_add(TRIM_DELAY));
        }
        let is_due = self.due.is_some_and(|due| now >= due);
        if is_due {
            *self = Self::default();
        }
        is_due
    }
}

/// Returns unused memory to the system. Other threads wait at most for their part of the search
/// when they allocate.
#[cfg(target_env = "gnu")]
#[allow(unsafe_code, reason = "no crate of ours wraps this call")]
pub(crate) fn return_free_memory() {
    // SAFETY: any thread may call it at any time; it takes no pointer, and touches only pages in
    // which nothing is allocated.
    unsafe { libc::malloc_trim(0) };
}

/// Other C libraries return memory by themselves.
#[cfg(not(target_env = "gnu"))]
pub(crate) const fn return_free_memory() {}

/// The maximum number of heap arenas. glibc gives each thread one, up to eight for each core, and
/// keeps free memory in each; few threads of this program allocate at the same time.
#[cfg(target_env = "gnu")]
const MAX_ARENAS: i32 = 2;

/// Makes all threads share few arenas. Called at the start, while there is one thread.
#[cfg(target_env = "gnu")]
#[allow(unsafe_code, reason = "no crate of ours wraps this call")]
pub(crate) fn limit_arenas() {
    // SAFETY: it takes two numbers, and only changes where later allocations are made.
    unsafe { libc::mallopt(libc::M_ARENA_MAX, MAX_ARENAS) };
}

/// Other C libraries have one arena.
#[cfg(not(target_env = "gnu"))]
pub(crate) const fn limit_arenas() {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn due_once_and_after_the_delay() {
        let mut trim = TrimSchedule::default();
        let mut is_due = |gone, second| trim.is_due(gone, Duration::from_secs(second));
        assert!(!is_due(MIN_ENDED_PROCESSES - 1, 0));
        assert!(!is_due(0, 1_000));
        assert!(!is_due(1, 1_001));
        assert!(!is_due(12_000, 1_005));
        assert!(is_due(0, 1_006));
        assert!(!is_due(0, 1_007));
        assert!(!is_due(MIN_ENDED_PROCESSES, 1_007));
        assert!(is_due(MIN_ENDED_PROCESSES, 1_012));
        assert!(!is_due(0, 2_000));
    }
}
