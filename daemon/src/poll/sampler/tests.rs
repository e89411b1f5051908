//! Tests that polls become samples, and that ends of processes are neither missed nor invented.

use super::*;
use gpukill_proto::model::{Device, Loss, LossKind, ProcessKey, Vendor};
use gpukill_proto::reading::Reading;
use gpukill_proto::rogue::{Risk, Threat, VerdictSummary};
use tempfile::TempDir;

const SECOND: Duration = Duration::from_secs(1);

/// A sampler over a fake `/proc`, and two clocks.
struct SamplerFixture {
    procfs: TempDir,
    sampler: Sampler,
    at: u64,
    /// The offset of the wall clock from the monotonic clock.
    wall: i64,
    accounts: Arc<JobAccounts>,
    suspected: Arc<RogueSuspicions>,
    /// How many processes use the device, by its own count.
    count: Reading<u32>,
    lost: Option<Loss>,
}

/// A sample: its start and end by the wall clock, the observed time, the PIDs with their times, and
/// the departures with kind and time.
type SampleSummary = (i64, i64, u64, Vec<(u32, u64)>, Vec<(u32, Departure, i64)>);

impl SamplerFixture {
    /// Process 7 runs and is the same; process 8 has another start time; process 9 is a zombie; no
    /// other exists.
    fn new() -> Self {
        let procfs = tempfile::tempdir().unwrap();
        for (pid, state, start_ticks) in [(7, 'S', 100), (8, 'S', 999), (9, 'Z', 100)] {
            let directory = procfs.path().join(pid.to_string());
            std::fs::create_dir(&directory).unwrap();
            let rest = format!("0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 1 0 {start_ticks} 0 0");
            let stat = format!("{pid} (x) {state} 1 {rest}");
            std::fs::write(directory.join("stat"), stat).unwrap();
        }
        Self {
            sampler: Sampler::new(procfs.path().to_owned()),
            procfs,
            at: 1_000,
            wall: 0,
            accounts: Arc::default(),
            suspected: Arc::default(),
            count: Reading::Value(1),
            lost: None,
        }
    }

    /// A poll this many seconds after the previous one; the intervals are 2 s for polls and 10 s
    /// for samples.
    fn poll(&mut self, after: u64, pids: &[u32]) -> Vec<SampleSummary> {
        self.samples(after, pids).iter().map(summarize).collect()
    }

    fn samples(&mut self, after: u64, pids: &[u32]) -> Vec<Sample> {
        self.at += after;
        let why = Reading::Unsupported;
        let device = DeviceId("GPU-0".into());
        let taken_at = Timestamp((i64::try_from(self.at).unwrap() + self.wall) * 1_000);
        let processes = pids.iter().map(|pid| GpuProcess {
            start_ticks: Reading::Value(100),
            ..GpuProcess::unknown(device.clone(), *pid, taken_at, &why)
        });
        let snapshot = Arc::new(Snapshot {
            host: String::new(),
            taken_at,
            polls: self.at,
            devices: vec![Device {
                process_count: self.count.clone(),
                lost: self.lost.clone(),
                ..Device::unknown(device.clone(), 0, Vendor::Nvidia, &why)
            }],
            processes: processes.collect(),
            backends: Vec::new(),
            faults: Vec::new(),
        });
        self.sampler.add(&SamplerInput {
            snapshot: &snapshot,
            groups: &Arc::default(),
            accounts: &self.accounts,
            suspected: &self.suspected,
            at: SECOND * u32::try_from(self.at).unwrap(),
            interval: 2 * SECOND,
            sample_interval: 10 * SECOND,
        })
    }
}

fn summarize(sample: &Sample) -> SampleSummary {
    let runs = sample.usage.runs.iter();
    let departed = sample.departed.iter();
    (
        sample.usage.from.0 / 1_000,
        sample.usage.until.0 / 1_000,
        sample.usage.seen_ms / 1_000,
        runs.map(|(run, usage)| (run.pid, usage.held_ms / 1_000))
            .collect(),
        departed
            .map(|it| (it.process.pid, it.departure, it.last_seen.0 / 1_000))
            .collect(),
    )
}

#[test]
fn first_poll_is_a_sample_at_once() {
    let mut context = SamplerFixture::new();
    assert_eq!(
        context.poll(0, &[7]),
        [(1_000, 1_000, 0, vec![(7, 0)], vec![])]
    );
    for from in [1_000, 1_010] {
        for _ in 0..4 {
            assert_eq!(context.poll(2, &[7]), []);
        }
        let expected = [(from, from + 10, 10, vec![(7, 10)], vec![])];
        assert_eq!(context.poll(2, &[7]), expected);
    }
}

