//! What in rules is right and yet hardly meant: what can never hold, what contradicts
//! itself, what has no effect.
//!
//! Each part of the file has its own: the [`whole`], what is said of [`people`], of
//! devices and hours ([`places`]), of what processes do ([`behaviours`]), and what of
//! all this is said [`twice`]. What there is nothing of on one box is told by [`here`].

mod whole;

mod people;

mod places;

mod behaviours;

mod twice;

pub mod here;

use super::read::field::key;
use super::rules::{Limits, Measures, Rules};
use super::schedule::Hours;
use gpukill_proto::collect::IntoSet as _;
use gpukill_proto::collect::SortIndirect as _;
use gpukill_proto::guard::edit::{PolicyKind, Warning};
use gpukill_proto::units::{Bytes, Percent};
use std::collections::BTreeSet;
use std::time::Duration;

/// All GPUs of a box have less together, by far: those of 2026 have at most 16 of less
/// than 300 GB each.
const MOST_MEMORY: Bytes = Bytes(100 << 40);

/// What is hardly meant, in the order of the lines.
#[must_use]
pub fn warnings(rules: &Rules) -> Vec<Warning> {
    let mut found = Odd {
        rules,
        warnings: Vec::new(),
    };
    whole::check(&mut found);
    people::check(&mut found);
    places::check(&mut found);
    behaviours::check(&mut found);
    twice::check(&mut found);
    let mut warnings = found.warnings;
    warnings.sort_indirect();
    warnings
}

/// The number of a user who is named so, where that is the same on every box.
fn number(typed: &str) -> Option<u32> {
    let is_number = |typed: &&str| typed.bytes().all(|byte| byte.is_ascii_digit());
    match typed {
        "root" => Some(0),
        typed => Some(typed).filter(is_number)?.parse().ok(),
    }
}

/// Whether two names are of one user on every box.
fn is_same_user(some: &str, other: &str) -> bool {
    some == other || (number(some).is_some() && number(some) == number(other))
}

/// What was found so far.
struct Odd<'a> {
    rules: &'a Rules,
    warnings: Vec<Warning>,
}

/// Where a policy stands.
fn path(kind: PolicyKind, name: &str) -> String {
    format!("{}.{}", kind.table(), key(name))
}

impl Odd<'_> {
    /// Something is odd about what stands there.
    fn warn(&mut self, path: &str, what: impl Into<String>) {
        // Of a key that is not written, the table says where it would be.
        let mut at = Some(path);
        let mut place = None;
        while let Some(path) = at.filter(|_| place.is_none()) {
            place = self.rules.places.get(path).copied();
            at = path.rsplit_once('.').map(|(table, _)| table);
        }
        self.warnings.push(Warning {
            place,
            path: path.to_owned(),
            what: what.into(),
        });
    }

    /// Whether a key is written there.
    fn says(&self, path: &str) -> bool {
        self.rules.places.contains_key(path)
    }

    /// A limit of nothing, of whomever but one person, and one that nothing breaks.
    fn limits(&mut self, path: &str, prefix: &str, limits: &Limits) {
        let zero = [
            ("memory_limit_gb", limits.memory == Some(Bytes(0))),
            (
                "duration_limit_hours",
                limits.duration == Some(Duration::ZERO),
            ),
            ("max_concurrent_processes", limits.processes == Some(0)),
        ];
        for (name, is_zero) in zero {
            if is_zero {
                let what = "nobody may use any GPU";
                self.warn(&format!("{path}.{prefix}{name}"), what);
            }
        }
        self.never_more(
            &format!("{path}.{prefix}utilization_limit_pct"),
            limits.utilization,
        );
        self.too_much(&format!("{path}.{prefix}memory_limit_gb"), limits.memory);
    }

    /// More memory than there is anywhere limits nobody.
    fn too_much(&mut self, path: &str, limit: Option<Bytes>) {
        if let Some(limit) = limit.filter(|limit| *limit > MOST_MEMORY) {
            let limit = limit.as_gib();
            let what =
                format!("{limit} GiB are more than the GPUs of any box have: limits are in GiB");
            self.warn(path, what);
        }
    }

    /// Nothing is used more than all the time.
    fn never_more(&mut self, path: &str, limit: Option<Percent>) {
        if limit == Some(Percent(100)) {
            self.warn(path, "utilisation is never over 100, so this never holds");
        }
    }

    /// Users of whom no rule is.
    fn protects(&self, user: &str) -> bool {
        let mut protected = self.rules.protect.users.iter();
        protected.any(|it| is_same_user(it, user))
    }

    /// Those whom a list forbids something, and [protect] spares.
    fn spared(&mut self, path: &str, users: &[String]) {
        let spared = users.iter().filter(|user| self.protects(user));
        let spared: Vec<&str> = spared.map(String::as_str).collect();
        if !spared.is_empty() {
            let spared = spared.join(", ");
            let what = format!("[protect] lists {spared}: nothing is ever judged of them");
            self.warn(path, what);
        }
    }

    /// What a policy asks for, and does not get.
    fn measures(&mut self, path: &str, measures: &Measures) {
        let whole = self.rules.rehearsed.mode();
        let Some(mode) = measures.mode.filter(|mode| *mode > whole) else {
            return;
        };
        let (mode, whole) = (mode.name(), whole.name());
        let what = format!("\"{mode}\" goes further than the whole, which is {whole}: that counts");
        self.warn(&format!("{path}.mode"), what);
    }

    /// A window that is longer than it looks.
    fn hours(&mut self, path: &str, hours: &Hours) {
        if hours.from == hours.to {
            let what = "it begins and ends at the same time: it lasts a whole day";
            self.warn(&format!("{path}.end_time"), what);
        }
    }

    /// Whether it is always that time.
    fn is_always(hours: &Hours) -> bool {
        let is_whole_day = hours.from == hours.to || (hours.from, hours.to) == (0, 24 * 60);
        is_whole_day && (hours.days.is_empty() || hours.days.len() == 7)
    }

    /// What is both allowed and blocked.
    fn both<T: Ord + Clone + std::fmt::Display>(
        &mut self,
        path: &str,
        (allowed_key, allowed): (&str, &[T]),
        (blocked_key, blocked): (&str, &[T]),
    ) {
        let blocked: BTreeSet<&T> = blocked.iter().into_set();
        let both: Vec<&T> = allowed.iter().filter(|it| blocked.contains(it)).collect();
        if both.is_empty() {
            return;
        }
        let path = format!("{path}.{allowed_key}");
        if both.len() == allowed.len() {
            self.warn(
                &path,
                format!("nothing is left: all are in {blocked_key}, which wins"),
            );
            return;
        }
        let named: Vec<String> = both.iter().map(ToString::to_string).collect();
        let named = named.join(", ");
        self.warn(
            &path,
            format!("{blocked_key} wins: not allowed are {named}"),
        );
    }
}

#[cfg(test)]
mod tests;
