//! A query for actions, with users and devices resolved to ids: the record has neither user names
//! nor GPU indexes.

use gpukill_proto::refusal::Refusal;
use std::collections::BTreeSet;

/// The users who acted and the devices that were affected; `None` for all.
#[derive(Debug, Clone, Default)]
pub(crate) struct ActionFilter {
    pub(crate) uids: Option<BTreeSet<u32>>,
    pub(crate) devices: Option<SelectedDevices>,
}

/// The devices that a selector names.
#[derive(Debug, Clone)]
pub(crate) enum SelectedDevices {
    /// Present devices, by id.
    Present(Vec<String>),
    /// No present device: the text is the full id of a former device, or else an error, which is
    /// the second field.
    Gone(String, Refusal),
}

impl SelectedDevices {
    pub(super) fn ids(&self) -> &[String] {
        match self {
            Self::Present(ids) => ids,
            Self::Gone(id, _) => std::slice::from_ref(id),
        }
    }
}
