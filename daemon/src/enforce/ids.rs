//! Names of plans and operations.

use std::hash::{BuildHasher as _, RandomState};

/// Where to begin to count. By chance, so that what a client remembers of an
/// earlier daemon names nothing of this one; far below the end of the numbers.
/// Never 0.
pub(super) fn first() -> u64 {
    (RandomState::new().hash_one(0) >> 16) + 1
}