#[test]
fn departures_have_kind_and_last_seen() {
    let mut context = SamplerFixture::new();
    context.poll(0, &[7, 8, 9, 10]);
    context.poll(2, &[7, 8, 9, 10]);
    context.poll(2, &[7, 8]);
    context.poll(2, &[]);
    context.poll(2, &[11]);
    let departed = vec![
        (7, Departure::Released, 1_004),
        (8, Departure::Ended, 1_004),
        (9, Departure::Ended, 1_002),
        (10, Departure::Ended, 1_002),
    ];
    let held = vec![(7, 4), (8, 4), (9, 2), (10, 2), (11, 4)];
    let expected = [(1_000, 1_010, 10, held, departed)];
    assert_eq!(context.poll(2, &[11]), expected);
}

#[test]
fn returning_within_a_sample_is_no_departure() {
    let mut context = SamplerFixture::new();
    context.poll(0, &[7]);
    for pids in [&[][..], &[7], &[], &[7]] {
        assert_eq!(context.poll(2, pids), []);
    }
    let expected = [(1_000, 1_010, 10, vec![(7, 6)], vec![])];
    assert_eq!(context.poll(2, &[7]), expected);
}

#[test]
fn gap_ends_a_sample() {
    let mut context = SamplerFixture::new();
    context.poll(0, &[7, 10]);
    context.poll(2, &[7, 10]);
    let expected = [
        // The data from before the gap.
        (1_000, 1_002, 2, vec![(7, 2), (10, 2)], vec![]),
        // The moment after it; the sample interval is over then, too.
        (
            1_602,
            1_602,
            0,
            vec![(7, 0)],
            vec![(10, Departure::Ended, 1_002)],
        ),
    ];
    assert_eq!(context.poll(600, &[7]), expected);
    // Three intervals are no gap yet.
    assert_eq!(context.poll(6, &[7]), []);
    let next = context.poll(4, &[7]);
    assert_eq!(next, [(1_602, 1_612, 10, vec![(7, 10)], vec![])]);
}

#[test]
fn set_clock_ends_a_sample_without_loss() {
    for jump in [-7_200, 7_200] {
        let mut context = SamplerFixture::new();
        context.poll(0, &[7]);
        context.poll(2, &[7]);
        context.wall = jump;
        let before = [(1_000, 1_002, 2, vec![(7, 2)], vec![])];
        assert_eq!(context.poll(2, &[7]), before);
        for _ in 0..2 {
            assert_eq!(context.poll(2, &[7]), []);
        }
        let after = [(1_002 + jump, 1_010 + jump, 8, vec![(7, 8)], vec![])];
        assert_eq!(context.poll(2, &[7]), after);
    }
}

#[test]
fn two_polls_at_one_moment_are_no_gap() {
    let mut context = SamplerFixture::new();
    context.poll(0, &[7]);
    context.poll(2, &[7]);
    assert_eq!(context.poll(0, &[7]), []);
    let rest = context
        .sampler
        .complete_sample()
        .map(|sample| summarize(&sample));
    assert_eq!(rest, Some((1_000, 1_002, 2, vec![(7, 2)], vec![])));
}

#[test]
fn rest_is_returned_once() {
    let mut context = SamplerFixture::new();
    assert!(context.sampler.complete_sample().is_none());
    context.poll(0, &[7]);
    assert!(context.sampler.complete_sample().is_none());
    context.poll(2, &[7]);
    context.poll(2, &[]);
    let rest = context
        .sampler
        .complete_sample()
        .map(|sample| summarize(&sample));
    let departed = vec![(7, Departure::Released, 1_002)];
    let expected = (1_000, 1_004, 4, vec![(7, 2)], departed);
    assert_eq!(rest, Some(expected));
    assert!(context.sampler.complete_sample().is_none());
    context.procfs.close().unwrap();
}

#[test]
fn accounts_of_departed_stay_in_the_sample() {
    let mut context = SamplerFixture::new();
    let accounts_of = |pids: &[u32]| -> JobAccounts {
        let of = |pid: &u32| ProcessKey {
            pid: *pid,
            start_ticks: 100,
        };
        let accounts = pids.iter().map(|pid| (of(pid), format!("of {pid}")));
        accounts.collect()
    };
    context.accounts = Arc::new(accounts_of(&[7, 8, 9]));
    context.poll(0, &[7, 8, 9]);
    context.poll(2, &[7, 8, 9]);
    for pids in [&[7, 8][..], &[7], &[7]] {
        context.accounts = Arc::new(accounts_of(pids));
        assert_eq!(context.poll(2, pids), []);
    }
    // For a present process, only the current data counts.
    context.accounts = Arc::default();
    let samples = context.samples(2, &[7]);
    let known: Vec<&JobAccounts> = samples.iter().map(|it| &*it.accounts).collect();
    assert_eq!(known, [&accounts_of(&[8, 9])]);
}

