//! Usage over time of a store filled by the sample writer.

use super::super::sample_store::{
    HOUR, MINUTE, MONDAY, SampleStore, between, device, generous_deadline, process,
};
use super::*;
use gpukill_proto::audit::AuditFilter;
use gpukill_proto::units::Bytes;

const TEN_SECONDS: i64 = 10_000;
const HOUR_MS: u64 = 3_600_000;

/// From Monday 1:00 on: for an hour, alice works on GPU 0 and bob holds GPU 1; then nothing is
/// recorded for an hour; then alice works on both for an hour.
fn three_hours() -> SampleStore {
    let mut store = SampleStore::new();
    let one = MONDAY + HOUR;
    let devices = [device(0, 90, 100), device(1, 0, 7)];
    let processes = [process(0, 1, "alice", 90), process(1, 2, "bob", 0)];
    store.samples(one, one + HOUR, TEN_SECONDS, &devices, &processes);
    let devices = [device(0, 50, 300), device(1, 20, 200)];
    let processes = [process(0, 1, "alice", 50), process(1, 3, "alice", 20)];
    let three = one + 2 * HOUR;
    store.samples(three, three + HOUR, TEN_SECONDS, &devices, &processes);
    store
}

fn query(filter: AuditFilter, by: SeriesBy, buckets: u32) -> SeriesQuery {
    SeriesQuery {
        filter,
        by,
        buckets,
    }
}

fn asked(store: &SampleStore, query: &SeriesQuery) -> Result<AuditSeries, Refusal> {
    let everything = |_: Option<u32>, _: Option<u32>| true;
    let result = add_up(
        &store.opened.connection,
        query,
        &everything,
        generous_deadline(),
    );
    result.map_err(|failure| match failure {
        QueryError::Refused(refusal) => refusal,
        QueryError::Store(error) => Refusal::Unavailable(error.to_string()),
    })
}

fn all_day() -> AuditFilter {
    between(MONDAY, MONDAY + 4 * HOUR)
}

fn value(min: u64, mean: u64, max: u64) -> Option<SeriesValue> {
    Some(SeriesValue { min, mean, max })
}

#[test]
fn gpus_have_their_readings_and_gaps_stay_gaps() {
    let series = asked(&three_hours(), &query(all_day(), SeriesBy::Gpu, 3)).unwrap();
    // Nothing was recorded in the first hour.
    assert_eq!(series.since, Timestamp(MONDAY + HOUR));
    assert_eq!((series.step_ms, series.more_lines), (HOUR_MS, 0));
    let [first, second] = series.lines.as_slice() else {
        panic!("{series:?}");
    };
    let index = |line: &SeriesLine| line.gpu.as_ref().map(|gpu| gpu.index);
    assert_eq!((index(first), index(second)), (Some(0), Some(1)));
    let times = |line: &SeriesLine| {
        let buckets = line.buckets.iter();
        let times = buckets.map(|it| [it.covered_ms, it.busy_ms, it.idle_ms].map(|ms| ms / 1000));
        times.collect::<Vec<_>>()
    };
    assert_eq!(times(first), [[3_600, 3_600, 0], [0; 3], [3_600, 3_600, 0]]);
    assert_eq!(
        times(second),
        [[3_600, 0, 3_600], [0; 3], [3_600, 3_600, 0]]
    );
    let utilization = first.buckets.iter().map(|bucket| bucket.utilization);
    let expected = [value(90, 90, 90), None, value(50, 50, 50)];
    assert_eq!(utilization.collect::<Vec<_>>(), expected);
    let memory = second.buckets.iter().map(|bucket| bucket.memory);
    let mib = |number: u64| value(number << 20, number << 20, number << 20);
    assert_eq!(memory.collect::<Vec<_>>(), [mib(7), None, mib(200)]);
    assert_eq!(first.buckets[0].power, value(90_000, 90_000, 90_000));
    let hottest = first.buckets.iter().map(|bucket| bucket.hottest);
    assert_eq!(hottest.collect::<Vec<_>>(), [Some(40), None, Some(40)]);
}

#[test]
fn owners_and_jobs_have_the_time_and_memory_of_their_processes() {
    let store = three_hours();
    for by in [SeriesBy::Owner, SeriesBy::Job] {
        let series = asked(&store, &query(all_day(), by, 3)).unwrap();
        let lines = series.lines.iter().map(|line| {
            let name = line.owner.as_ref().map(|owner| owner.name.clone());
            let held = line.buckets.iter().map(|bucket| bucket.held_ms() / 60_000);
            (name.unwrap(), held.collect::<Vec<_>>())
        });
        let expected = [
            ("alice".to_owned(), vec![60, 0, 120]),
            ("bob".to_owned(), vec![60, 0, 0]),
        ];
        assert_eq!(lines.collect::<Vec<_>>(), expected);
        let memory = series.lines[0].buckets[2].memory.map(|value| value.mean);
        // A process holds a MiB per percent.
        assert_eq!(memory, Some(Bytes::mib(70).0));
        let gone = series.lines[1].buckets[2].memory;
        assert_eq!(gone, value(0, 0, 0), "it holds nothing any more");
    }
}

