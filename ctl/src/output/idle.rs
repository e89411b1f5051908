//! How long a process has held a device without using it.

use gpukill_proto::snapshot::GpuProcess;
use gpukill_proto::text::duration;
use gpukill_proto::units::Timestamp;
use std::time::Duration;

/// A shorter pause is part of the work: loading data, compiling, writing a
/// checkpoint take minutes.
const WORTH_SAYING: Duration = Duration::from_secs(10 * 60);

/// `idle 9h`, in the greatest unit; `None` where it was used lately, or where
/// that is not known.
pub(super) fn idle(process: &GpuProcess, taken_at: Timestamp) -> Option<String> {
    let last_active = process.last_active.known()?;
    let since = last_active.or_else(|| process.first_seen.known().copied())?;
    let length = taken_at.since(since);
    let length = Some(length).filter(|length| *length >= WORTH_SAYING)?;
    let units = duration(length);
    Some(format!("idle {}", units.split(' ').next()?))
}

#[cfg(test)]
mod tests {
    use super::super::sample::{NOW, snapshot};
    use super::*;
    use gpukill_proto::reading::Reading::{Failed, Stale, Unsupported, Value};

    #[test]
    fn a_process_is_idle_only_when_that_is_known_and_long() {
        let mut process = snapshot().processes.remove(0);
        process.first_seen = Value(NOW.plus_seconds(-90_000));
        let at = |seconds: i64| Some(NOW.plus_seconds(-seconds));
        let cases = [
            (Value(at(0)), None),
            (Value(at(599)), None),
            (Value(at(600)), Some("idle 10m")),
            (Value(at(34_860)), Some("idle 9h")),
            (Value(None), Some("idle 1d")),
            (Stale(at(34_860), 60), None),
            (Failed("timeout".into()), None),
            (Unsupported, None),
        ];
        for (last_active, expected) in cases {
            process.last_active = last_active;
            assert_eq!(idle(&process, NOW).as_deref(), expected, "{process:?}");
        }
    }
}
