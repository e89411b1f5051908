//! Devices that cannot be read, as a snapshot tells of them: what the guard knows of now
//! besides its samples.

use gpukill_proto::snapshot::{BackendState, DeviceId, Loss, LossKind, Snapshot};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// What is lost.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Losses {
    /// Why devices cannot be read.
    lost: BTreeMap<DeviceId, Loss>,
    /// Every device that there is; `None` while a driver does not tell.
    listed: Option<BTreeSet<DeviceId>>,
}

/// What the guard knows of now besides its samples.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Present {
    /// The devices that cannot be read.
    pub losses: Losses,
    /// Every process, by pid and start in ticks.
    pub living: BTreeSet<(u32, u64)>,
}

impl Losses {
    /// What is lost by this snapshot.
    #[must_use]
    pub fn of(snapshot: &Snapshot) -> Self {
        let devices = || snapshot.devices.iter();
        let lost = devices().filter_map(|it| Some((it.id.clone(), it.lost.clone()?)));
        let is_told = |state: &BackendState| match state {
            BackendState::Ready | BackendState::Absent(_) => true,
            BackendState::Starting | BackendState::Failed(..) | BackendState::Quiesced(_) => false,
        };
        let are_told = snapshot.backends.iter().all(|it| is_told(&it.state));
        let is_whole = are_told && !snapshot.backends.is_empty();
        let listed = || devices().map(|it| it.id.clone()).collect();
        Self {
            lost: lost.collect(),
            listed: is_whole.then(listed),
        }
    }

    /// Whether no driver lists this device any more. One that was away before the daemon was
    /// started has no row.
    #[must_use]
    pub fn is_gone(&self, id: &DeviceId) -> bool {
        let loss = self.lost.get(id);
        let is_unlisted = |listed: &BTreeSet<DeviceId>| !listed.contains(id);
        loss.is_some_and(|loss| loss.kind == LossKind::Gone)
            || self.listed.as_ref().is_some_and(is_unlisted)
    }

    /// Why nothing is judged on a device, in words that follow its name.
    #[must_use]
    pub fn why(&self, id: &DeviceId) -> String {
        match self.lost.get(id) {
            Some(Loss { kind, reason, .. }) => {
                let what = match kind {
                    LossKind::Lost | LossKind::Gone | LossKind::NotPermitted => "is",
                    LossKind::Unknown => "has its",
                };
                format!("{what} {} ({reason})", kind.words())
            }
            None if self.is_gone(id) => "is gone".to_owned(),
            None => "told nothing".to_owned(),
        }
    }
}
