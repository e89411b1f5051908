//! Logs the result of a reset: one event for each GPU.

use crate::log_events::event;
use gpukill_proto::reset::{Blocker, ResetOutcome, ResetResult};

/// At most this many blockers are named.
const MAX_NAMED_BLOCKERS: usize = 8;

/// Logs the result for one GPU, which this user reset.
pub(super) fn log_outcome(outcome: &ResetOutcome, caller_uid: u32) {
    let (gpu, gpu_uuid) = (outcome.index, outcome.device.0.as_str());
    match &outcome.result {
        ResetResult::Reset(_) => {
            let note = outcome.note.as_deref();
            event!(GpuReset, gpu, gpu_uuid, caller_uid, note);
        }
        ResetResult::Blocked(blockers) => {
            event!(
                GpuNotReset,
                gpu,
                gpu_uuid,
                caller_uid,
                why = blocker_names(blockers)
            );
        }
        ResetResult::Unsupported(why) => event!(GpuNotReset, gpu, gpu_uuid, caller_uid, why),
        ResetResult::Failed(why) => event!(GpuResetFailed, gpu, gpu_uuid, caller_uid, why),
        ResetResult::Unreachable(why) => event!(GpuUnreachable, gpu, gpu_uuid, caller_uid, why),
    }
}

fn blocker_names(blockers: &[Blocker]) -> String {
    let named = blockers.iter().take(MAX_NAMED_BLOCKERS);
    let mut names: Vec<String> = named.map(|blocker| blocker.what.clone()).collect();
    let more = blockers.len().saturating_sub(MAX_NAMED_BLOCKERS);
    if more > 0 {
        names.push(format!("and {more} more"));
    }
    names.join("; ")
}
