//! The cost of each thread of a process, for the benches.

use super::process::process_file;
use std::collections::BTreeMap;

/// Processor milliseconds of the threads, by thread name.
pub(crate) type ThreadTimes = BTreeMap<String, f64>;

pub(crate) fn thread_times(pid: u32) -> ThreadTimes {
    let mut all = ThreadTimes::new();
    for entry in std::fs::read_dir(process_file(pid, "task")).unwrap() {
        let directory = entry.unwrap().path();
        let read = |name| std::fs::read_to_string(directory.join(name));
        // The thread may end meanwhile.
        if let (Ok(name), Ok(schedstat)) = (read("comm"), read("schedstat")) {
            let nanoseconds = schedstat.split_whitespace().next().unwrap();
            let nanoseconds: f64 = nanoseconds.parse().unwrap();
            *all.entry(name.trim().to_owned()).or_default() += nanoseconds / 1e6;
        }
    }
    all
}

/// The difference of two readings, the largest first.
pub(crate) fn thread_time_differences(
    before: &ThreadTimes,
    after: &ThreadTimes,
) -> Vec<(String, f64)> {
    let used = |(name, spent): (&String, &f64)| {
        let before = before.get(name).unwrap_or(&0.0);
        (name.clone(), spent - before)
    };
    let mut all: Vec<(String, f64)> = after.iter().map(used).collect();
    all.sort_by(|one, other| other.1.total_cmp(&one.1));
    all
}
