//! Which devices cannot be reset here, whoever asks and whoever holds them?

use super::{HelperCheck, Seen};
use gpukill_proto::snapshot::{Device, RecoveryAction, Vendor};

/// "GPU has fallen off the bus."
const FELL_OFF_THE_BUS: u64 = 79;

/// Why this one cannot on any box, or cannot in its state.
pub(super) fn by_nature(device: &Device) -> Option<String> {
    if let Some(loss) = device.lost.as_ref().filter(|_| device.is_gone()) {
        return Some(format!("it is gone: {}", loss.reason));
    }
    let why = match device.vendor {
        Vendor::Nvidia | Vendor::Amd => return of_its_state(device),
        // Neither driver has a reset for users: i915 declares all work lost, xe
        // resets one of its parts, and a function reset below a driver that is
        // bound can wedge both.
        Vendor::Intel => {
            "drivers of Intel GPUs have no reset for one GPU: reboot the box, or unbind the driver, \
             write to the reset file of its PCI device, and bind it again"
        }
        Vendor::Apple => "the system resets this GPU by itself, and nobody else does",
        Vendor::Other => "its driver is not known to have a reset: reboot the box",
    };
    Some(why.to_owned())
}

fn of_its_state(device: &Device) -> Option<String> {
    if device.memory_unified {
        return Some("it is a part of the processor, and is reset with it: reboot the box".into());
    }
    let last_xid = device.last_xid.as_ref().and_then(|event| event.kind.xid());
    if device.lost.is_some() && last_xid == Some(FELL_OFF_THE_BUS) {
        return Some(
            "it has fallen off the bus (XID 79), where no software reaches it: reboot the box, and \
             where that does not help, switch its power off and on"
                .into(),
        );
    }
    if device.vitals.recovery_action.known() == Some(&RecoveryAction::Reboot) {
        return Some("its driver says that only a reboot of the box helps".into());
    }
    if device.pci.last_known().is_none() {
        return Some("its PCI address is not known, and the helper is told nothing else".into());
    }
    None
}

/// Why the helper cannot reset this one.
pub(super) fn by_helper(device: &Device, seen: &Seen<'_>) -> Option<String> {
    match seen.checks.get(&device.id) {
        Some(HelperCheck::Possible | HelperCheck::Busy(_)) => None,
        Some(HelperCheck::Refused(why) | HelperCheck::NoAnswer(why)) => Some(why.clone()),
        None => Some("it has no PCI address of the form that gpukill-reset takes".into()),
    }
}
