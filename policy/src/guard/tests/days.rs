//! Whole days on a shared host, written beforehand together with the jobs that a careful
//! admin would end. Exactly those must be ended.
//!
//! A day is a text: `rules:` in TOML, `day:` with events and their times, and `ends:` with
//! the ended jobs, each with the earliest and latest time. A chosen job gets SIGTERM and is
//! gone ten seconds later; the violation is recorded if the disk has room.

mod life;

use super::*;
use crate::golden::compare;
use crate::guard::rules::parse::parse;
use gpukill_proto::guard::GuardMode;
use life::ScriptedDay;

/// `HH:MM` in minutes.
fn minutes_of(text: &str) -> i64 {
    let (hours, minutes) = text.split_once(':').expect("a time");
    hours.parse::<i64>().unwrap() * 60 + minutes.parse::<i64>().unwrap()
}

/// A part of the text of a day, without comments.
fn part<'t>(text: &'t str, from: &str, until: Option<&str>) -> &'t str {
    let text = text.split_once(from).expect("it has this part").1;
    until.map_or(text, |until| text.split_once(until).expect("and that").0)
}

fn lines(part: &str) -> impl Iterator<Item = (&str, &str)> {
    let lines = part.lines().map(str::trim);
    let lines = lines.filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines.map(|line| {
        line.split_once(char::is_whitespace)
            .expect("a time, and what")
    })
}

/// Plays a day and compares the ended jobs with the expected ones. Returns what was
/// recorded.
fn play(text: &str, devices: usize) -> String {
    let rules = part(text, "rules:\n", Some("\nday:\n"));
    let mut it = ScriptedDay::new(rules, devices);
    assert!(it.guard.compiled_rules.rules().mode > GuardMode::DryRun);
    for (time, what) in lines(part(text, "\nday:\n", Some("\nends:"))) {
        it.run_until(minutes_of(time));
        it.run_event(what.trim());
    }
    it.run_until(24 * 60);
    let mut wrong = Vec::new();
    let mut ended = it.ended.clone();
    for (window, job) in lines(part(text, "\nends:", None)) {
        let (from, until) = window.split_once('-').expect("two times");
        let is_it = |(at, ended): &(String, String)| {
            let at = minutes_of(at);
            ended == job.trim() && (minutes_of(from)..=minutes_of(until)).contains(&at)
        };
        match ended.iter().position(is_it) {
            Some(position) => _ = ended.remove(position),
            None => wrong.push(format!("{job} is not ended in {window}")),
        }
    }
    wrong.extend(
        ended
            .iter()
            .map(|(at, job)| format!("{job} is ended at {at}")),
    );
    assert!(wrong.is_empty(), "{wrong:#?}\n{}", it.log);
    it.log
}

#[test]
fn lab_day_ends_the_expected_jobs() {
    compare("guard/day-lab", &play(include_str!("days/lab.txt"), 4));
}

/// Written by an author who knew neither the guard nor the other day.
#[test]
fn second_day_ends_the_expected_jobs() {
    play(include_str!("days/second.txt"), 8);
}
