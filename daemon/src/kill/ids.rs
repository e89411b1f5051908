//! Ids of plans and operations.

use std::hash::{BuildHasher as _, RandomState};

/// The first id. It is random, so that an id that a client remembers from an earlier daemon names
/// nothing in this one. It is far below the end of the range, and never 0.
pub(super) fn first_id() -> u64 {
    (RandomState::new().hash_one(0) >> 16) + 1
}