#[test]
fn most_memory_of_a_process_is_its_highest_reading() {
    let mut store = SampleStore::new();
    let half = MONDAY + HOUR / 2;
    let devices = [device(0, 90, 100)];
    let many = [process(0, 1, "alice", 90)];
    let few = [process(0, 1, "alice", 10)];
    store.samples(MONDAY, half, TEN_SECONDS, &devices, &many);
    store.samples(half, MONDAY + HOUR + MINUTE, TEN_SECONDS, &devices, &few);
    let filter = between(MONDAY, MONDAY + 2 * HOUR);
    for by in [SeriesBy::Owner, SeriesBy::Job] {
        let series = asked(&store, &query(filter.clone(), by, 2)).unwrap();
        let memory = series.lines[0].buckets[0].memory.unwrap();
        let [mean, most] = [50, 90].map(|mib| Bytes::mib(mib).0);
        assert_eq!((memory.mean, memory.max), (mean, most), "{by:?}");
    }
}

#[test]
fn job_of_another_boot_is_another_job() {
    let store = three_hours();
    store.execute(
        "UPDATE process SET job = 'tree 7', boot = iif(pid = 3, 'b', 'a') WHERE user = 'alice'",
    );
    let series = asked(&store, &query(all_day(), SeriesBy::Job, 3)).unwrap();
    let lines = series.lines.iter().map(|line| {
        let held = line.buckets.iter().map(|bucket| bucket.held_ms() / 60_000);
        (line.job.as_deref(), held.collect::<Vec<_>>())
    });
    let mut lines: Vec<_> = lines.collect();
    lines.sort();
    let expected = [
        (None, vec![60, 0, 0]),
        (Some("tree 7"), vec![0, 0, 60]),
        (Some("tree 7"), vec![60, 0, 60]),
    ];
    assert_eq!(lines, expected);
}

#[test]
fn shortest_lines_beyond_an_answer_are_summed() {
    let mut store = SampleStore::new();
    let devices = [device(0, 90, 100)];
    let names: Vec<String> = (1..=12).map(|length| "x".repeat(length)).collect();
    // Each process runs a minute longer than the one before.
    for minute in 0_u32..12 {
        let present = (1_u32..).zip(&names).filter(|(pid, _)| *pid > minute);
        let processes: Vec<_> = present
            .map(|(pid, name)| process(0, pid, name, 5))
            .collect();
        let from = MONDAY + i64::from(minute) * MINUTE;
        store.samples(from, from + MINUTE, TEN_SECONDS, &devices, &processes);
    }
    store.execute("UPDATE process SET job = 'tree ' || pid");
    let filter = between(MONDAY, MONDAY + 5 * HOUR);
    for by in [SeriesBy::Owner, SeriesBy::Job] {
        let series = asked(&store, &query(filter.clone(), by, 2_000)).unwrap();
        let buckets = series.lines[0].buckets.len();
        assert_eq!((buckets, MAX_SERIES_CELLS / buckets), (1_800, 9));
        let held = series.lines.iter().map(|line| {
            let held = line.buckets.iter().map(SeriesBucket::held_ms);
            held.sum::<u64>() / 60_000
        });
        let held: Vec<u64> = held.collect();
        assert_eq!(held, [12, 11, 10, 9, 8, 7, 6, 5, 4 + 3 + 2 + 1], "{by:?}");
        assert_eq!(series.summed_lines(8), Some(4));
        assert_eq!(series.summed_lines(7), None);
        let others = &series.lines[8];
        assert_eq!((&others.owner, &others.job), (&None, &None));
        // Four processes with 5 MiB each.
        let memory = others.buckets[0].memory.map(|value| value.mean);
        assert_eq!(memory, Some(Bytes::mib(20).0));
    }
}

#[test]
fn filter_for_processes_leaves_out_the_others() {
    let filter = AuditFilter {
        user: Some("alice".into()),
        ..all_day()
    };
    let series = asked(&three_hours(), &query(filter, SeriesBy::Gpu, 3)).unwrap();
    let held: Vec<Vec<u64>> = series
        .lines
        .iter()
        .map(|line| {
            line.buckets
                .iter()
                .map(|it| it.held_ms() / 60_000)
                .collect()
        })
        .collect();
    assert_eq!(held, [[60, 0, 60], [0, 0, 60]]);
    // The readings of the GPU are not those of the processes.
    assert_eq!(series.lines[0].buckets[0].utilization, None);
}

