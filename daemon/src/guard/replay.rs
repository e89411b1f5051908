//! Replays rules on the samples in the store.

use crate::store::StoredHistory;
use gpukill_policy::guard::SnoozeGrant;
use gpukill_policy::guard::device_losses::PresentFacts;
use gpukill_policy::guard::replay::{Replay, ReplayResult};
use gpukill_policy::guard::rules::RuleSet;
use gpukill_policy::guard::sample::GuardSample;
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

/// The replay starts this many seconds before the requested time, so that it is known which
/// processes were idle at that time.
const LEAD_SECONDS: i64 = 24 * 3_600;

/// A pause of this many samples is a gap: a restarted daemon is back sooner.
const GAP_SAMPLES: u32 = 3;

/// At most this many gaps are reported, the longest.
const MAX_GAPS: usize = 100;

/// The result of these rules from `since` until `until`, with the samples of this store.
/// Waits for the disk.
///
/// # Errors
/// If the time range is empty, the store cannot be read, or the result exceeds a limit.
pub(crate) fn replay(
    mut past: StoredHistory,
    rules: RuleSet,
    snoozes: &[SnoozeGrant],
    (since, until): (Timestamp, Timestamp),
    present: Option<PresentFacts>,
) -> Result<ReplayReport, Refusal> {
    if since >= until {
        return Err(Refusal::Invalid("the time range is empty".into()));
    }
    let policies = saturating_count(rules.rule_count());
    let mut replay = Replay::new(rules, since);
    for grant in snoozes {
        replay.add_snooze(grant.clone());
    }
    let mut coverage = ReplayCoverage::default();
    let span = (since.plus_seconds(-LEAD_SECONDS), until);
    let mut added = Ok(());
    let mut newest: Option<GuardSample> = None;
    past.guard_samples(span, &mut |sample, is_sample| {
        if sample.until > since {
            coverage.add(sample.from, sample.until, sample.observed_ms, is_sample);
        }
        if let Some(before) = newest.replace(sample) {
            added = replay.add(&before);
        }
        match added {
            Ok(()) => ControlFlow::Continue(()),
            Err(_) => ControlFlow::Break(()),
        }
    })?;
    if let (Ok(()), Some(newest)) = (added, newest) {
        if let Some(PresentFacts { losses, living }) = present {
            let lives = |pid, start_ticks| living.contains(&(pid, start_ticks));
            replay.apply_losses(losses, &lives);
        }
        added = replay.add(&newest);
    }
    added.map_err(|too_much| Refusal::Invalid(too_much.to_string()))?;
    let ReplayResult {
        evaluated,
        people,
        runs,
        outcomes,
        records,
        more_records,
        open,
        not_evaluated,
    } = replay.finish();
    let (first, last) = coverage.span.unwrap_or((since, until));
    let report = ReplayReport {
        since: first.max(since),
        until: last.min(until),
        evaluated,
        samples_since: coverage.samples_since.filter(|_| coverage.is_coarse),
        people: saturating_count(people),
        runs: saturating_count(runs),
        rules: policies,
        outcomes,
        records,
        more_records,
        open,
        gaps: coverage.gaps(),
        not_evaluated,
    };
    match encode(&report) {
        Ok(bytes) if bytes.len() <= MAX_RESPONSE - ENVELOPE_BYTES => Ok(report),
        Ok(_) | Err(_) => Err(Refusal::Invalid(
            "the result of these rules does not fit one answer: try fewer rules, or a shorter time"
                .into(),
        )),
    }
}

/// The envelope of an answer has some bytes.
const ENVELOPE_BYTES: usize = 1_024;

/// The time that the samples cover.
#[derive(Default)]
struct ReplayCoverage {
    span: Option<(Timestamp, Timestamp)>,
    is_coarse: bool,
    samples_since: Option<Timestamp>,
    /// The longest time that one sample covers.
    longest_sample: Duration,
    gaps: Vec<Gap>,
}

impl ReplayCoverage {
    fn add(&mut self, from: Timestamp, until: Timestamp, seen_ms: u64, is_sample: bool) {
        if is_sample {
            self.samples_since.get_or_insert(from);
            self.longest_sample = self.longest_sample.max(Duration::from_millis(seen_ms));
        } else {
            self.is_coarse = true;
        }
        if let Some((_, before)) = self.span
            && from > before
        {
            self.gaps.push(Gap {
                from: before,
                until: from,
            });
        }
        let (first, last) = self.span.unwrap_or((from, until));
        self.span = Some((first.min(from), last.max(until)));
    }

    fn gaps(self) -> Vec<Gap> {
        let shortest = self
            .longest_sample
            .saturating_mul(GAP_SAMPLES)
            .max(Duration::from_secs(30));
        let length = |gap: &Gap| gap.until.since(gap.from);
        let mut gaps = self.gaps;
        gaps.retain(|gap| length(gap) > shortest);
        gaps.sort_indirect_by_key(|gap| Reverse(length(gap)));
        gaps.truncate(MAX_GAPS);
        gaps.sort_indirect_by_key(|gap| gap.from);
        gaps
    }
}

fn saturating_count(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}
