//! What each thread of a process costs, for the benches.

use super::process::file;
use std::collections::BTreeMap;

/// Milliseconds of a processor that the threads of each name have used.
pub(crate) type Spent = BTreeMap<String, f64>;

pub(crate) fn spent(pid: u32) -> Spent {
    let mut all = Spent::new();
    for entry in std::fs::read_dir(file(pid, "task")).unwrap() {
        let directory = entry.unwrap().path();
        let read = |name| std::fs::read_to_string(directory.join(name));
        // It may end meanwhile.
        if let (Ok(name), Ok(schedstat)) = (read("comm"), read("schedstat")) {
            let nanoseconds = schedstat.split_whitespace().next().unwrap();
            let nanoseconds: f64 = nanoseconds.parse().unwrap();
            *all.entry(name.trim().to_owned()).or_default() += nanoseconds / 1e6;
        }
    }
    all
}

/// What each has used between the two; most first.
pub(crate) fn since(before: &Spent, after: &Spent) -> Vec<(String, f64)> {
    let used = |(name, spent): (&String, &f64)| {
        let before = before.get(name).unwrap_or(&0.0);
        (name.clone(), spent - before)
    };
    let mut all: Vec<(String, f64)> = after.iter().map(used).collect();
    all.sort_by(|one, other| other.1.total_cmp(&one.1));
    all
}
