//! Waits until a device answers after its reset, and says how it stands.

use crate::enforce::Means;
use gpukill_policy::reset::answering::{Standing, standing};
use gpukill_proto::snapshot::{DeviceId, Vendor};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long it may take: a sensor that starts wakes every GPU of the box.
const PATIENCE: Duration = Duration::from_secs(60);

/// A device that its driver says for so long that it cannot reach is given up.
const SILENCE: Duration = Duration::from_secs(10);

const STEP: Duration = Duration::from_millis(50);

/// How it stands, by polls that began after now.
pub(super) fn verify(means: &Means, id: &DeviceId, vendor: Vendor) -> Standing {
    let deadline = Instant::now() + PATIENCE;
    let mut silent_since: Option<Instant> = None;
    // The poll under way may have begun before: the one after it has not.
    let first = means.state.borrow().snapshot.tick.saturating_add(2);
    loop {
        (means.hurry)();
        std::thread::sleep(STEP);
        let snapshot = Arc::clone(&means.state.borrow().snapshot);
        let stands = if snapshot.tick < first {
            Standing::Unread("gpukilld did not poll".to_owned())
        } else {
            standing(id, vendor, &snapshot)
        };
        match &stands {
            Standing::Well | Standing::Advised(_) => return stands,
            Standing::Silent(_) => {
                let since = *silent_since.get_or_insert_with(Instant::now);
                if since.elapsed() > SILENCE {
                    return stands;
                }
            }
            Standing::Unread(_) => silent_since = None,
        }
        if Instant::now() > deadline || means.is_stopping() {
            return stands;
        }
    }
}
