//! The call that drops devices which are gone.

use super::Session;
use crate::audit::Event as Recorded;
use crate::catalogue::tell;
use gpukill_policy::access::Operation;
use gpukill_policy::select::{DeviceName, devices};
use gpukill_proto::holders::DeviceLabel;
use gpukill_proto::refusal::Refusal;
use gpukill_proto::snapshot::{DeviceId, Snapshot};
use std::sync::Arc;

impl Session {
    /// Drops the rows of the devices that are called so.
    pub(super) async fn forget(&self, gpu: &str) -> Result<Vec<DeviceLabel>, Refusal> {
        let admins = self.shared.authority.admins();
        self.may(
            Operation::ForgetDevices,
            "drop a GPU from the list",
            &admins,
        )?;
        let snapshot = Arc::clone(&self.shared.state.borrow().snapshot);
        let gone = chosen(gpu, &snapshot)?;
        let uid = self.caller.uid;
        for device in &gone {
            let gpu = device.index;
            tell!(GpuForgotten, gpu, gpu_uuid = device.id.0, caller_uid = uid);
            self.record(Recorded::Forgotten(uid, device.id.clone()))
                .await;
        }
        let ids: Vec<DeviceId> = gone.iter().map(|device| device.id.clone()).collect();
        (self.shared.forget)(ids);
        Ok(gone)
    }
}

/// The devices that are called so, if all of them are gone.
fn chosen(typed: &str, snapshot: &Snapshot) -> Result<Vec<DeviceLabel>, Refusal> {
    let all = &snapshot.devices;
    let names: Vec<DeviceName<'_>> = all.iter().map(DeviceName::from).collect();
    let chosen = devices(typed, &names).map_err(|error| Refusal::Invalid(error.to_string()))?;
    let chosen = chosen.iter().filter_map(|position| all.get(*position));
    chosen
        .map(|device| match device.is_gone() {
            true => Ok(DeviceLabel {
                id: device.id.clone(),
                index: device.index,
                name: device.name.clone(),
            }),
            false => Err(Refusal::Invalid(format!(
                "GPU {} is not gone: its driver lists it",
                device.index
            ))),
        })
        .collect()
}
