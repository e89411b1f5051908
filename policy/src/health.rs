//! Problems that a working device reports about itself and that an admin should act on; the
//! meaning of NVIDIA's XIDs.

use gpukill_proto::model::{Device, FaultCode, RecoveryAction};
use gpukill_proto::reading::Reading;
use gpukill_proto::units::Timestamp;
use std::time::Duration;

/// The problems of a device, each with its code. The text stays the same while a problem lasts.
#[must_use]
pub fn device_problems(device: &Device) -> Vec<(FaultCode, String)> {
    let vitals = &device.vitals;
    let mut all = Vec::new();
    if let Reading::Value(action) = &vitals.recovery_action {
        all.extend(recovery_advice(*action));
    }
    if let Reading::Value(rows) = &vitals.remapped_rows {
        if rows.failed {
            let what = "broken memory rows could not be replaced: exchange the GPU";
            all.push((FaultCode::RowRemapFailed, what.to_owned()));
        }
        if rows.pending {
            let what = "broken memory rows wait to be replaced: reset the GPU";
            all.push((FaultCode::RowRemapPending, what.to_owned()));
        }
    }
    if let Reading::Value(pages) = &vitals.retired_pages
        && pages.pending
    {
        let what = "broken memory pages wait to be retired: reset the GPU";
        all.push((FaultCode::PageRetirementPending, what.to_owned()));
    }
    all
}

fn recovery_advice(action: RecoveryAction) -> Option<(FaultCode, String)> {
    let (code, what) = match action {
        RecoveryAction::None => return None,
        RecoveryAction::Reset => (
            FaultCode::ResetAdvised,
            "the driver advises to reset the GPU",
        ),
        RecoveryAction::Reboot => (
            FaultCode::RebootAdvised,
            "the driver advises to reboot the host",
        ),
        RecoveryAction::DrainPeers => (
            FaultCode::DrainPeersAdvised,
            "the driver advises to drain its NVLink peers",
        ),
        RecoveryAction::DrainAndReset => (
            FaultCode::DrainAndResetAdvised,
            "the driver advises to drain and reset the GPU",
        ),
        RecoveryAction::RecoverImex => (
            FaultCode::ImexRecoveryAdvised,
            "the driver advises to recover the IMEX domain",
        ),
        RecoveryAction::Other(number) => {
            let what = format!(
                "the driver advises a recovery action that gpukill does not know ({number})"
            );
            return Some((FaultCode::UnknownActionAdvised, what));
        }
    };
    Some((code, what.to_owned()))
}

/// Describes an XID, an error number of NVIDIA, as its driver documents it.
#[must_use]
pub const fn xid_meaning(code: u64) -> &'static str {
    match code {
        13 => "a program made an illegal access or instruction",
        31 => "a program touched memory that is not its own",
        43 => "a program's work was stopped after its fault",
        45 => "a program ended with work on the GPU",
        48 => "a memory error that could not be corrected",
        62 => "an internal error of the GPU's controller",
        63 => "a broken memory row or page was recorded for replacement",
        64 => "a broken memory row or page could not be recorded",
        74 => "an NVLink error",
        79 => "the GPU has fallen off the bus",
        92 => "many corrected memory errors",
        94 => "a memory error was contained: the program that had it ended",
        95 => "a memory error was not contained: the GPU needs a reset",
        119 | 120 => "the GPU's system processor does not answer",
        _ => "see NVIDIA's list of XIDs",
    }
}

/// The last XID of a device and its time, if it is recent and no program is at fault.
#[must_use]
pub fn recent_xid(device: &Device, now: Timestamp) -> Option<(u64, Timestamp)> {
    /// An older one was seen or is harmless; the timeline has it.
    const MAX_AGE: Duration = Duration::from_secs(24 * 60 * 60);
    let event = device.last_xid.as_ref()?;
    let code = event.kind.xid()?;
    let is_recent = now.since(event.at) <= MAX_AGE;
    (is_recent && !is_program_fault(code)).then_some((code, event.at))
}

/// Whether an XID says that a program is at fault, and not the GPU.
#[must_use]
pub const fn is_program_fault(code: u64) -> bool {
    matches!(code, 13 | 31 | 43 | 45)
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpukill_proto::model::{DeviceId, EventKind, GpuEvent, RemappedRows, RetiredPages, Vendor};

    #[test]
    fn problems_say_what_to_do() {
        let id = DeviceId("GPU-0".into());
        let mut device = Device::unknown(id, 0, Vendor::Nvidia, &Reading::Unsupported);
        device.vitals.recovery_action = Reading::Value(RecoveryAction::None);
        device.vitals.remapped_rows = Reading::Value(RemappedRows {
            correctable: 7,
            uncorrectable: 1,
            pending: false,
            failed: false,
        });
        assert_eq!(device_problems(&device), Vec::new());
        device.vitals.recovery_action = Reading::Value(RecoveryAction::Other(77));
        device.vitals.remapped_rows = Reading::Value(RemappedRows {
            correctable: 7,
            uncorrectable: 1,
            pending: true,
            failed: true,
        });
        device.vitals.retired_pages = Reading::Value(RetiredPages {
            single_bit: 0,
            double_bit: 1,
            pending: true,
        });
        assert_eq!(device_problems(&device).len(), 4);
        // A stale reading is no reason to act.
        device.vitals = device.vitals.aged(60);
        assert_eq!(device_problems(&device), Vec::new());
    }

    #[test]
    fn program_faults_are_no_gpu_faults() {
        assert!(is_program_fault(31) && !is_program_fault(79));
        assert_eq!(xid_meaning(79), "the GPU has fallen off the bus");
        assert_eq!(xid_meaning(9_999), "see NVIDIA's list of XIDs");
    }

    #[test]
    fn recent_xid_of_the_gpu_is_worth_a_look() {
        let id = DeviceId("GPU-0".into());
        let mut device = Device::unknown(id, 0, Vendor::Nvidia, &Reading::Unsupported);
        let at = Timestamp(1_000_000);
        assert_eq!(recent_xid(&device, at), None);
        for (kind, age, expected) in [
            (EventKind::Xid(79), 0, Some((79, at))),
            (EventKind::Xid(79), 86_400, Some((79, at))),
            (EventKind::Xid(79), 86_401, None),
            (EventKind::Xid(31), 0, None),
            (EventKind::MigChange, 0, None),
        ] {
            device.last_xid = Some(GpuEvent {
                device: None,
                instance: None,
                at,
                kind,
            });
            let found = recent_xid(&device, at.plus_seconds(age));
            assert_eq!(found, expected, "{kind:?} {age}");
        }
    }
}
