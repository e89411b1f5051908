//! One hour with a known outcome, polled by the `run` of the daemon on a manual clock, with a
//! restart and a gap: afterwards the store agrees with the outcome to within one sample.

mod fixture;
mod script;

use fixture::AccountingFixture;
use gpukill_proto::collect::IntoMap as _;
use gpukill_proto::units::Percent;
use script::{ScriptedTask, TaskLoad};
use std::collections::BTreeMap;

const ANN: u32 = 1001;
const BOB: u32 = 1002;
const CID: u32 = 1003;
const DOT: u32 = 1004;

/// A process that uses a GPU from one second of the hour to another, and its load.
const fn task(pid: u32, uid: u32, gpu: u32, from: u64, until: u64, load: TaskLoad) -> ScriptedTask {
    ScriptedTask {
        pid,
        uid,
        gpu,
        from,
        until,
        load,
    }
}

/// The daemon is off from 1200 to 1230, and hangs from 1800 to 2400.
const HOUR: &[ScriptedTask] = &[
    task(101, ANN, 0, 0, 3_602, TaskLoad::Busy),
    task(102, BOB, 0, 100, 1_700, TaskLoad::Idle),
    // Two processes of one person on one GPU: the second works until 1000 and then idles.
    task(103, CID, 1, 300, 900, TaskLoad::Busy),
    task(104, CID, 1, 600, 1_500, TaskLoad::BusyUntil(1_000)),
    task(105, DOT, 1, 1_000, 1_003, TaskLoad::Busy),
    // It ends while the daemon hangs.
    task(106, DOT, 1, 1_650, 2_100, TaskLoad::Idle),
    // Its load is unknown, on a GPU that another process uses.
    task(107, DOT, 0, 2_500, 3_602, TaskLoad::Unknown),
    // One ends and one starts while the daemon is off.
    task(108, BOB, 1, 1_150, 1_210, TaskLoad::Idle),
    task(109, ANN, 1, 1_220, 1_400, TaskLoad::Busy),
];

/// Busy, idle and unknown seconds of each person on each GPU: the time the person held it, counted
/// once however many processes held it, while the daemon polled.
const PEOPLE: [(u32, u32, [u64; 3]); 7] = [
    // 0–1200, 1230–1800, 2400–3600.
    (ANN, 0, [1_200 + 570 + 1_200, 0, 0]),
    // 1230–1400.
    (ANN, 1, [170, 0, 0]),
    // 100–1200, 1230–1700.
    (BOB, 0, [0, 1_100 + 470, 0]),
    // 1150–1200.
    (BOB, 1, [0, 50, 0]),
    // Busy 300–1000; idle 1000–1200, 1230–1500.
    (CID, 1, [700, 200 + 270, 0]),
    // 2500–3600.
    (DOT, 0, [0, 0, 1_100]),
    // Busy 1000–1003; idle 1650–1800.
    (DOT, 1, [3, 150, 0]),
];

/// Seconds that each process held its GPU, and how its run ended.
const PROCESSES: [(u32, u64, &str); 9] = [
    (101, 2_970, "unobserved"),
    (102, 1_570, "ended"),
    (103, 600, "ended"),
    (104, 600 + 270, "ended"),
    (105, 3, "ended"),
    (106, 150, "ended"),
    (107, 1_100, "unobserved"),
    (108, 50, "unobserved"),
    (109, 170, "ended"),
];

/// Busy, held, free and unknown seconds of each GPU.
const GPUS: [[u64; 4]; 2] = [
    [2_970, 0, 0, 0],
    // Busy 300–1003, 1230–1400; held 1003–1200, 1400–1500, 1650–1800; free 0–300, 1500–1650,
    // 2400–3600.
    [703 + 170, 197 + 100 + 150, 300 + 150 + 1_200, 0],
];

/// The length of a sample.
const SAMPLE_SECONDS: u64 = 10;

fn assert_near(actual: &[u64], expected: &[u64], what: &str) {
    let is_near = |(actual, expected): (&u64, &u64)| {
        actual.abs_diff(expected * 1_000) <= SAMPLE_SECONDS * 1_000
    };
    assert_eq!(actual.len(), expected.len(), "{what}");
    assert!(
        actual.iter().zip(expected).all(is_near),
        "{what}: {actual:?} ms, and not {expected:?} s"
    );
}

#[test]
fn sums_match_across_restart_and_gap() {
    let mut fixture = AccountingFixture::new(HOUR);
    fixture.start();
    fixture.poll_until(1_200);
    fixture.stop();
    fixture.go_to(1_230);
    fixture.start();
    fixture.poll_until(1_800);
    fixture.hang_until(2_400);
    fixture.poll_until(3_600);
    fixture.stop();
    // Long after, so that the last minutes and hours are complete.
    fixture.go_to(7_300);
    fixture.start();
    fixture.hang_until(7_400);
    fixture.hang_until(7_500);
    fixture.stop();

    for (uid, gpu, truth) in PEOPLE {
        let what = format!("user {uid} on GPU {gpu}");
        assert_near(&fixture.usage_of(uid, gpu), &truth, &what);
    }
    let runs = fixture.runs();
    let expected: Vec<_> = PROCESSES.iter().map(|(pid, _, end)| (*pid, *end)).collect();
    let found: Vec<_> = runs
        .iter()
        .map(|run| (run.pid, run.ending.as_str()))
        .collect();
    assert_eq!(found, expected);
    for ((pid, truth, _), run) in PROCESSES.iter().zip(&runs) {
        assert_near(&[run.held_ms], &[*truth], &format!("process {pid}"));
        let task = HOUR.iter().find(|task| task.pid == *pid).unwrap();
        // It was last observed before the daemon was away.
        let last = match task.until {
            1_210 => 1_200,
            2_100 => 1_800,
            3_602 => 3_600,
            until => until,
        };
        let first = if *pid == 109 { 1_230 } else { task.from };
        assert!(run.first_at.abs_diff(first) <= SAMPLE_SECONDS, "{run:?}");
        assert!(run.last_at.abs_diff(last) <= SAMPLE_SECONDS, "{run:?}");
    }

    // Samples, minutes and hours cover the same time, to the millisecond.
    let held: BTreeMap<(u32, u32), u64> = runs
        .iter()
        .map(|run| ((run.pid, run.gpu), run.held_ms))
        .into_map();
    for table in ["sample", "minute", "hour"] {
        let totals = fixture.table_totals(table);
        assert_eq!(totals.held, held, "{table}");
        for (gpu, truth) in (0..).zip(&GPUS) {
            let what = format!("GPU {gpu}, by {table}");
            assert_near(&totals.devices[&gpu], truth, &what);
        }
    }
    assert_eq!(fixture.dropped(), 0);
}

#[test]
fn script_matches_the_polls() {
    let busy = Percent(90);
    let at = |second| {
        let tasks = HOUR.iter().filter(move |task| task.is_running(second));
        tasks
            .map(move |task| (task.pid, task.load.at(second).known().copied()))
            .collect::<Vec<_>>()
    };
    assert_eq!(
        at(999),
        [
            (101, Some(busy)),
            (102, Some(Percent(0))),
            (104, Some(busy))
        ]
    );
    assert_eq!(
        at(1_002),
        [
            (101, Some(busy)),
            (102, Some(Percent(0))),
            (104, Some(Percent(0))),
            (105, Some(busy)),
        ]
    );
    assert_eq!(at(2_500), [(101, Some(busy)), (107, None)]);
}
