//! Waits for many processes at once.

use super::target::Target;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::time::{Duration, Instant};

/// A wait is looked up from so often, to see whether the daemon stops.
const LONGEST: Duration = Duration::from_millis(200);

/// Waits until one of the targets that are left has ended, but not past
/// `deadline` and not for long: the positions of those that have.
pub(super) fn wait(targets: &[Target], deadline: Instant) -> Vec<usize> {
    let left: Vec<(usize, &Target)> = targets
        .iter()
        .enumerate()
        .filter(|(_, target)| target.is_left())
        .collect();
    let mut handles: Vec<PollFd<'_>> = left
        .iter()
        .map(|(_, target)| PollFd::from_borrowed_fd(target.handle(), PollFlags::IN))
        .collect();
    let length = deadline
        .saturating_duration_since(Instant::now())
        .min(LONGEST);
    let timeout = Timespec {
        tv_sec: 0,
        tv_nsec: i64::from(length.subsec_nanos()),
    };
    // Interrupted is as good as nothing yet.
    if !matches!(poll(&mut handles, Some(&timeout)), Ok(1..)) {
        return Vec::new();
    }
    let ended = handles.iter().zip(&left);
    let ended = ended.filter(|(handle, _)| !handle.revents().is_empty());
    ended.map(|(_, (position, _))| *position).collect()
}
