//! Callers, and what each of them has a share of, so that none keeps the others waiting.

use crate::connections::Peer;
use crate::tokens::TokenDigest;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// A caller, as far as shares are concerned.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Requester {
    /// The owner of a valid token.
    Token(TokenDigest),
    /// A caller without one.
    Peer(Peer),
}

/// The share of each caller. It is kept while something of it is in use.
pub(crate) struct Shares<T>(Mutex<BTreeMap<Requester, Weak<T>>>);

impl<T> Default for Shares<T> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<T> Shares<T> {
    /// The share of a caller, which is made if nothing of it is in use.
    pub(crate) fn of(&self, requester: Requester, make: impl FnOnce() -> Arc<T>) -> Arc<T> {
        let mut shares = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        shares.retain(|_, share| share.strong_count() > 0);
        if let Some(share) = shares.get(&requester).and_then(Weak::upgrade) {
            return share;
        }
        let share = make();
        shares.insert(requester, Arc::downgrade(&share));
        share
    }

    /// The number of kept shares.
    #[cfg(test)]
    pub(crate) fn count(&self) -> usize {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).len()
    }
}
