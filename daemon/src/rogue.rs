//! Who may be up to no good on a GPU: what the daemon knows of that.

pub(crate) mod rules;

use crate::audit::Store;
use rules::{InForce, Keeper};
use std::path::PathBuf;
use std::sync::Arc;

/// The near side. Clones share it.
#[derive(Clone)]
pub(crate) struct Rogue {
    pub(crate) keeper: Arc<Keeper>,
}

impl Rogue {
    /// Starts it by the rules of this file.
    pub(crate) fn start(rules: PathBuf, store: Store) -> Self {
        Self {
            keeper: Arc::new(Keeper::start(rules, store)),
        }
    }

    /// The rules in force.
    pub(crate) fn in_force(&self) -> InForce {
        self.keeper.subscribe().borrow().clone()
    }

    /// What is wrong with it, in words for faults.
    pub(crate) fn faults(&self) -> Vec<String> {
        self.keeper.fault().into_iter().collect()
    }
}
