//! Waits until a device answers after its reset, and says how it stands.

use crate::enforce::Means;
use crate::look::NewPoll;
use gpukill_policy::reset::answering::{Standing, standing};
use gpukill_proto::snapshot::{DeviceId, Vendor};
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
    let mut stands = Standing::Unread("gpukilld did not poll".to_owned());
    let mut poll = NewPoll::after_now(&means.state);
    loop {
        if poll.is_published(&means.state, &*means.hurry) {
            stands = standing(id, vendor, &means.state.borrow().snapshot);
            poll = NewPoll::after_now(&means.state);
        }
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
        std::thread::sleep(STEP);
    }
}
