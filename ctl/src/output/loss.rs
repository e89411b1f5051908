//! Why a device cannot be read, and its last error, in one sentence each.

use super::style::OutputStyle;
use super::text::escaped;
use super::value::clock;
use gpukill_policy::health::{is_program_fault, xid_meaning};
use gpukill_proto::model::{Device, EventKind, GpuEvent, Loss, LossKind};
use gpukill_proto::units::Timestamp;
use std::time::Duration;

/// An error this shortly before the loss of a device explains the loss; an older error does
/// not. A loss is found at the next poll, seconds later.
const MAX_ERROR_AGE: Duration = Duration::from_secs(60);

/// Since when a device cannot be read, why, and the remedy. `all` are all devices, including
/// this one.
pub(super) fn loss_text(
    device: &Device,
    all: &[Device],
    loss: &Loss,
    now: Timestamp,
    style: &OutputStyle,
) -> String {
    let since = clock(loss.since, now, style);
    let error = device.last_xid.as_ref();
    let why = match error.filter(|error| explains(error, loss)) {
        Some(error) => error.kind.to_string(),
        None => escaped(&loss.reason, style.symbols),
    };
    if loss.kind == LossKind::Gone {
        let index = device.index;
        let mut others = all.iter().filter(|it| it.id != device.id);
        let called = match others.any(|it| it.index == index) {
            true => escaped(&device.id.0, style.symbols),
            false => index.to_string(),
        };
        return format!("gone since {since} ({why}): gpukillctl forget --gpu {called}");
    }
    let (words, remedy) = (loss.kind.label(), loss.kind.remedy());
    format!("{words} since {since} ({why}){remedy}")
}

/// `XID 79 at 13:58:03: the GPU has fallen off the bus`
pub(super) fn xid_text(
    (code, at): (u64, Timestamp),
    now: Timestamp,
    style: &OutputStyle,
) -> String {
    let (at, meaning) = (clock(at, now, style), xid_meaning(code));
    format!("XID {code} at {at}: {meaning}")
}

fn explains(error: &GpuEvent, loss: &Loss) -> bool {
    let EventKind::Xid(code) = error.kind else {
        return false;
    };
    // Only an error that takes the device away explains the loss.
    loss.kind == LossKind::Lost
        && !is_program_fault(code)
        && loss.since.since(error.at) <= MAX_ERROR_AGE
}

#[cfg(test)]
mod tests {
    use super::super::fixtures::{NOW, snapshot, style};
    use super::*;

    fn said_of(kind: LossKind, seconds_before: i64, event: EventKind) -> String {
        let mut device = snapshot().devices.remove(0);
        let loss = Loss {
            since: NOW.plus_seconds(-267),
            reason: "GPU is lost".into(),
            kind,
        };
        device.last_xid = Some(GpuEvent {
            device: Some(device.id.clone()),
            instance: None,
            at: loss.since.plus_seconds(-seconds_before),
            kind: event,
        });
        loss_text(&device, &[], &loss, NOW, &style(None))
    }

    fn shown(seconds_before: i64, event: EventKind) -> String {
        said_of(LossKind::Lost, seconds_before, event)
    }

    #[test]
    fn only_a_lost_device_needs_a_reset() {
        let cases = [
            (
                LossKind::NotPermitted,
                "not permitted since 13:58:04 (GPU is lost): see the modes of /dev/nvidia*",
            ),
            (
                LossKind::Unknown,
                "state unknown since 13:58:04 (GPU is lost)",
            ),
        ];
        for (kind, expected) in cases {
            assert_eq!(said_of(kind, 0, EventKind::Xid(79)), expected);
        }
    }

    #[test]
    fn loss_is_explained_by_a_recent_error_only() {
        let with_xid = "lost since 13:58:04 (XID 79): needs a reset or a reboot";
        let without = "lost since 13:58:04 (GPU is lost): needs a reset or a reboot";
        assert_eq!(shown(60, EventKind::Xid(79)), with_xid);
        assert_eq!(shown(-2, EventKind::Xid(79)), with_xid);
        assert_eq!(shown(61, EventKind::Xid(79)), without);
        let mut device = snapshot().devices.remove(0);
        device.index = 7;
        let loss = Loss {
            since: NOW.plus_seconds(-267),
            reason: "it is not on the PCI bus".into(),
            kind: LossKind::Gone,
        };
        assert_eq!(
            loss_text(&device, &[], &loss, NOW, &style(None)),
            "gone since 13:58:04 (it is not on the PCI bus): gpukillctl forget --gpu 7"
        );
        // An error caused by a program takes no GPU away.
        assert_eq!(shown(0, EventKind::Xid(31)), without);
        assert_eq!(shown(0, EventKind::MigChange), without);
    }
}
