//! Problems that a working device reports about itself and that an admin should act on.

use gpukill_proto::model::{Device, FaultCode, RecoveryAction};
use gpukill_proto::reading::Reading;

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

#[cfg(test)]
mod tests {
    use super::*;
    use gpukill_proto::model::{DeviceId, RemappedRows, RetiredPages, Vendor};

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
}
