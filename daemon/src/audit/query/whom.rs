//! By whom, and to which devices: what a question about the record comes to. The
//! record has neither the names of users nor the indices of devices.

use gpukill_proto::refusal::Refusal;
use std::collections::BTreeSet;

/// Who asked for it, and what it happened to; `None` for whoever and whatever.
#[derive(Debug, Clone, Default)]
pub(crate) struct Whom {
    pub(crate) uids: Option<BTreeSet<u32>>,
    pub(crate) devices: Option<Chosen>,
}

/// Devices that a selector names.
#[derive(Debug, Clone)]
pub(crate) enum Chosen {
    /// These, by their ids.
    These(Vec<String>),
    /// None of those that are there now: what was typed is the whole id of one that
    /// was, or else a mistake, which is this.
    Gone(String, Refusal),
}

impl Chosen {
    /// The ids.
    pub(super) fn ids(&self) -> &[String] {
        match self {
            Self::These(ids) => ids,
            Self::Gone(id, _) => std::slice::from_ref(id),
        }
    }
}
