//! Whole days on a shared box, written down beforehand with the jobs that a careful admin
//! would end: exactly those are ended.
//!
//! A day is a text: `rules:` in TOML, `day:` what happens when, and `ends:` between which
//! times which job is ended. Whoever is chosen gets SIGTERM, has gone ten seconds later,
//! and is recorded where the disk has room.

mod life;

use super::*;
use crate::golden::compare;
use crate::guard::read::read;
use gpukill_proto::guard::GuardMode;
use life::Box;

/// `HH:MM` in minutes.
fn minutes_of(text: &str) -> i64 {
    let (hours, minutes) = text.split_once(':').expect("a time");
    hours.parse::<i64>().unwrap() * 60 + minutes.parse::<i64>().unwrap()
}

/// A part of a day's text, without comments.
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

/// Plays a day, and compares whom it ends with who is to be ended. What was told of it.
fn play(text: &str, devices: usize) -> String {
    let rules = part(text, "rules:\n", Some("\nday:\n"));
    let mut it = Box::new(rules, devices);
    assert!(it.guard.book.rules().mode > GuardMode::DryRun);
    for (time, what) in lines(part(text, "\nday:\n", Some("\nends:"))) {
        it.until(minutes_of(time));
        it.happens(what.trim());
    }
    it.until(24 * 60);
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
    assert!(wrong.is_empty(), "{wrong:#?}\n{}", it.told);
    it.told
}

#[test]
fn on_a_day_of_a_lab_exactly_those_are_ended_whom_its_admin_would_end() {
    compare("guard/day-lab", &play(include_str!("days/lab.txt"), 4));
}

/// Written by somebody who had seen neither the guard nor the other day.
#[test]
fn on_a_strangers_day_exactly_those_are_ended_whom_they_would_end() {
    play(include_str!("days/second.txt"), 8);
}
