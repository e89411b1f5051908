//! How long an answer takes over a month of a full box.

use super::super::super::page;
use super::stage::{HOUR, MINUTE, MONDAY, Stage, between, device, process};
use gpukill_proto::audit::{AuditFilter, AuditQuery};
use gpukill_proto::reading::Reading::Value;
use gpukill_proto::snapshot::GpuProcess;
use nix::time::{ClockId, clock_gettime};
use std::time::Duration;

const DAY: i64 = 24 * HOUR;

/// One of 64 processes, each of which is another one every two hours.
fn tenant(place: u32, round: u32) -> GpuProcess {
    const PEOPLE: [&str; 7] = ["a", "bo", "cat", "dora", "eliza", "fatima", "gunther"];
    let name = PEOPLE[((place + round) % 7) as usize];
    let pid = 1_000 + round * 64 + place;
    GpuProcess {
        command: Value(format!(
            "/home/{name}/.conda/envs/research/bin/python /home/{name}/projects/run{:02}.py \
             --data /data/imagenet --epochs 90 --learning-rate 0.1 --name {pid}",
            pid % 40
        )),
        ..process(place % 8, pid, name, 10 + place)
    }
}

/// How long an answer takes this thread, at its fastest of several. By the time of
/// its own, so that whatever else the box does is no part of it.
fn took(mut answer: impl FnMut()) -> Duration {
    let now = || Duration::from(clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).unwrap());
    let mut once = || {
        let begun = now();
        answer();
        now() - begun
    };
    (0..7).map(|_| once()).min().unwrap_or_default()
}

#[test]
#[ignore = "writes a month, for figures: cargo test --release -p gpukilld figures -- --ignored --nocapture"]
fn a_month_is_summed_up_while_nobody_waits() {
    let mut stage = Stage::new();
    // Not from midnight on, so that there are edges.
    let begin = MONDAY + 17 * MINUTE + 20_000;
    let end = begin + 30 * DAY;
    let mut at = begin;
    while at < end {
        let since = u32::try_from((at - begin) / 1000).unwrap();
        let devices = (0..8).map(|gpu| device(gpu, since % 100, 30_000)).collect();
        let people = (0..64).map(|place| tenant(place, (since + place * 112) / 7_200));
        stage.sample(at, 10_000, devices, people.collect());
        at += 10_000;
    }
    let run = |select: &str| -> i64 {
        let row = stage
            .opened
            .connection
            .query_row(select, [], |row| row.get(0));
        row.unwrap()
    };
    println!("runs {}", run("SELECT count(*) FROM run"));
    println!("pages {}", run("PRAGMA page_count"));
    for (days, user) in [(1, false), (7, false), (30, false), (30, true)] {
        let filter = AuditFilter {
            user: user.then(|| "dora".into()),
            ..between(end - days * DAY, end)
        };
        let query = AuditQuery {
            filter: filter.clone(),
            before: None,
            limit: 1_000,
        };
        let summed = took(|| assert!(!stage.summary(&filter).owners.is_empty()));
        let paged = took(|| {
            let page = page(&mut stage.opened.connection, &query);
            assert!(!page.unwrap().records.is_empty());
        });
        println!("{days} days, of one user: {user}: summary {summed:?}, page {paged:?}");
    }
}
