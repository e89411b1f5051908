//! Rules tried on what the store keeps.

use crate::audit::Past;
use gpukill_policy::guard::Grant;
use gpukill_policy::guard::bucket::Bucket;
use gpukill_policy::guard::losses::Present;
use gpukill_policy::guard::replay::{Replay, Replayed};
use gpukill_policy::guard::rules::Rules;
use gpukill_proto::audit::Gap;
use gpukill_proto::collect::SortIndirect as _;
use gpukill_proto::guard::ReplayReport;
use gpukill_proto::refusal::Refusal;
use gpukill_proto::transport::MAX_RESPONSE;
use gpukill_proto::transport::codec::encode;
use gpukill_proto::units::Timestamp;
use std::cmp::Reverse;
use std::ops::ControlFlow;
use std::time::Duration;

/// So much before the time asked for is looked at, so that it is known who was idle
/// when it began.
const BEFORE: i64 = 24 * 3_600;

/// So many samples without one are a gap: a daemon that is started anew is back
/// sooner.
const GAP: u32 = 3;

/// So many gaps are told of, the longest.
const MOST_GAPS: usize = 100;

/// What these rules would have done from `since` until `until`, by this store. Waits for
/// the disk.
///
/// # Errors
/// When the time is empty, the store cannot be read, or the rules tell of more than is
/// kept.
pub(crate) fn replay(
    mut past: Past,
    rules: Rules,
    snoozes: &[Grant],
    (since, until): (Timestamp, Timestamp),
    present: Option<Present>,
) -> Result<ReplayReport, Refusal> {
    if since >= until {
        return Err(Refusal::Invalid("the time is empty".into()));
    }
    let policies = count(rules.count());
    let mut replay = Replay::new(rules, since);
    for grant in snoozes {
        replay.snoozed(grant.clone());
    }
    let mut seen = Seen::default();
    let span = (since.plus_seconds(-BEFORE), until);
    let mut added = Ok(());
    let mut newest: Option<Bucket> = None;
    past.buckets(span, &mut |bucket, is_sample| {
        if bucket.until > since {
            seen.add(bucket.from, bucket.until, bucket.seen_ms, is_sample);
        }
        if let Some(before) = newest.replace(bucket) {
            added = replay.add(&before);
        }
        match added {
            Ok(()) => ControlFlow::Continue(()),
            Err(_) => ControlFlow::Break(()),
        }
    })?;
    if let (Ok(()), Some(newest)) = (added, newest) {
        if let Some(Present { losses, living }) = present {
            let lives = |pid, start_ticks| living.contains(&(pid, start_ticks));
            replay.loses(losses, &lives);
        }
        added = replay.add(&newest);
    }
    added.map_err(|too_much| Refusal::Invalid(too_much.to_string()))?;
    let Replayed {
        judged,
        people,
        runs,
        outcomes,
        records,
        more_records,
        open,
        not_judged,
    } = replay.finish();
    let (first, last) = seen.told.unwrap_or((since, until));
    let report = ReplayReport {
        since: first.max(since),
        until: last.min(until),
        judged,
        samples_since: seen.samples_since.filter(|_| seen.is_coarse),
        people: count(people),
        runs: count(runs),
        rules: policies,
        outcomes,
        records,
        more_records,
        open,
        gaps: seen.gaps(),
        not_judged,
    };
    match encode(&report) {
        Ok(bytes) if bytes.len() <= MAX_RESPONSE - ENVELOPE => Ok(report),
        Ok(_) | Err(_) => Err(Refusal::Invalid(
            "these rules tell of more than one answer has room for: try fewer rules, or a \
             shorter time"
                .into(),
        )),
    }
}

/// What an answer has around it is some bytes long.
const ENVELOPE: usize = 1_024;

/// What was there to judge.
#[derive(Default)]
struct Seen {
    told: Option<(Timestamp, Timestamp)>,
    is_coarse: bool,
    samples_since: Option<Timestamp>,
    /// The longest stretch of which a sample tells.
    sample: Duration,
    gaps: Vec<Gap>,
}

impl Seen {
    fn add(&mut self, from: Timestamp, until: Timestamp, seen_ms: u64, is_sample: bool) {
        if is_sample {
            self.samples_since.get_or_insert(from);
            self.sample = self.sample.max(Duration::from_millis(seen_ms));
        } else {
            self.is_coarse = true;
        }
        if let Some((_, before)) = self.told
            && from > before
        {
            self.gaps.push(Gap {
                from: before,
                until: from,
            });
        }
        let (first, last) = self.told.unwrap_or((from, until));
        self.told = Some((first.min(from), last.max(until)));
    }

    fn gaps(self) -> Vec<Gap> {
        let shortest = self.sample.saturating_mul(GAP).max(Duration::from_secs(30));
        let length = |gap: &Gap| gap.until.since(gap.from);
        let mut gaps = self.gaps;
        gaps.retain(|gap| length(gap) > shortest);
        gaps.sort_indirect_by_key(|gap| Reverse(length(gap)));
        gaps.truncate(MOST_GAPS);
        gaps.sort_indirect_by_key(|gap| gap.from);
        gaps
    }
}

fn count(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}
