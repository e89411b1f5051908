//! How long a process has held a device without using it.

use gpukill_proto::model::GpuProcess;
use gpukill_proto::text::format_duration;
use gpukill_proto::units::Timestamp;
use std::time::Duration;

/// Shorter pauses are part of the work: loading data, compiling or writing a checkpoint takes
/// minutes.
const MIN_IDLE: Duration = Duration::from_secs(10 * 60);

/// `idle 9h`, in the greatest unit; `None` when the process used the device recently, or when
/// that is not known.
pub(super) fn idle_text(process: &GpuProcess, taken_at: Timestamp) -> Option<String> {
    let last_active = process.last_active.known()?;
    let since = last_active.or_else(|| process.first_seen.known().copied())?;
    let length = taken_at.since(since);
    let length = Some(length).filter(|length| *length >= MIN_IDLE)?;
    let units = format_duration(length);
    Some(format!("idle {}", units.split(' ').next()?))
}

#[cfg(test)]
mod tests {
    use super::super::fixtures::{NOW, snapshot};
    use super::*;
    use gpukill_proto::reading::Reading::{Failed, Stale, Unsupported, Value};

    #[test]
    fn idle_only_when_known_and_long() {
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
            assert_eq!(idle_text(&process, NOW).as_deref(), expected, "{process:?}");
        }
    }
}
