//! The call that drops devices that are gone.

use super::Session;
use crate::log_events::event;
use crate::store::RecordedEvent as Recorded;
use gpukill_policy::access::Operation;
use gpukill_policy::select::{DeviceName, select_devices};
use gpukill_proto::holders::DeviceLabel;
use gpukill_proto::model::{Device, DeviceId, Snapshot};
use gpukill_proto::refusal::Refusal;
use std::collections::BTreeSet;
use std::sync::Arc;

impl Session {
    /// Drops the rows of the devices that `gpu` selects.
    pub(crate) async fn forget_devices(&self, gpu: &str) -> Result<Vec<DeviceLabel>, Refusal> {
        let admins = self.shared.authority.admin_group_name();
        self.require_right(
            Operation::ForgetDevices,
            "drop a GPU from the list",
            &admins,
        )?;
        let snapshot = Arc::clone(&self.shared.state.borrow().snapshot);
        let gone = resolve_gone_devices(gpu, &snapshot)?;
        let uid = self.caller.uid;
        for device in &gone {
            let gpu = device.index;
            event!(GpuForgotten, gpu, gpu_uuid = device.id.0, caller_uid = uid);
            self.record(Recorded::Forgotten(uid, device.id.clone()))
                .await;
        }
        let ids: Vec<DeviceId> = gone.iter().map(|device| device.id.clone()).collect();
        (self.shared.forget)(ids);
        Ok(gone)
    }
}

/// A typed number that several of the chosen devices have: one took the index of another.
fn ambiguous_index(typed: &str, chosen: &[&Device]) -> Option<u32> {
    let is_number = |part: &str| part.starts_with(|first: char| first.is_ascii_digit());
    let by_number = typed.split(',').map(str::trim);
    let by_number = by_number
        .filter(|part| is_number(part) && !part.contains(':'))
        .filter_map(|part| {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            Some(first.trim().parse::<u32>().ok()?..=last.trim().parse::<u32>().ok()?)
        });
    let mut ranges = by_number;
    ranges.find_map(|range| {
        let mut indices = BTreeSet::new();
        let of_range = chosen.iter().filter(|device| range.contains(&device.index));
        let mut repeated = of_range.filter(|device| !indices.insert(device.index));
        repeated.next().map(|device| device.index)
    })
}

/// The devices that `typed` selects, if all of them are gone.
fn resolve_gone_devices(typed: &str, snapshot: &Snapshot) -> Result<Vec<DeviceLabel>, Refusal> {
    let all = &snapshot.devices;
    let names: Vec<DeviceName<'_>> = all.iter().map(DeviceName::from).collect();
    let chosen = select_devices(typed, &names)?;
    let chosen: Vec<&Device> = chosen.iter().filter_map(|it| all.get(*it)).collect();
    if let Some(index) = ambiguous_index(typed, &chosen) {
        let same = chosen.iter().filter(|device| device.index == index);
        let ids: Vec<&str> = same.map(|device| device.id.0.as_str()).collect();
        let ids = ids.join(", ");
        return Err(Refusal::Invalid(format!(
            "several GPUs have the number {index}: name one by its UUID: {ids}"
        )));
    }
    chosen
        .into_iter()
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
