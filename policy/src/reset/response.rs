//! Decides whether a device responds after its reset.

use gpukill_proto::model::{BackendState, Device, DeviceId, RecoveryAction, Snapshot, Vendor};

/// The state of a device, by a snapshot that was begun after its reset.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ResetResponse {
    /// The device responds, and its driver recommends nothing.
    Healthy,
    /// The device responds, and its driver still recommends this action.
    Advised(String),
    /// The driver cannot reach the device; with the error.
    Unreachable(String),
    /// The device was not read since the reset; with the reason.
    NotRead(String),
}

/// Returns the state of this device.
#[must_use]
pub fn check_response(id: &DeviceId, vendor: Vendor, snapshot: &Snapshot) -> ResetResponse {
    let mut backends = snapshot.backends.iter();
    let backend = backends.find(|backend| backend.name == vendor.name());
    match backend.map(|backend| &backend.state) {
        Some(BackendState::Ready) => {}
        Some(BackendState::Quiesced(_)) => {
            return ResetResponse::NotRead("gpukilld was asked to release the driver".into());
        }
        Some(BackendState::Starting) | None => {
            return ResetResponse::NotRead("the driver was not read yet".into());
        }
        Some(BackendState::Absent(why) | BackendState::Failed(_, why)) => {
            return ResetResponse::Unreachable(why.clone());
        }
    }
    let mut devices = snapshot.devices.iter();
    match devices.find(|device| device.id == *id) {
        Some(device) => check_device(device),
        None => ResetResponse::Unreachable("its driver no longer lists it".into()),
    }
}

fn check_device(device: &Device) -> ResetResponse {
    if let Some(loss) = &device.lost {
        return ResetResponse::Unreachable(loss.reason.clone());
    }
    if device.memory_used.known().is_none() || !device.vitals.is_any_known() {
        return match device.memory_used.failure() {
            Some(why) => ResetResponse::Unreachable(why.to_owned()),
            None => ResetResponse::NotRead("it has no fresh reading".into()),
        };
    }
    match device.vitals.recovery_action.known() {
        None | Some(RecoveryAction::None) => ResetResponse::Healthy,
        Some(action) => ResetResponse::Advised(action.to_string()),
    }
}
