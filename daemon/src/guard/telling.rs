//! Tells whoever breaks a rule on their terminals, as each step is decided. What is said,
//! and to whom, is `policy::guard::notice`'s.

use super::civil_of;
use crate::catalogue::{About, tell};
use crate::terminals::Terminals;
use gpukill_policy::guard::notice::{Notice, besides, whom};
use gpukill_policy::guard::{Memory, Rulebook};
use gpukill_proto::collect::SortIndirect as _;
use gpukill_proto::guard::{GuardAction, GuardRecord, GuardStep, OpenViolation, Reader};
use gpukill_proto::units::Timestamp;
use std::collections::BTreeMap;
use std::path::Path;

#[cfg(test)]
mod tests;

/// So many people are told after one sample, those of whom something ends first before
/// others: each may have many terminals.
const MOST_PEOPLE: usize = 32;

/// So much is said to one person one by one; that there is more besides, in one line.
const MOST_SAID: usize = 4;

/// What somebody was told.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Told<'a> {
    uid: u32,
    what: What<'a>,
    /// So many of their terminals took it.
    terminals: u32,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum What<'a> {
    Step(&'a GuardRecord),
    /// That there are so many more.
    Besides(usize),
}

/// On terminals below `dev`, tells all whom these steps are about, where the guard does what it says; `memory` knows
/// how often they may ask for more time.
pub(super) fn tell_owners(dev: &Path, records: &[GuardRecord], book: &Rulebook, memory: &Memory) {
    let people = people(records);
    if people.is_empty() {
        return;
    }
    let host = rustix::system::uname();
    let host = host.nodename().to_string_lossy();
    let terminals = Terminals::below(dev);
    let to_say = ToSay {
        host: &host,
        most_warnings: book.rules().enforcement.max_warnings,
        open: &memory.violations(),
    };
    let told = tell_each(&people, &to_say, |uid, text| terminals.write(uid, text));
    told.iter().for_each(log);
}

/// What can be told of these where nothing can be written down: then no job is begun, and
/// nobody reads that theirs is ended. What a scheduler is asked to end is told all the same.
pub(super) fn but_for_ends(mut records: Vec<GuardRecord>) -> Vec<GuardRecord> {
    records.retain(|record| match &record.step {
        GuardStep::Ended(victim) => victim.leave_to.is_some(),
        GuardStep::Violated
        | GuardStep::Warned { .. }
        | GuardStep::Spared(_)
        | GuardStep::Over
        | GuardStep::Outdated
        | GuardStep::Snoozed { .. }
        | GuardStep::Acted(_)
        | GuardStep::SnoozeVoided { .. }
        | GuardStep::Doubted(_)
        | GuardStep::Tripped { .. } => true,
    });
    records
}

/// What is to be said besides what happened.
struct ToSay<'a> {
    host: &'a str,
    most_warnings: u32,
    open: &'a [OpenViolation],
}

impl ToSay<'_> {
    /// How much time this user has, and how often they may ask for more.
    fn reader(&self, record: &GuardRecord, uid: u32) -> Option<Reader> {
        let is_it =
            |open: &&OpenViolation| (&open.rule, &open.subject) == (&record.rule, &record.subject);
        self.open.iter().find(is_it)?.reader(uid).copied()
    }
}

/// A user, and what they are to be told, the most urgent first.
type Addressed<'a> = (u32, Vec<&'a GuardRecord>);

/// Who is to be told what; whom it is most urgent for, first.
fn people(records: &[GuardRecord]) -> Vec<Addressed<'_>> {
    let mut of: BTreeMap<u32, Vec<&GuardRecord>> = BTreeMap::new();
    for record in records {
        for uid in whom(record) {
            of.entry(uid).or_default().push(record);
        }
    }
    let mut people: Vec<Addressed<'_>> = of.into_iter().collect();
    for (_, theirs) in &mut people {
        theirs.sort_indirect_by_key(|record| urgency(record));
    }
    people.sort_indirect_by_key(|(_, theirs)| theirs.first().map(|record| urgency(record)));
    people
}

/// The less the more urgent: what ends now, what ends first, what does not end.
fn urgency(record: &GuardRecord) -> (bool, Option<Timestamp>) {
    match &record.step {
        GuardStep::Ended(_) => (false, None),
        GuardStep::Warned { deadline, .. } => (deadline.is_none(), *deadline),
        GuardStep::Violated
        | GuardStep::Spared(_)
        | GuardStep::Over
        | GuardStep::Outdated
        | GuardStep::Snoozed { .. }
        | GuardStep::Acted(_)
        | GuardStep::SnoozeVoided { .. }
        | GuardStep::Doubted(_)
        | GuardStep::Tripped { .. } => (true, None),
    }
}

fn tell_each<'a>(
    people: &[Addressed<'a>],
    to_say: &ToSay<'_>,
    mut write: impl FnMut(u32, &str) -> u32,
) -> Vec<Told<'a>> {
    let mut told = Vec::new();
    for (uid, theirs) in people.iter().take(MOST_PEOPLE) {
        for record in theirs.iter().take(MOST_SAID) {
            let notice = Notice {
                record,
                uid: *uid,
                host: to_say.host,
                most_warnings: to_say.most_warnings,
                reader: to_say.reader(record, *uid),
            };
            if let Some(text) = notice.text(civil_of) {
                told.push(Told {
                    uid: *uid,
                    what: What::Step(record),
                    terminals: write(*uid, &text),
                });
            }
        }
        let more = theirs.len().saturating_sub(MOST_SAID);
        if more > 0 {
            told.push(Told {
                uid: *uid,
                what: What::Besides(more),
                terminals: write(*uid, &besides(to_say.host, more)),
            });
        }
    }
    let untold = people.len().saturating_sub(MOST_PEOPLE);
    if untold > 0 {
        tracing::warn!(
            untold,
            "too many people at once: not told on their terminals"
        );
    }
    told
}

/// One entry for each text.
fn log(told: &Told<'_>) {
    let terminals = told.terminals;
    let mut about = About::default();
    about.uid(Some(told.uid));
    match told.what {
        What::Step(record) => {
            let (rule, subject) = (record.rule.to_string(), record.subject.to_string());
            let (mode, action) = (record.mode.name(), action(&record.step));
            let [_, uid, _] = about.fields();
            match terminals {
                0 => tell!(
                    OwnerTold, rule, subject, mode, uid, action, terminals;
                    "no terminal of whoever breaks a rule takes a message"
                ),
                _ => tell!(OwnerTold, rule, subject, mode, uid, action, terminals),
            }
        }
        What::Besides(count) => {
            let [_, uid, _] = about.fields();
            tell!(
                OwnerTold, uid, terminals, count;
                "whoever breaks many rules is told of the others by their number"
            );
        }
    }
}

/// What they are told of.
const fn action(step: &GuardStep) -> Option<&'static str> {
    match step {
        GuardStep::Warned { .. } => Some(GuardAction::Warn.name()),
        GuardStep::Ended(victim) if victim.leave_to.is_none() => {
            Some(GuardAction::Terminate.name())
        }
        GuardStep::Ended(_) => Some(GuardAction::Warn.name()),
        GuardStep::Violated
        | GuardStep::Spared(_)
        | GuardStep::Over
        | GuardStep::Outdated
        | GuardStep::Snoozed { .. }
        | GuardStep::Acted(_)
        | GuardStep::SnoozeVoided { .. }
        | GuardStep::Doubted(_)
        | GuardStep::Tripped { .. } => None,
    }
}
