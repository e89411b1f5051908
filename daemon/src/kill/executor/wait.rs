//! Waits for the end of many processes at once.

use super::target::Target;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::time::{Duration, Instant};

/// A wait returns at least this often, so that the caller sees that the daemon stops.
const MAX_WAIT: Duration = Duration::from_millis(200);

/// Waits until one of the pending targets has ended, at most until `deadline` and at most
/// [`MAX_WAIT`]. Returns the positions of the ended targets.
pub(super) fn wait_for_exits(targets: &[Target], deadline: Instant) -> Vec<usize> {
    let left: Vec<(usize, &Target)> = targets
        .iter()
        .enumerate()
        .filter(|(_, target)| target.is_pending())
        .collect();
    let mut handles: Vec<PollFd<'_>> = left
        .iter()
        .map(|(_, target)| PollFd::from_borrowed_fd(target.handle(), PollFlags::IN))
        .collect();
    let length = deadline
        .saturating_duration_since(Instant::now())
        .min(MAX_WAIT);
    let timeout = Timespec {
        tv_sec: 0,
        tv_nsec: i64::from(length.subsec_nanos()),
    };
    // An interrupted wait counts as no result yet.
    if !matches!(poll(&mut handles, Some(&timeout)), Ok(1..)) {
        return Vec::new();
    }
    let ended = handles.iter().zip(&left);
    let ended = ended.filter(|(handle, _)| !handle.revents().is_empty());
    ended.map(|(_, (position, _))| *position).collect()
}
