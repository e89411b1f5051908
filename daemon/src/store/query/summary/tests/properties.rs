//! Properties that hold for any history.

use super::super::super::sample_store::{
    HOUR, MINUTE, MONDAY, SampleStore, all_times, between, device, process,
};
use gpukill_proto::audit::{AuditFilter, AuditSummary, OwnerTime, UsageTimes, UsageTotals};
use gpukill_proto::model::Owner;
use gpukill_proto::units::Timestamp;
use proptest::prelude::*;
use std::collections::BTreeMap;

/// A sample: its length and the gap before it in seconds, the utilization of the two devices, and
/// its processes: pid, owner, GPU and utilization.
#[derive(Debug, Clone)]
struct Step {
    length: i64,
    gap: i64,
    percent: [u32; 2],
    people: Vec<(u32, usize, u32, u32)>,
}

const PEOPLE: [&str; 3] = ["al", "bob", "carl"];

fn step() -> impl Strategy<Value = Step> {
    let who = (1..6_u32, 0..3_usize, 0..2_u32, 0..100_u32);
    (
        prop_oneof![Just(30), 20..60_i64],
        prop_oneof![6 => Just(0_i64), 1 => 0..4_000_i64],
        [0..100_u32, 0..100_u32],
        prop::collection::vec(who, 0..5),
    )
        .prop_map(|(length, gap, percent, people)| Step {
            length,
            gap,
            percent,
            people,
        })
}

/// The written samples: start and length of each, in milliseconds.
struct WrittenHistory {
    store: SampleStore,
    samples: Vec<(i64, i64)>,
}

impl WrittenHistory {
    /// Writes each step twelve times. The owner of a process is part of its pid, so it never
    /// changes.
    fn write(steps: &[Step]) -> Self {
        let mut store = SampleStore::new();
        let mut samples = Vec::new();
        let mut at = MONDAY - 2 * HOUR;
        for step in steps {
            at += step.gap * 1000;
            let people: BTreeMap<(u32, u32), _> = step
                .people
                .iter()
                .map(|&(pid, who, gpu, percent)| {
                    let pid = pid * 10 + u32::try_from(who).unwrap();
                    ((pid, gpu), process(gpu, pid, PEOPLE[who], percent))
                })
                .collect();
            let people: Vec<_> = people.into_values().collect();
            for _ in 0..12 {
                let devices = [0, 1].map(|gpu| device(gpu, step.percent[gpu as usize], 9));
                store.sample(at, step.length * 1000, devices.to_vec(), people.clone());
                samples.push((at, step.length * 1000));
                at += step.length * 1000;
            }
        }
        Self { store, samples }
    }

    /// The total length of the samples that began in this span.
    fn length(&self, since: i64, until: i64) -> u64 {
        let within = self.samples.iter();
        let within = within.filter(|(at, _)| (since..until).contains(at));
        within.map(|(_, length)| length.unsigned_abs()).sum()
    }

    fn end(&self) -> i64 {
        self.samples
            .last()
            .map_or(MONDAY, |(at, length)| at + length)
    }
}

fn all(times: UsageTimes) -> u64 {
    times.busy_ms + times.held_ms + times.free_ms + times.unknown_ms
}

fn shared(used: UsageTotals) -> u64 {
    used.busy_ms + used.idle_ms + used.unknown_ms
}

fn plus(sum: &mut UsageTimes, more: UsageTimes) {
    sum.busy_ms += more.busy_ms;
    sum.held_ms += more.held_ms;
    sum.free_ms += more.free_ms;
    sum.unknown_ms += more.unknown_ms;
}

/// Removes the times of memory peaks: their precision depends on the rows that were read.
fn without_moments(mut summary: AuditSummary) -> AuditSummary {
    for device in &mut summary.devices {
        device.memory_max_at = None;
    }
    summary
}

