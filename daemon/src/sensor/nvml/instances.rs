//! Reads the instances of a divided GPU (MIG). A new division makes their handles invalid and may
//! assign them to other instances, so they are fetched at each poll.

use super::codes::{ErrorClass, error_class, explain};
use super::device::{printable, read_memory};
use super::processes::{MergedProcesses, read_merged};
use super::ranges::to_reading;
use super::raw;
use super::records::ListError;
use crate::backend::InstanceReadings;
use gpukill_proto::model::DeviceId;
use gpukill_proto::reading::Reading;
use gpukill_proto::text::sanitize;
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::{Device, Nvml};

/// No GPU has more instances; a greater count is capped.
const MAX_INSTANCES: u32 = 64;

/// The instances of a GPU, and the processes on all of them.
pub(super) struct GpuInstances {
    pub(super) instances: Vec<InstanceReadings>,
    pub(super) processes: Result<MergedProcesses, ListError>,
    /// Why not all instances could be listed.
    pub(super) fault: Option<String>,
}

/// A GPU that is not divided.
pub(super) fn read_undivided(nvml: &Nvml, device: &Device<'_>) -> GpuInstances {
    GpuInstances {
        instances: Vec::new(),
        processes: read_merged(nvml, device),
        fault: None,
    }
}

/// The instances and processes of a divided GPU. `unified`: it shares the host's memory.
pub(super) fn read_divided(nvml: &Nvml, device: &Device<'_>, unified: bool) -> GpuInstances {
    let mut parts = Vec::new();
    let mut processes = Ok(MergedProcesses::new());
    let mut fault = None;
    for position in 0..count_positions(device, &mut fault) {
        match read_instance(nvml, device, position, unified) {
            Ok(Some((part, of_part))) => {
                processes = processes.and_then(|mut all: MergedProcesses| {
                    // Some drivers omit the instance from the records.
                    let placed = of_part?.into_iter();
                    all.extend(placed.map(|((pid, own), it)| ((pid, own.or(Some(part.id))), it)));
                    Ok(all)
                });
                parts.push(part);
            }
            Ok(None) => {}
            Err(error) => {
                fault.get_or_insert_with(|| explain(&error));
                processes = processes.and(Err(error.into()));
            }
        }
    }
    // The list of the whole GPU has the same processes: it replaces the list of an instance that
    // failed. The two are never mixed. It is read only then, because a list may need a right that the
    // other does not.
    if parts.is_empty() || processes.is_err() {
        processes = match (read_merged(nvml, device), processes) {
            (Ok(of_whole), _) => Ok(of_whole),
            (Err(_), Err(of_parts)) => Err(of_parts),
            (Err(of_whole), Ok(_)) => Err(of_whole),
        };
    }
    GpuInstances {
        instances: parts,
        processes,
        fault,
    }
}

/// The number of possible instance positions.
fn count_positions(device: &Device<'_>, fault: &mut Option<String>) -> u32 {
    match device.mig_device_count() {
        Ok(count) => count.min(MAX_INSTANCES),
        // As on the host of virtual GPUs.
        Err(error) if error_class(&error) == ErrorClass::Unsupported => 0,
        Err(error) => {
            *fault = Some(explain(&error));
            0
        }
    }
}

type InstanceWithProcesses = (InstanceReadings, Result<MergedProcesses, ListError>);

/// The instance at a position, with its processes; `None` if the position is empty.
fn read_instance(
    nvml: &Nvml,
    device: &Device<'_>,
    position: u32,
    unified: bool,
) -> Result<Option<InstanceWithProcesses>, NvmlError> {
    let part = match device.mig_device_by_index(position) {
        Ok(part) => part,
        // Positions may be empty.
        Err(NvmlError::NotFound | NvmlError::InvalidArg) => return Ok(None),
        Err(error) => return Err(error),
    };
    let uuid = part.uuid()?;
    let readings = InstanceReadings {
        id: raw::instance_id(nvml, &part)?,
        uuid: DeviceId(sanitize(uuid.as_bytes(), super::device::TEXT_MAX)),
        profile: to_reading(part.name(), |name| printable(instance_profile(&name))),
        memory: read_memory(nvml, &part, unified).0,
    };
    Ok(Some((readings, read_merged(nvml, &part))))
}

/// The name of an instance is the name of its GPU and its profile: `NVIDIA H100 80GB HBM3 MIG
/// 3g.40gb`.
fn instance_profile(name: &str) -> &str {
    name.rsplit_once("MIG ")
        .map_or(name, |(_, profile)| profile)
}

pub(super) fn is_divided(mig: &Reading<bool>) -> bool {
    mig.known() == Some(&true)
}

#[cfg(test)]
mod tests {
    #[test]
    fn instance_name_is_the_profile() {
        assert_eq!(
            super::instance_profile("NVIDIA H100 80GB HBM3 MIG 3g.40gb"),
            "3g.40gb"
        );
        assert_eq!(super::instance_profile("1g.10gb"), "1g.10gb");
    }
}
