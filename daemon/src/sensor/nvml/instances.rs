//! The parts of a GPU that is divided (MIG). Their handles become invalid, and
//! are given to others, when somebody divides it anew: they are fetched at each
//! poll.

use super::device::{memory, shown};
use super::processes::{Merged, merged};
use super::raw;
use super::records::ListError;
use super::translate::reading;
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
}

/// What a divided GPU holds.
///
/// # Errors
/// When its parts cannot be listed.
pub(super) fn read(nvml: &Nvml, device: &Device<'_>) -> Result<Instances, NvmlError> {
    let places = match device.mig_device_count() {
        Ok(places) => places.min(MOST),
        // As on the host of virtual GPUs: then the whole tells.
        Err(NvmlError::NotSupported) => 0,
        Err(error) => return Err(error),
    };
    let mut parts = Vec::new();
    let mut processes: Result<Merged, ListError> = Ok(Merged::new());
    for place in 0..places {
        let part = match device.mig_device_by_index(place) {
            Ok(part) => part,
            // The places of parts have holes.
            Err(NvmlError::NotFound | NvmlError::InvalidArg) => continue,
            Err(error) => return Err(error),
        };
        let uuid = part.uuid()?;
        let id = raw::instance_id(nvml, &part)?;
        parts.push(InstanceReadings {
            id,
            uuid: DeviceId(visible(uuid.as_bytes(), super::device::TEXT_MAX)),
            profile: reading(part.name(), |name| shown(profile(&name))),
            memory: memory(nvml, &part),
        });
        let of_part = merged(nvml, &part);
        processes = processes.and_then(|mut all| {
            // Some drivers leave the place out of the records.
            let placed = of_part?.into_iter();
            all.extend(placed.map(|((pid, own), it)| ((pid, own.or(Some(id))), it)));
            Ok(all)
        });
    }
    // Without the right to look into the parts, the whole may tell: it has the
    // same processes, so only one of both is asked.
    if parts.is_empty() || processes.is_err() {
        processes = match (merged(nvml, device), processes) {
            (Ok(of_whole), _) => Ok(of_whole),
            (Err(_), Err(of_parts)) => Err(of_parts),
            (Err(of_whole), Ok(_)) => Err(of_whole),
        };
    }
    Ok(Instances { parts, processes })
}

/// The name of a part is that of its GPU and its profile:
/// `NVIDIA H100 80GB HBM3 MIG 3g.40gb`.
fn profile(name: &str) -> &str {
    name.rsplit_once("MIG ")
        .map_or(name, |(_, profile)| profile)
}

/// The parts of a GPU that could not be listed: no list of its processes is
/// whole.
pub(super) fn unknown(error: NvmlError) -> Instances {
    Instances {
        parts: Vec::new(),
        processes: Err(error.into()),
    }
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
