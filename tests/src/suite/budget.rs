//! The bench `budget` compares counts with their budgets: what is beyond one is named.

#[path = "../../bench/budget/compare.rs"]
mod compare;

use compare::{Budgets, Count, grouped};

fn failures(budgets: &str, counts: &[Count]) -> Vec<String> {
    Budgets::parse(budgets).unwrap().compare(counts).failures
}

#[test]
fn counts_up_to_their_budgets_pass() {
    let counts = [Count::new("list", 1_000), Count::new("status", 0)];
    assert_eq!(
        failures("list = 1_000\nstatus = 1\n", &counts),
        [""; 0],
        "a budget may be used up"
    );
}

#[test]
fn every_count_beyond_its_budget_is_named() {
    let counts = [
        Count::new("list", 1_001),
        Count::new("status", 5),
        Count::new("threads", 33),
    ];
    let budgets = Budgets::parse("list = 1_000\nstatus = 5\nthreads = 16").unwrap();
    let comparison = budgets.compare(&counts);
    assert_eq!(
        comparison.failures,
        [
            "list is 1,001, beyond its budget of 1,000",
            "threads is 33, beyond its budget of 16",
        ]
    );
    assert_eq!(
        comparison.table,
        "count                                      measured         budget\n\
         list                                          1,001          1,000  beyond its budget\n\
         status                                            5              5\n\
         threads                                          33             16  beyond its budget\n"
    );
}

#[test]
fn a_count_without_a_budget_fails() {
    let counts = [Count::new("list", 1), Count::skipped("status")];
    assert_eq!(
        failures("", &counts),
        ["list has no budget", "status has no budget"]
    );
}

#[test]
fn a_budget_without_a_count_fails() {
    let counts = [Count::new("list", 1)];
    assert_eq!(
        failures("list = 1\nlst = 1", &counts),
        ["lst has a budget, but nothing counts it"]
    );
}

#[test]
fn what_cannot_be_counted_is_shown_as_skipped_and_passes() {
    let budgets = Budgets::parse("list = 1").unwrap();
    let comparison = budgets.compare(&[Count::skipped("list")]);
    assert_eq!(comparison.failures, [""; 0]);
    assert!(comparison.table.contains("skipped"), "{}", comparison.table);
}

#[test]
fn a_budget_that_is_no_whole_number_is_an_error() {
    for text in [
        "list = -1",
        "list = 1.5",
        "list = \"1\"",
        "[list]\nmost = 1",
        "list = 1\nlist = 2",
        "list",
    ] {
        assert!(Budgets::parse(text).is_err(), "{text}");
    }
}

#[test]
fn every_budget_of_the_file_says_what_it_is_for() {
    let text = include_str!("../../bench/budget.toml");
    Budgets::parse(text).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    let silent: Vec<&&str> = lines
        .windows(2)
        .filter(|pair| pair[1].contains(" = ") && !pair[1].starts_with('#'))
        .filter(|pair| !pair[0].starts_with("# "))
        .map(|pair| &pair[1])
        .collect();
    assert_eq!(silent, [&""; 0]);
}

#[test]
fn long_numbers_have_separators() {
    let grouped_all = [0, 999, 1_000, 20_971_520].map(grouped);
    assert_eq!(grouped_all, ["0", "999", "1,000", "20,971,520"]);
}