/// The usage of two summaries, added by owner.
fn merged(one: &[OwnerTime], other: &[OwnerTime]) -> BTreeMap<Option<String>, UsageTotals> {
    let mut sums: BTreeMap<Option<String>, UsageTotals> = BTreeMap::new();
    for OwnerTime { owner, used } in one.iter().chain(other) {
        let name = owner.as_ref().map(|owner: &Owner| owner.name.clone());
        let sum = sums.entry(name).or_default();
        sum.busy_ms += used.busy_ms;
        sum.idle_ms += used.idle_ms;
        sum.unknown_ms += used.unknown_ms;
        sum.memory_mib_s += used.memory_mib_s;
        sum.memory_max = sum.memory_max.max(used.memory_max);
        sum.runs += used.runs;
    }
    sums
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, ..ProptestConfig::default() })]

    #[test]
    fn all_levels_give_the_same_sums(
        steps in prop::collection::vec(step(), 4..24),
    ) {
        let mut history = WrittenHistory::write(&steps);
        // So that everything before is in hours.
        let until = (history.end() / HOUR + 1) * HOUR;
        for at in [until, until + MINUTE, until + HOUR, until + HOUR + MINUTE] {
            history.store.sample(at, 1_000, vec![device(0, 0, 0)], vec![]);
        }
        let filter = between(0, until);
        let from_hours = without_moments(history.store.summary(&filter));
        let whole: u64 = from_hours.devices.iter().map(|it| all(it.times)).sum();
        prop_assert_eq!(whole, 2 * history.length(0, until));

        let bare = history.store.copy();
        bare.execute("DELETE FROM minute; DELETE FROM sample");
        let mut summary = without_moments(bare.summary(&filter));
        // The position of a gap in an hour is lost.
        summary.gaps.clone_from(&from_hours.gaps);
        prop_assert_eq!(&summary, &from_hours);

        history.store.execute("DELETE FROM hour");
        prop_assert_eq!(&without_moments(history.store.summary(&filter)), &from_hours);
        history.store.execute("DELETE FROM minute");
        prop_assert_eq!(&without_moments(history.store.summary(&filter)), &from_hours);
    }

    #[test]
    fn halves_add_up_to_the_whole(
        steps in prop::collection::vec(step(), 4..24),
        positions in [0..1_000_usize, 0..1_000, 0..1_000],
    ) {
        let history = WrittenHistory::write(&steps);
        let mut at = positions.map(|position| history.samples[position % history.samples.len()].0);
        at.sort_unstable();
        let [since, middle, until] = at;
        let whole = history.store.summary(&between(since, until));
        let [one, other] = [(since, middle), (middle, until)]
            .map(|(since, until)| history.store.summary(&between(since, until)));

        let observed: u64 = whole.devices.iter().map(|it| all(it.times)).sum();
        prop_assert_eq!(observed, 2 * history.length(since, until));
        for kind in [|it: &AuditSummary| it.hours.clone(), |it: &AuditSummary| it.days.clone()] {
            let mut sum = kind(&one);
            for (sum, more) in sum.iter_mut().zip(kind(&other)) {
                plus(sum, more);
            }
            prop_assert_eq!(sum, kind(&whole));
        }
        for device in &whole.devices {
            let mut sum = UsageTimes::default();
            let mut joules = 0;
            let halves = one.devices.iter().chain(&other.devices);
            for half in halves.filter(|it| it.device == device.device) {
                plus(&mut sum, half.times);
                joules += half.energy_j.unwrap_or(0);
            }
            prop_assert_eq!(sum, device.times);
            prop_assert!(joules.abs_diff(device.energy_j.unwrap()) <= 1);
        }
        let expected = merged(&whole.owners, &[]);
        let sum = merged(&one.owners, &other.owners);
        prop_assert_eq!(expected.keys().collect::<Vec<_>>(), sum.keys().collect::<Vec<_>>());
        for (used, halves) in expected.values().zip(sum.values()) {
            prop_assert!(used.memory_mib_s.abs_diff(halves.memory_mib_s) <= 1);
            prop_assert!(used.runs <= halves.runs && halves.runs <= 2 * used.runs);
            let alike = UsageTotals { memory_mib_s: used.memory_mib_s, runs: used.runs, ..*halves };
            prop_assert_eq!(alike, *used);
        }
    }

    #[test]
    fn no_owner_exceeds_the_covered_time(steps in prop::collection::vec(step(), 4..20)) {
        let history = WrittenHistory::write(&steps);
        for gpu in ["0", "1"] {
            let filter = AuditFilter { gpu: Some(gpu.into()), ..all_times() };
            let summary = history.store.summary(&filter);
            let covered = all(summary.devices[0].times);
            let mut sum = 0;
            for OwnerTime { used, .. } in &summary.owners {
                prop_assert!(shared(*used) <= covered);
                sum += shared(*used);
            }
            prop_assert!(sum <= covered * u64::try_from(summary.owners.len()).unwrap());
            let processes: u64 = summary.processes.iter().map(|it| shared(it.used)).sum();
            prop_assert_eq!(processes, sum);
        }
    }

    #[test]
    fn retention_loses_and_repeats_nothing(
        steps in prop::collection::vec(step(), 4..24),
        kept in [0..40_000_i64, 0..40_000, 0..40_000],
    ) {
        let mut history = WrittenHistory::write(&steps);
        let length = history.length(i64::MIN, i64::MAX);
        let end = history.end();
        // Any level may be kept the longest.
        let [samples, minutes, hours] = kept.map(|seconds| Timestamp(end - seconds * 1000));
        let oldest = [("sample", samples), ("minute", minutes), ("hour", hours)];
        let connection = &mut history.store.opened.connection;
        let delete = super::super::super::super::retention::delete_before;
        while delete(connection, oldest).unwrap() {}
        let summary = history.store.summary(&all_times());
        let covered: u64 = summary.devices.iter().map(|it| all(it.times)).sum();
        // Nothing is left before the oldest hour, minute or sample.
        let oldest = [("hour", HOUR), ("minute", MINUTE), ("sample", 1)].map(|(table, length)| {
            let select = format!("SELECT min(at) FROM {table}");
            let connection = &history.store.opened.connection;
            let at: Option<i64> = connection.query_row(&select, [], |row| row.get(0)).unwrap();
            at.map_or(i64::MAX, |at| at - at.rem_euclid(length))
        });
        let oldest = oldest.into_iter().min().unwrap();
        prop_assert_eq!(covered, 2 * history.length(oldest, i64::MAX));
        prop_assert!(covered <= 2 * length);
    }
}