#[test]
fn times_of_all_buckets_are_those_of_the_summary() {
    let store = three_hours();
    for buckets in [1, 3, 4, 7, 48, 300, 2_000] {
        let series = asked(&store, &query(all_day(), SeriesBy::Owner, buckets)).unwrap();
        let count = series.lines[0].buckets.len();
        assert!(count <= buckets as usize, "{count} of {buckets}");
        let held = series.lines.iter().flat_map(|line| &line.buckets);
        let held: u64 = held.map(SeriesBucket::held_ms).sum();
        let four_hours = 4 * HOUR_MS;
        assert_eq!(held, four_hours, "{buckets}: {}", series.step_ms);
    }
}

#[test]
fn first_bucket_has_only_the_time_of_the_period() {
    let mut store = SampleStore::new();
    let devices = [device(0, 90, 100), device(1, 0, 7)];
    let processes = [process(0, 1, "alice", 90), process(1, 2, "bob", 0)];
    let (three_pm, end) = (MONDAY + 15 * HOUR, MONDAY + 30 * HOUR);
    store.samples(MONDAY, three_pm, 10 * MINUTE, &devices, &processes);
    let bobs = "(SELECT id FROM process WHERE pid = 2)";
    store.execute(&format!(
        "UPDATE run SET ended_at = last_at, ending = 'ended' WHERE process = {bobs}"
    ));
    store.samples(three_pm, end, 10 * MINUTE, &devices, &processes[..1]);
    // No bucket begins at this time.
    let filter = between(MONDAY + 17 * HOUR + 30 * MINUTE, end);
    let held = HOUR_MS * 25 / 2;
    for by in [SeriesBy::Gpu, SeriesBy::Owner, SeriesBy::Job] {
        for buckets in [1, 2, 3, 5] {
            let series = asked(&store, &query(filter.clone(), by, buckets)).unwrap();
            assert!(series.step_ms >= 3 * HOUR_MS, "{}", series.step_ms);
            let first = &series.lines[0].buckets;
            let covered: u64 = first.iter().map(|bucket| bucket.covered_ms).sum();
            assert_eq!(covered, held, "{by:?} {buckets}");
            let all = series.lines.iter().flat_map(|line| &line.buckets);
            let sum: u64 = all.map(SeriesBucket::held_ms).sum();
            assert_eq!(sum, held, "{by:?} {buckets}");
        }
    }
    let connection = &mut store.opened.connection;
    let summary = super::super::summary::summary(connection, &filter, &|_, _| true);
    let owners = summary.unwrap().owners.into_iter();
    let sum: u64 = owners.map(|owner| owner.used.total_ms()).sum();
    assert_eq!(sum, held);
}

#[test]
fn bucket_is_no_shorter_than_the_records_that_are_left() {
    let store = three_hours();
    let step = |store: &SampleStore| {
        let series = asked(store, &query(all_day(), SeriesBy::Gpu, 2_000)).unwrap();
        series.step_ms / 1000
    };
    assert_eq!(step(&store), 10);
    store.execute("DELETE FROM sample WHERE id <= (SELECT max(id) FROM minute)");
    assert_eq!(step(&store), 60);
    store.execute("DELETE FROM minute WHERE id <= (SELECT max(id) FROM hour)");
    assert_eq!(step(&store), 3_600);
}

#[test]
fn bucket_is_no_shorter_than_a_sample() {
    let mut store = SampleStore::new();
    let devices = [device(0, 90, 100)];
    let end = MONDAY + 20 * MINUTE;
    store.samples(MONDAY, end, 25_000, &devices, &[]);
    let filter = between(MONDAY, end);
    let series = asked(&store, &query(filter, SeriesBy::Gpu, 2_000)).unwrap();
    assert_eq!(series.step_ms, 30_000);
    let buckets = &series.lines[0].buckets;
    assert!(buckets.iter().all(|bucket| bucket.covered_ms > 0));
}

/// The limit of buckets relies on it.
#[test]
fn buckets_are_small() {
    let bytes = [size_of::<BucketSum>(), size_of::<DeviceValues>()];
    assert!(bytes[0] <= 112 && bytes[1] <= 128, "{bytes:?}");
}

#[test]
fn absurd_queries_are_refused_or_answered() {
    let store = three_hours();
    let refused = [
        query(all_day(), SeriesBy::Gpu, 0),
        query(between(MONDAY, MONDAY), SeriesBy::Gpu, 3),
        query(between(MONDAY + MINUTE, MONDAY), SeriesBy::Gpu, 3),
    ];
    for query in refused {
        let result = asked(&store, &query);
        assert!(
            matches!(result, Err(Refusal::Invalid(_))),
            "{query:?}: {result:?}"
        );
    }
    for (since, until) in [
        (i64::MIN, i64::MAX),
        (i64::MIN, i64::MIN + 1),
        (i64::MAX - 1, i64::MAX),
    ] {
        for by in [SeriesBy::Gpu, SeriesBy::Owner] {
            for buckets in [1, u32::MAX] {
                // Neither a panic nor an endless loop.
                let _ = asked(&store, &query(between(since, until), by, buckets));
            }
        }
    }
}
