//! The account that a job is charged to.

use super::*;

#[test]
fn account_is_stored_as_evaluated() {
    let charged = |mut sample: Sample, account: &str| {
        let of = |pid: u32| ProcessKey {
            pid,
            start_ticks: u64::from(pid) * 10,
        };
        let accounts = [7, 8].map(|pid| (of(pid), account.to_owned()));
        sample.accounts = Arc::new(accounts.into());
        sample
    };
    let samples = [
        sample(
            20_000,
            vec![known_process(7), process(8)],
            Vec::new(),
            1_000,
        ),
        charged(
            sample(
                30_000,
                vec![known_process(7), process(8)],
                Vec::new(),
                1_000,
            ),
            "vision",
        ),
        charged(
            sample(40_000, vec![process(8)], vec![known_process(7)], 1_000),
            "vision",
        ),
    ];
    let directory = tempfile::tempdir().unwrap();
    let mut recording = BenchRecorder::open(directory.path()).unwrap();
    let mut history = SampleHistory::default();
    let live: Vec<GuardSample> = samples
        .iter()
        .map(|sample| {
            recording.write(sample).unwrap();
            to_guard_sample(sample, &mut history, &Utc)
        })
        .collect();
    assert_eq!(test_rows::guard_samples(directory.path()), live);
    let accounts: Vec<Vec<Option<Option<&str>>>> = live
        .iter()
        .map(|sample| {
            let accounts = sample.runs.values().map(|run| &run.facts.account);
            accounts
                .map(|it| it.as_ref().map(Option::as_deref))
                .collect()
        })
        .collect();
    // For process 8 the scheduler is unknown: its environment does not name one.
    let vision = Some(Some("vision"));
    assert_eq!(
        accounts,
        [vec![None, None], vec![vision, None], vec![vision, None]]
    );
}
