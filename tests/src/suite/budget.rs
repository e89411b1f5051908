//! The bench `budget` compares counts with their budgets and names each count that exceeds
//! its budget.

#[path = "../../bench/budget/comparison.rs"]
mod comparison;

use comparison::{Budgets, Count, format_grouped};

fn failures(budgets: &str, counts: &[Count]) -> Vec<String> {
    Budgets::parse(budgets).unwrap().compare(counts).failures
}

#[test]
fn counts_within_budget_pass() {
    let counts = [Count::new("list", 1_000), Count::new("status", 0)];
    assert_eq!(
        failures("list = 1_000\nstatus = 1\n", &counts),
        [""; 0],
        "a budget may be used up"
    );
}

#[test]
fn every_count_over_budget_is_named() {
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
fn count_without_budget_fails() {
    let counts = [Count::new("list", 1), Count::skipped("status")];
    assert_eq!(
        failures("", &counts),
        ["list has no budget", "status has no budget"]
    );
}

#[test]
fn budget_without_count_fails() {
    let counts = [Count::new("list", 1)];
    assert_eq!(
        failures("list = 1\nlst = 1", &counts),
        ["lst has a budget, but nothing counts it"]
    );
}

#[test]
fn skipped_counts_are_shown_and_pass() {
    let budgets = Budgets::parse("list = 1").unwrap();
    let comparison = budgets.compare(&[Count::skipped("list")]);
    assert_eq!(comparison.failures, [""; 0]);
    assert!(comparison.table.contains("skipped"), "{}", comparison.table);
}

#[test]
fn budgets_are_whole_numbers() {
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
fn every_budget_has_a_comment() {
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
    let grouped_all = [0, 999, 1_000, 20_971_520].map(format_grouped);
    assert_eq!(grouped_all, ["0", "999", "1,000", "20,971,520"]);
}
