//! Does a device answer after its reset?

use gpukill_proto::snapshot::{BackendState, Device, DeviceId, RecoveryAction, Snapshot, Vendor};

/// How a device stands by a snapshot that was begun after its reset.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Standing {
    /// It answers, and its driver advises nothing.
    Well,
    /// It answers, and its driver still advises this.
    Advised(String),
    /// Its driver is asked, and cannot reach it; says how.
    Silent(String),
    /// Nothing was read of it since; says why.
    Unread(String),
}

/// How this device stands.
#[must_use]
pub fn standing(id: &DeviceId, vendor: Vendor, snapshot: &Snapshot) -> Standing {
    let mut backends = snapshot.backends.iter();
    let backend = backends.find(|backend| backend.name == vendor.name());
    match backend.map(|backend| &backend.state) {
        Some(BackendState::Ready) => {}
        Some(BackendState::Quiesced(_)) => {
            return Standing::Unread("gpukilld was asked to let go of the driver".into());
        }
        Some(BackendState::Starting) | None => {
            return Standing::Unread("the driver was not asked yet".into());
        }
        Some(BackendState::Absent(why) | BackendState::Failed(_, why)) => {
            return Standing::Silent(why.clone());
        }
    }
    let mut devices = snapshot.devices.iter();
    match devices.find(|device| device.id == *id) {
        Some(device) => of_device(device),
        None => Standing::Silent("its driver does not list it any more".into()),
    }
}

fn of_device(device: &Device) -> Standing {
    if let Some(loss) = &device.lost {
        return Standing::Silent(loss.reason.clone());
    }
    if device.memory_used.known().is_none() || !device.vitals.is_any_known() {
        return match device.memory_used.failure() {
            Some(why) => Standing::Silent(why.to_owned()),
            None => Standing::Unread("no reading of it is fresh".into()),
        };
    }
    match device.vitals.recovery_action.known() {
        None | Some(RecoveryAction::None) => Standing::Well,
        Some(action) => Standing::Advised(action.to_string()),
    }
}
