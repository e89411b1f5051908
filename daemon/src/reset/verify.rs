//! Waits until a device answers after its reset, and reports its state.

use crate::fd_scan::full_scan::NewPoll;
use crate::kill::KillEnvironment;
use gpukill_policy::reset::response::{ResetResponse, check_response};
use gpukill_proto::model::{DeviceId, Vendor};
use std::time::{Duration, Instant};

/// How long the device may take: a sensor that starts wakes every GPU of the host.
const VERIFY_TIMEOUT: Duration = Duration::from_secs(60);

/// A device that its driver cannot reach for this long is given up.
const SILENCE_TIMEOUT: Duration = Duration::from_secs(10);

const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// The state of the device, from polls that started after now.
pub(super) fn verify(means: &KillEnvironment, id: &DeviceId, vendor: Vendor) -> ResetResponse {
    let deadline = Instant::now() + VERIFY_TIMEOUT;
    let mut silent_since: Option<Instant> = None;
    let mut stands = ResetResponse::NotRead("gpukilld did not poll".to_owned());
    let mut poll = NewPoll::after_now(&means.state);
    loop {
        if poll.is_published(&means.state, &*means.poll_now) {
            stands = check_response(id, vendor, &means.state.borrow().snapshot);
            poll = NewPoll::after_now(&means.state);
        }
        match &stands {
            ResetResponse::Healthy | ResetResponse::Advised(_) => return stands,
            ResetResponse::Unreachable(_) => {
                let since = *silent_since.get_or_insert_with(Instant::now);
                if since.elapsed() > SILENCE_TIMEOUT {
                    return stands;
                }
            }
            ResetResponse::NotRead(_) => silent_since = None,
        }
        if Instant::now() > deadline || means.is_stopping() {
            return stands;
        }
        std::thread::sleep(POLL_INTERVAL);
    }
}
