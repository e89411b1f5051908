//! The parts of a GPU that is divided (MIG). Their handles become invalid, and
//! are given to others, when somebody divides it anew: they are fetched at each
//! poll.

use super::codes::{Class, class, explain};
use super::device::{memory, shown};
use super::plausible::reading;
use super::processes::{Merged, merged};
use super::raw;
use super::records::ListError;
use crate::backend::InstanceReadings;
use gpukill_proto::reading::Reading;
use gpukill_proto::snapshot::DeviceId;
use gpukill_proto::text::visible;
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::{Device, Nvml};

/// More parts than any GPU has; a driver that says so is not believed.
const MOST: u32 = 64;

/// The parts of a GPU, and the processes on all of them.
pub(super) struct Instances {
    pub(super) parts: Vec<InstanceReadings>,
    pub(super) processes: Result<Merged, ListError>,
    /// Why not all parts could be listed.
    pub(super) fault: Option<String>,
}

/// A GPU that is not divided.
pub(super) fn whole(nvml: &Nvml, device: &Device<'_>) -> Instances {
    Instances {
        parts: Vec::new(),
        processes: merged(nvml, device),
        fault: None,
    }
}

/// What a divided GPU holds. `unified`: it shares the host's memory.
pub(super) fn read(nvml: &Nvml, device: &Device<'_>, unified: bool) -> Instances {
    let mut parts = Vec::new();
    let mut processes = Ok(Merged::new());
    let mut fault = None;
    for place in 0..places(device, &mut fault) {
        match part(nvml, device, place, unified) {
            Ok(Some((part, of_part))) => {
                processes = processes.and_then(|mut all: Merged| {
                    // Some drivers leave the place out of the records.
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
    // The list of the whole has the same processes: it tells where a part does not. Only one of
    // both is asked, for a list may need a right that the other does not.
    if parts.is_empty() || processes.is_err() {
        processes = match (merged(nvml, device), processes) {
            (Ok(of_whole), _) => Ok(of_whole),
            (Err(_), Err(of_parts)) => Err(of_parts),
            (Err(of_whole), Ok(_)) => Err(of_whole),
        };
    }
    Instances {
        parts,
        processes,
        fault,
    }
}

/// How many places for parts there are.
fn places(device: &Device<'_>, fault: &mut Option<String>) -> u32 {
    match device.mig_device_count() {
        Ok(places) => places.min(MOST),
        // As on the host of virtual GPUs.
        Err(error) if class(&error) == Class::Unsupported => 0,
        Err(error) => {
            *fault = Some(explain(&error));
            0
        }
    }
}

type Part = (InstanceReadings, Result<Merged, ListError>);

/// The part at a place, with its processes; `None` where there is none.
fn part(
    nvml: &Nvml,
    device: &Device<'_>,
    place: u32,
    unified: bool,
) -> Result<Option<Part>, NvmlError> {
    let part = match device.mig_device_by_index(place) {
        Ok(part) => part,
        // The places of parts have holes.
        Err(NvmlError::NotFound | NvmlError::InvalidArg) => return Ok(None),
        Err(error) => return Err(error),
    };
    let uuid = part.uuid()?;
    let readings = InstanceReadings {
        id: raw::instance_id(nvml, &part)?,
        uuid: DeviceId(visible(uuid.as_bytes(), super::device::TEXT_MAX)),
        profile: reading(part.name(), |name| shown(profile(&name))),
        memory: memory(nvml, &part, unified).0,
    };
    Ok(Some((readings, merged(nvml, &part))))
}

/// The name of a part is that of its GPU and its profile:
/// `NVIDIA H100 80GB HBM3 MIG 3g.40gb`.
fn profile(name: &str) -> &str {
    name.rsplit_once("MIG ")
        .map_or(name, |(_, profile)| profile)
}

/// Whether a GPU is divided.
pub(super) fn is_divided(mig: &Reading<bool>) -> bool {
    mig.known() == Some(&true)
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_part_is_called_by_its_profile() {
        assert_eq!(
            super::profile("NVIDIA H100 80GB HBM3 MIG 3g.40gb"),
            "3g.40gb"
        );
        assert_eq!(super::profile("1g.10gb"), "1g.10gb");
    }
}
