//! The call that drops devices which are gone.

use super::Session;
use crate::audit::Event as Recorded;
use crate::catalogue::tell;
use gpukill_policy::access::Operation;
use gpukill_policy::select::{DeviceName, devices};
use gpukill_proto::holders::DeviceLabel;
use gpukill_proto::refusal::Refusal;
use gpukill_proto::snapshot::{Device, DeviceId, Snapshot};
use std::collections::BTreeSet;
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

/// A number that is typed and that several of these have: one took another's place.
fn doubtful(typed: &str, chosen: &[&Device]) -> Option<u32> {
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
        let mut seen = BTreeSet::new();
        let of_range = chosen.iter().filter(|device| range.contains(&device.index));
        let mut again = of_range.filter(|device| !seen.insert(device.index));
        again.next().map(|device| device.index)
    })
}

/// The devices that are called so, if all of them are gone.
fn chosen(typed: &str, snapshot: &Snapshot) -> Result<Vec<DeviceLabel>, Refusal> {
    let all = &snapshot.devices;
    let names: Vec<DeviceName<'_>> = all.iter().map(DeviceName::from).collect();
    let chosen = devices(typed, &names).map_err(|error| Refusal::Invalid(error.to_string()))?;
    let chosen: Vec<&Device> = chosen.iter().filter_map(|it| all.get(*it)).collect();
    if let Some(index) = doubtful(typed, &chosen) {
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
