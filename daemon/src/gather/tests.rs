//! Polls become samples, and nobody's end is missed or made up.

use super::*;
use gpukill_proto::reading::Reading;
use gpukill_proto::rogue::{Risk, Suspected, Threat};
use gpukill_proto::snapshot::{Device, Loss, LossKind, ProcessKey, Vendor};
use tempfile::TempDir;

const SECOND: Duration = Duration::from_secs(1);

/// A gatherer over a made-up `/proc`, and two clocks.
struct Scene {
    procfs: TempDir,
    gatherer: Gatherer,
    at: u64,
    /// How far the wall clock is from the steady one.
    wall: i64,
    accounts: Arc<Accounts>,
    suspected: Arc<Suspicions>,
    /// How many use the device, as it tells itself.
    count: Reading<u32>,
    lost: Option<Loss>,
}

/// What a sample says: from and until by the wall clock, the time seen, the pids in
/// it with their time, and who departed, how, and when.
type Told = (i64, i64, u64, Vec<(u32, u64)>, Vec<(u32, Departure, i64)>);

impl Scene {
    /// Process 7 lives and is whom pid 7 was; process 8 is another by now; 9 is
    /// dead and nobody has waited for it; and there is no other.
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
            gatherer: Gatherer::new(procfs.path().to_owned()),
            procfs,
            at: 1_000,
            wall: 0,
            accounts: Arc::default(),
            suspected: Arc::default(),
            count: Reading::Value(1),
            lost: None,
        }
    }

    /// A poll so many seconds after the one before, every 2 s, with samples of 10.
    fn poll(&mut self, after: u64, pids: &[u32]) -> Vec<Told> {
        self.samples(after, pids).iter().map(told).collect()
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
            tick: self.at,
            devices: vec![Device {
                process_count: self.count.clone(),
                lost: self.lost.clone(),
                ..Device::unknown(device.clone(), 0, Vendor::Nvidia, &why)
            }],
            processes: processes.collect(),
            backends: Vec::new(),
            faults: Vec::new(),
        });
        self.gatherer.add(&Poll {
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

fn told(sample: &Sample) -> Told {
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
fn the_first_poll_is_a_sample_at_once_and_then_there_is_one_each_interval() {
    let mut scene = Scene::new();
    assert_eq!(
        scene.poll(0, &[7]),
        [(1_000, 1_000, 0, vec![(7, 0)], vec![])]
    );
    for from in [1_000, 1_010] {
        for _ in 0..4 {
            assert_eq!(scene.poll(2, &[7]), []);
        }
        let expected = [(from, from + 10, 10, vec![(7, 10)], vec![])];
        assert_eq!(scene.poll(2, &[7]), expected);
    }
}

#[test]
fn who_departs_is_told_with_how_and_when_they_were_last_seen() {
    let mut scene = Scene::new();
    scene.poll(0, &[7, 8, 9, 10]);
    scene.poll(2, &[7, 8, 9, 10]);
    scene.poll(2, &[7, 8]);
    scene.poll(2, &[]);
    scene.poll(2, &[11]);
    let departed = vec![
        (7, Departure::Left, 1_004),
        (8, Departure::Ended, 1_004),
        (9, Departure::Ended, 1_002),
        (10, Departure::Ended, 1_002),
    ];
    let held = vec![(7, 4), (8, 4), (9, 2), (10, 2), (11, 4)];
    let expected = [(1_000, 1_010, 10, held, departed)];
    assert_eq!(scene.poll(2, &[11]), expected);
}

#[test]
fn who_comes_back_within_a_sample_has_not_departed() {
    let mut scene = Scene::new();
    scene.poll(0, &[7]);
    for pids in [&[][..], &[7], &[], &[7]] {
        assert_eq!(scene.poll(2, pids), []);
    }
    let expected = [(1_000, 1_010, 10, vec![(7, 6)], vec![])];
    assert_eq!(scene.poll(2, &[7]), expected);
}

#[test]
fn a_gap_ends_a_sample_and_who_ended_in_it_was_last_seen_before() {
    let mut scene = Scene::new();
    scene.poll(0, &[7, 10]);
    scene.poll(2, &[7, 10]);
    let expected = [
        // What was gathered before.
        (1_000, 1_002, 2, vec![(7, 2), (10, 2)], vec![]),
        // The moment after, and then the sample interval is over too.
        (
            1_602,
            1_602,
            0,
            vec![(7, 0)],
            vec![(10, Departure::Ended, 1_002)],
        ),
    ];
    assert_eq!(scene.poll(600, &[7]), expected);
    // Three intervals are no gap yet.
    assert_eq!(scene.poll(6, &[7]), []);
    let next = scene.poll(4, &[7]);
    assert_eq!(next, [(1_602, 1_612, 10, vec![(7, 10)], vec![])]);
}

#[test]
fn a_clock_that_is_set_ends_a_sample_and_no_time_is_lost() {
    for jump in [-7_200, 7_200] {
        let mut scene = Scene::new();
        scene.poll(0, &[7]);
        scene.poll(2, &[7]);
        scene.wall = jump;
        let before = [(1_000, 1_002, 2, vec![(7, 2)], vec![])];
        assert_eq!(scene.poll(2, &[7]), before);
        for _ in 0..2 {
            assert_eq!(scene.poll(2, &[7]), []);
        }
        let after = [(1_002 + jump, 1_010 + jump, 8, vec![(7, 8)], vec![])];
        assert_eq!(scene.poll(2, &[7]), after);
    }
}

#[test]
fn two_polls_at_one_moment_are_no_gap() {
    let mut scene = Scene::new();
    scene.poll(0, &[7]);
    scene.poll(2, &[7]);
    assert_eq!(scene.poll(0, &[7]), []);
    let rest = scene.gatherer.rest().map(|sample| told(&sample));
    assert_eq!(rest, Some((1_000, 1_002, 2, vec![(7, 2)], vec![])));
}

#[test]
fn at_the_end_the_rest_is_told_once() {
    let mut scene = Scene::new();
    assert!(scene.gatherer.rest().is_none());
    scene.poll(0, &[7]);
    assert!(scene.gatherer.rest().is_none());
    scene.poll(2, &[7]);
    scene.poll(2, &[]);
    let rest = scene.gatherer.rest().map(|sample| told(&sample));
    let departed = vec![(7, Departure::Left, 1_002)];
    let expected = (1_000, 1_004, 4, vec![(7, 2)], departed);
    assert_eq!(rest, Some(expected));
    assert!(scene.gatherer.rest().is_none());
    scene.procfs.close().unwrap();
}

#[test]
fn what_is_known_of_the_departed_is_kept_to_the_end_of_the_sample() {
    let mut scene = Scene::new();
    let said = |pids: &[u32]| -> Accounts {
        let of = |pid: &u32| ProcessKey {
            pid: *pid,
            start_ticks: 100,
        };
        let accounts = pids.iter().map(|pid| (of(pid), format!("of {pid}")));
        accounts.collect()
    };
    scene.accounts = Arc::new(said(&[7, 8, 9]));
    scene.poll(0, &[7, 8, 9]);
    scene.poll(2, &[7, 8, 9]);
    for pids in [&[7, 8][..], &[7], &[7]] {
        scene.accounts = Arc::new(said(pids));
        assert_eq!(scene.poll(2, pids), []);
    }
    // Of one that is there, only what is known now is.
    scene.accounts = Arc::default();
    let samples = scene.samples(2, &[7]);
    let known: Vec<&Accounts> = samples.iter().map(|it| &*it.accounts).collect();
    assert_eq!(known, [&said(&[8, 9])]);
}

#[test]
fn what_the_departed_were_taken_for_is_kept_to_the_end_of_the_sample() {
    let of = |pid: u32| ProcessKey {
        pid,
        start_ticks: 100,
    };
    let miner = Suspected {
        risk: Risk::High,
        threat: Threat::CryptoMiner,
        may_be_acted_on: true,
    };
    let mut scene = Scene::new();
    scene.suspected = Arc::new([(of(7), None), (of(8), Some(miner)), (of(9), None)].into());
    scene.poll(0, &[7, 8, 9]);
    scene.poll(2, &[7, 8, 9]);
    // The verdicts on the gone may go with them; of who is back the last one counts.
    scene.suspected = Arc::new([(of(7), Some(miner))].into());
    scene.poll(2, &[]);
    scene.poll(2, &[7]);
    scene.poll(2, &[7]);
    let samples = scene.samples(2, &[7]);
    let known: Vec<&Suspicions> = samples.iter().map(|it| &*it.suspected).collect();
    let expected = [(of(7), Some(miner)), (of(8), Some(miner)), (of(9), None)].into();
    assert_eq!(known, [&expected]);
    // Whose device has told of nobody since is taken for what it was.
    scene.count = Reading::Failed("unknown error".into());
    scene.suspected = Arc::default();
    for _ in 0..4 {
        scene.poll(2, &[]);
    }
    let samples = scene.samples(2, &[]);
    let known: Vec<&Suspicions> = samples.iter().map(|it| &*it.suspected).collect();
    assert_eq!(known, [&[(of(7), Some(miner))].into()]);
}

#[test]
fn who_is_in_no_list_since_it_failed_has_not_departed_while_they_live() {
    let mut scene = Scene::new();
    scene.poll(0, &[7, 8]);
    scene.poll(2, &[7, 8]);
    scene.count = Reading::Failed("unknown error".into());
    for _ in 0..3 {
        assert_eq!(scene.poll(2, &[]), []);
    }
    // The other had ended at the first of these polls.
    let ended = vec![(8, Departure::Ended, 1_002)];
    let expected = (1_000, 1_010, 10, vec![(7, 2), (8, 2)], ended);
    let samples = scene.samples(2, &[]);
    assert_eq!(samples.iter().map(told).collect::<Vec<_>>(), [expected]);
    let present = |sample: &Sample| present(&sample.snapshot).len();
    assert_eq!(samples.iter().map(present).collect::<Vec<_>>(), [1]);
    for _ in 0..4 {
        assert_eq!(scene.poll(2, &[]), []);
    }
    let expected = (1_010, 1_020, 10, vec![(7, 0)], vec![]);
    assert_eq!(scene.poll(2, &[]), [expected]);
    // A list that came says who is there, and who is not.
    scene.count = Reading::Value(1);
    scene.poll(2, &[7]);
    scene.poll(2, &[7]);
    scene.poll(2, &[]);
    scene.poll(2, &[]);
    let departed = vec![(7, Departure::Left, 1_024)];
    let expected = (1_020, 1_030, 10, vec![(7, 4)], departed);
    assert_eq!(scene.poll(2, &[]), [expected]);
}

#[test]
fn who_leaves_a_device_of_which_not_all_is_ever_known_has_left() {
    let mut scene = Scene::new();
    scene.count = Reading::Failed("not looked everywhere".into());
    scene.poll(0, &[7]);
    for _ in 0..4 {
        scene.poll(2, &[]);
    }
    let departed = vec![(7, Departure::Left, 1_000)];
    let expected = (1_000, 1_010, 10, vec![], departed);
    assert_eq!(scene.poll(2, &[]), [expected]);
}

#[test]
fn who_held_a_device_that_its_driver_does_not_list_any_more_has_left() {
    for (kind, leaves) in [(LossKind::Gone, true), (LossKind::Lost, false)] {
        let mut scene = Scene::new();
        scene.poll(0, &[7]);
        scene.count = Reading::Failed("gone".into());
        scene.lost = Some(Loss {
            since: Timestamp(0),
            reason: "it is not on the PCI bus".into(),
            kind,
        });
        for _ in 0..4 {
            assert_eq!(scene.poll(2, &[]), []);
        }
        let samples = scene.samples(2, &[]);
        let departed = samples.iter().map(|sample| sample.departed.len());
        let departed: Vec<usize> = departed.collect();
        assert_eq!(departed, [usize::from(leaves)], "{kind:?}");
    }
}
