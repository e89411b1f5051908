//! Devices that cannot be read, and processes that exist: what the guard knows of the
//! present beside its samples.

use gpukill_proto::collect::IntoMap as _;
use gpukill_proto::collect::IntoSet as _;
use gpukill_proto::model::{BackendState, DeviceId, Loss, LossKind, Snapshot};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// Devices that cannot be read.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceLosses {
    /// Why a device cannot be read.
    lost: BTreeMap<DeviceId, Loss>,
    /// All devices that drivers list. `None` until every driver has reported.
    listed: Option<BTreeSet<DeviceId>>,
}

/// The present facts that the guard has in addition to its samples.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PresentFacts {
    /// The devices that cannot be read.
    pub losses: DeviceLosses,
    /// Every process, by pid and start in ticks.
    pub living: BTreeSet<(u32, u64)>,
}

impl DeviceLosses {
    /// Reads the lost devices from a snapshot.
    #[must_use]
    pub fn from_snapshot(snapshot: &Snapshot) -> Self {
        let devices = || snapshot.devices.iter();
        let lost = devices().filter_map(|it| Some((it.id.clone(), it.lost.clone()?)));
        let has_reported = |state: &BackendState| match state {
            BackendState::Ready | BackendState::Absent(_) => true,
            BackendState::Starting | BackendState::Failed(..) | BackendState::Quiesced(_) => false,
        };
        let have_reported = snapshot.backends.iter().all(|it| has_reported(&it.state));
        let is_whole = have_reported && !snapshot.backends.is_empty();
        let listed = || devices().map(|it| it.id.clone()).into_set();
        Self {
            lost: lost.into_map(),
            listed: is_whole.then(listed),
        }
    }

    /// Whether no driver lists this device any more. A device that was absent when the
    /// daemon started has no row in the snapshot.
    #[must_use]
    pub fn is_gone(&self, id: &DeviceId) -> bool {
        let loss = self.lost.get(id);
        let is_unlisted = |listed: &BTreeSet<DeviceId>| !listed.contains(id);
        loss.is_some_and(|loss| loss.kind == LossKind::Gone)
            || self.listed.as_ref().is_some_and(is_unlisted)
    }

    /// Why rules are not evaluated on a device, in words that follow the device's name.
    #[must_use]
    pub fn reason(&self, id: &DeviceId) -> String {
        match self.lost.get(id) {
            Some(Loss { kind, reason, .. }) => {
                let what = match kind {
                    LossKind::Lost | LossKind::Gone | LossKind::NotPermitted => "is",
                    LossKind::Unknown => "has its",
                };
                format!("{what} {} ({reason})", kind.label())
            }
            None if self.is_gone(id) => "is gone".to_owned(),
            None => "reported nothing".to_owned(),
        }
    }
}
