//! What a job is charged to.

use super::*;

#[test]
fn what_a_job_says_that_it_is_charged_to_is_stored_as_it_was_judged() {
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
        sample(20_000, vec![known(7), process(8)], Vec::new(), 1_000),
        charged(
            sample(30_000, vec![known(7), process(8)], Vec::new(), 1_000),
            "vision",
        ),
        charged(
            sample(40_000, vec![process(8)], vec![known(7)], 1_000),
            "vision",
        ),
    ];
    let directory = tempfile::tempdir().unwrap();
    let mut recording = Recording::open(directory.path()).unwrap();
    let mut seen = Seen::default();
    let live: Vec<Bucket> = samples
        .iter()
        .map(|sample| {
            recording.write(sample).unwrap();
            bucket(sample, &mut seen, &Utc)
        })
        .collect();
    assert_eq!(told::buckets(directory.path()), live);
    let accounts: Vec<Vec<Option<Option<&str>>>> = live
        .iter()
        .map(|bucket| {
            let accounts = bucket.runs.values().map(|run| &run.about.account);
            accounts
                .map(|it| it.as_ref().map(Option::as_deref))
                .collect()
        })
        .collect();
    // Of 8 it is not known whether a scheduler runs it: its environment says nothing.
    let vision = Some(Some("vision"));
    assert_eq!(
        accounts,
        [vec![None, None], vec![vision, None], vec![vision, None]]
    );
}