#[test]
fn verdicts_of_departed_stay_in_the_sample() {
    let of = |pid: u32| ProcessKey {
        pid,
        start_ticks: 100,
    };
    let miner = VerdictSummary {
        risk: Risk::High,
        threat: Threat::CryptoMiner,
        is_actionable: true,
    };
    let mut context = SamplerFixture::new();
    context.suspected = Arc::new([(of(7), None), (of(8), Some(miner)), (of(9), None)].into());
    context.poll(0, &[7, 8, 9]);
    context.poll(2, &[7, 8, 9]);
    // Verdicts on departed processes may be dropped with them; of a process that returned, the last
    // one counts.
    context.suspected = Arc::new([(of(7), Some(miner))].into());
    context.poll(2, &[]);
    context.poll(2, &[7]);
    context.poll(2, &[7]);
    let samples = context.samples(2, &[7]);
    let known: Vec<&RogueSuspicions> = samples.iter().map(|it| &*it.suspected).collect();
    let expected = [(of(7), Some(miner)), (of(8), Some(miner)), (of(9), None)].into();
    assert_eq!(known, [&expected]);
    // A process on a device without a list since keeps its verdict.
    context.count = Reading::Failed("unknown error".into());
    context.suspected = Arc::default();
    for _ in 0..4 {
        context.poll(2, &[]);
    }
    let samples = context.samples(2, &[]);
    let known: Vec<&RogueSuspicions> = samples.iter().map(|it| &*it.suspected).collect();
    assert_eq!(known, [&[(of(7), Some(miner))].into()]);
}

#[test]
fn failed_list_is_no_departure_while_it_runs() {
    let mut context = SamplerFixture::new();
    context.poll(0, &[7, 8]);
    context.poll(2, &[7, 8]);
    context.count = Reading::Failed("unknown error".into());
    for _ in 0..3 {
        assert_eq!(context.poll(2, &[]), []);
    }
    // The other process had ended at the first of these polls.
    let ended = vec![(8, Departure::Ended, 1_002)];
    let expected = (1_000, 1_010, 10, vec![(7, 2), (8, 2)], ended);
    let samples = context.samples(2, &[]);
    assert_eq!(
        samples.iter().map(summarize).collect::<Vec<_>>(),
        [expected]
    );
    let present = |sample: &Sample| present_runs(&sample.snapshot).len();
    assert_eq!(samples.iter().map(present).collect::<Vec<_>>(), [1]);
    for _ in 0..4 {
        assert_eq!(context.poll(2, &[]), []);
    }
    let expected = (1_010, 1_020, 10, vec![(7, 0)], vec![]);
    assert_eq!(context.poll(2, &[]), [expected]);
    // A fresh list shows which processes are present.
    context.count = Reading::Value(1);
    context.poll(2, &[7]);
    context.poll(2, &[7]);
    context.poll(2, &[]);
    context.poll(2, &[]);
    let departed = vec![(7, Departure::Released, 1_024)];
    let expected = (1_020, 1_030, 10, vec![(7, 4)], departed);
    assert_eq!(context.poll(2, &[]), [expected]);
}

#[test]
fn absent_from_an_incomplete_list_has_left() {
    let mut context = SamplerFixture::new();
    context.count = Reading::Failed("not looked everywhere".into());
    context.poll(0, &[7]);
    for _ in 0..4 {
        context.poll(2, &[]);
    }
    let departed = vec![(7, Departure::Released, 1_000)];
    let expected = (1_000, 1_010, 10, vec![], departed);
    assert_eq!(context.poll(2, &[]), [expected]);
}

#[test]
fn leaves_with_an_unlisted_device() {
    for (kind, leaves) in [(LossKind::Gone, true), (LossKind::Lost, false)] {
        let mut context = SamplerFixture::new();
        context.poll(0, &[7]);
        context.count = Reading::Failed("gone".into());
        context.lost = Some(Loss {
            since: Timestamp(0),
            reason: "it is not on the PCI bus".into(),
            kind,
        });
        for _ in 0..4 {
            assert_eq!(context.poll(2, &[]), []);
        }
        let samples = context.samples(2, &[]);
        let departed = samples.iter().map(|sample| sample.departed.len());
        let departed: Vec<usize> = departed.collect();
        assert_eq!(departed, [usize::from(leaves)], "{kind:?}");
    }
}
