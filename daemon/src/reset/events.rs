//! What the log says of each GPU of a reset: one event for what became of it.

use crate::catalogue::tell;
use gpukill_proto::reset::{Blocker, ResetEnding, ResetOutcome};

/// So many blockers are named.
const NAMED: usize = 8;

/// Logs what became of one GPU, which this user had reset.
pub(super) fn log_outcome(outcome: &ResetOutcome, caller_uid: u32) {
    let (gpu, gpu_uuid) = (outcome.index, outcome.device.0.as_str());
    match &outcome.ending {
        ResetEnding::Reset(_) => {
            let note = outcome.note.as_deref();
            tell!(GpuReset, gpu, gpu_uuid, caller_uid, note);
        }
        ResetEnding::Blocked(blockers) => {
            tell!(
                GpuNotReset,
                gpu,
                gpu_uuid,
                caller_uid,
                why = names(blockers)
            );
        }
        ResetEnding::Unsupported(why) => tell!(GpuNotReset, gpu, gpu_uuid, caller_uid, why),
        ResetEnding::Failed(why) => tell!(GpuResetFailed, gpu, gpu_uuid, caller_uid, why),
        ResetEnding::Unreachable(why) => tell!(GpuUnreachable, gpu, gpu_uuid, caller_uid, why),
    }
}

fn names(blockers: &[Blocker]) -> String {
    let named = blockers.iter().take(NAMED);
    let mut names: Vec<String> = named.map(|blocker| blocker.what.clone()).collect();
    let more = blockers.len().saturating_sub(NAMED);
    if more > 0 {
        names.push(format!("and {more} more"));
    }
    names.join("; ")
}
