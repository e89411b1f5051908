//! Decides which devices cannot be reset here, for any caller and any holders.

use super::{HelperCheck, ResetContext};
use gpukill_proto::model::{Device, RecoveryAction, Vendor};

/// "GPU has fallen off the bus."
const FELL_OFF_THE_BUS: u64 = 79;

/// Why this device can never be reset, or not in its current state.
pub(super) fn unsupported_reason(device: &Device) -> Option<String> {
    if let Some(loss) = device.lost.as_ref().filter(|_| device.is_gone()) {
        return Some(format!("it is gone: {}", loss.reason));
    }
    let why = match device.vendor {
        Vendor::Nvidia | Vendor::Amd => return unsupported_state(device),
        // Neither driver offers a reset to users: i915 discards all work, xe resets one
        // of its parts, and a function-level reset below a bound driver can wedge both.
        Vendor::Intel => {
            "drivers of Intel GPUs have no reset for one GPU: reboot the host, or unbind the \
             driver, write to the reset file of its PCI device, and bind it again"
        }
        Vendor::Apple => "only the system itself resets this GPU",
        Vendor::Other => "its driver is not known to have a reset: reboot the host",
    };
    Some(why.to_owned())
}

fn unsupported_state(device: &Device) -> Option<String> {
    if device.memory_unified {
        return Some("it is a part of the processor, and is reset with it: reboot the host".into());
    }
    let last_xid = device.last_xid.as_ref().and_then(|event| event.kind.xid());
    if device.lost.is_some() && last_xid == Some(FELL_OFF_THE_BUS) {
        return Some(
            "it has fallen off the bus (XID 79), where no software reaches it: reboot the host, \
             and where that does not help, switch its power off and on"
                .into(),
        );
    }
    if device.vitals.recovery_action.known() == Some(&RecoveryAction::Reboot) {
        return Some("its driver reports that it needs a reboot of the host".into());
    }
    if device.pci.last_known().is_none() {
        return Some("its PCI address is not known, and the helper needs it".into());
    }
    None
}

/// Why the helper cannot reset this device.
pub(super) fn helper_refusal(device: &Device, context: &ResetContext<'_>) -> Option<String> {
    match context.checks.get(&device.id) {
        Some(HelperCheck::Possible | HelperCheck::Busy(_)) => None,
        Some(HelperCheck::Refused(why) | HelperCheck::NoAnswer(why)) => Some(why.clone()),
        None => Some("its PCI address does not have the form that gpukill-reset accepts".into()),
    }
}
