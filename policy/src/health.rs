//! What is wrong with a device by its own account: errors that an admin should
//! act on, though it still answers.

use gpukill_proto::reading::Reading;
use gpukill_proto::snapshot::{Device, FaultCode, RecoveryAction};

/// What to tell the admin, each with its code, in words that stay the same while it lasts.
#[must_use]
pub fn complaints(device: &Device) -> Vec<(FaultCode, String)> {
    let vitals = &device.vitals;
    let mut all = Vec::new();
    if let Reading::Value(action) = &vitals.recovery_action {
        all.extend(advice(*action));
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

fn advice(action: RecoveryAction) -> Option<(FaultCode, String)> {
    let (code, what) = match action {
        RecoveryAction::None => return None,
        RecoveryAction::Reset => (
            FaultCode::ResetAdvised,
            "the driver advises to reset the GPU",
        ),
        RecoveryAction::Reboot => (
            FaultCode::RebootAdvised,
            "the driver advises to reboot the box",
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

#[cfg(test)]
mod tests {
    use super::*;
    use gpukill_proto::snapshot::{DeviceId, RemappedRows, RetiredPages, Vendor};

    #[test]
    fn a_well_device_has_no_complaints_and_a_broken_one_says_what_to_do() {
        let id = DeviceId("GPU-0".into());
        let mut device = Device::unknown(id, 0, Vendor::Nvidia, &Reading::Unsupported);
        device.vitals.recovery_action = Reading::Value(RecoveryAction::None);
        device.vitals.remapped_rows = Reading::Value(RemappedRows {
            correctable: 7,
            uncorrectable: 1,
            pending: false,
            failed: false,
        });
        assert_eq!(complaints(&device), Vec::new());
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
        assert_eq!(complaints(&device).len(), 4);
        // What is not known now is no reason to act.
        device.vitals = device.vitals.aged(60);
        assert_eq!(complaints(&device), Vec::new());
    }
}
