//! Why a device is lost, in one sentence.

use super::line::shown;
use super::look::Look;
use super::value::clock;
use gpukill_policy::xid::is_of_a_program;
use gpukill_proto::snapshot::{Device, EventKind, GpuEvent, Loss};
use gpukill_proto::units::Timestamp;
use std::time::Duration;

/// An error that came so long before a device was found lost says why it was
/// lost; an older one says nothing of that. A lost device is found at the next
/// poll, seconds later.
const JUST_BEFORE: Duration = Duration::from_secs(60);

/// Since when a device is lost, why, and what it needs.
pub(super) fn lost(device: &Device, loss: &Loss, now: Timestamp, look: &Look) -> String {
    let since = clock(loss.since, now, look);
    let error = device.last_xid.as_ref();
    let why = match error.filter(|error| explains(error, loss)) {
        Some(error) => error.kind.to_string(),
        None => shown(&loss.reason, look.symbols),
    };
    format!("lost since {since} ({why}): needs a reset or a reboot")
}

fn explains(error: &GpuEvent, loss: &Loss) -> bool {
    let EventKind::Xid(code) = error.kind else {
        return false;
    };
    !is_of_a_program(code) && loss.since.since(error.at) <= JUST_BEFORE
}

#[cfg(test)]
mod tests {
    use super::super::sample::{NOW, look, snapshot};
    use super::*;

    fn said(seconds_before: i64, kind: EventKind) -> String {
        let mut device = snapshot().devices.remove(0);
        let loss = Loss {
            since: NOW.plus_seconds(-267),
            reason: "GPU is lost".into(),
        };
        device.last_xid = Some(GpuEvent {
            device: Some(device.id.clone()),
            instance: None,
            at: loss.since.plus_seconds(-seconds_before),
            kind,
        });
        lost(&device, &loss, NOW, &look(None))
    }

    #[test]
    fn a_loss_is_put_down_to_the_error_that_came_with_it_and_to_no_other() {
        let with_xid = "lost since 13:58:04 (XID 79): needs a reset or a reboot";
        let without = "lost since 13:58:04 (GPU is lost): needs a reset or a reboot";
        assert_eq!(said(60, EventKind::Xid(79)), with_xid);
        assert_eq!(said(-2, EventKind::Xid(79)), with_xid);
        assert_eq!(said(61, EventKind::Xid(79)), without);
        // A program's own fault takes no GPU away.
        assert_eq!(said(0, EventKind::Xid(31)), without);
        assert_eq!(said(0, EventKind::MigChange), without);
    }
}
