//! Gives memory that is free back to the system.
//!
//! glibc keeps what was freed below something that is still in use: after 12,000 short
//! processes that was more than what the daemon held. One of the few places of this program
//! with unsafe code: no crate of ours wraps `malloc_trim(3)` and
//! `mallopt(3)`.

use std::time::Duration;

/// Fewer processes that are gone leave nothing that is worth a search.
const WORTH_IT: usize = 64;

/// So long the other threads have to forget them too. The search of a heap of 20 MB
/// with many holes takes 4 to 11 ms (measured with glibc 2.36 beside other work).
const DELAY: Duration = Duration::from_secs(5);

/// Knows when there is much to give back.
#[derive(Debug, Default)]
pub(crate) struct Trim {
    gone: usize,
    /// When it is done, by a clock that never jumps.
    due: Option<Duration>,
}

impl Trim {
    /// So many more processes are gone. Whether it is time.
    pub(crate) fn is_due(&mut self, gone: usize, now: Duration) -> bool {
        self.gone = self.gone.saturating_add(gone);
        if self.gone >= WORTH_IT {
            self.due.get_or_insert(now.saturating_add(DELAY));
        }
        let is_due = self.due.is_some_and(|due| now >= due);
        if is_due {
            *self = Self::default();
        }
        is_due
    }
}

/// Gives back what no thread uses. Each waits for its part of the search at most, when it
/// allocates.
#[cfg(target_env = "gnu")]
#[allow(unsafe_code, reason = "no crate of ours wraps this call")]
pub(crate) fn give_back() {
    // SAFETY: it may be called by any thread at any time, takes no pointer, and touches
    // only pages in which nothing is allocated.
    unsafe { libc::malloc_trim(0) };
}

/// Other C libraries do it themselves.
#[cfg(not(target_env = "gnu"))]
pub(crate) const fn give_back() {}

/// So many parts a heap has at most. glibc gives each thread one, up to eight for each
/// core, and keeps what is free in each; few threads of this program allocate at once.
#[cfg(target_env = "gnu")]
const MOST_ARENAS: i32 = 2;

/// Has all threads share few parts of the heap. For the start, while there is one thread.
#[cfg(target_env = "gnu")]
#[allow(unsafe_code, reason = "no crate of ours wraps this call")]
pub(crate) fn share() {
    // SAFETY: it takes two numbers, and changes only how later allocations choose.
    unsafe { libc::mallopt(libc::M_ARENA_MAX, MOST_ARENAS) };
}

/// Other C libraries have one.
#[cfg(not(target_env = "gnu"))]
pub(crate) const fn share() {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_that_are_gone_make_it_due_once_and_a_little_later() {
        let mut trim = Trim::default();
        let mut is_due = |gone, second| trim.is_due(gone, Duration::from_secs(second));
        assert!(!is_due(WORTH_IT - 1, 0));
        assert!(!is_due(0, 1_000));
        assert!(!is_due(1, 1_001));
        assert!(!is_due(12_000, 1_005));
        assert!(is_due(0, 1_006));
        assert!(!is_due(0, 1_007));
        assert!(!is_due(WORTH_IT, 1_007));
        assert!(is_due(WORTH_IT, 1_012));
        assert!(!is_due(0, 2_000));
    }
}
