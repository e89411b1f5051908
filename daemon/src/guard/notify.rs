//! Notifies users who break a rule on their terminals, as each step is decided.
//! `policy::guard::notice` chooses the text and the recipients.

use super::local_time_of;
use crate::log_events::{EventSubject, event};
use crate::terminals::UserTerminals;
use gpukill_policy::guard::CompiledRules;
use gpukill_policy::guard::notice::{Notice, recipients, summarize_rest};
use gpukill_proto::collect::SortIndirect as _;
use gpukill_proto::guard::{GuardAction, GuardRecord, GuardStep, OpenViolation, WarnedOwner};
use gpukill_proto::units::Timestamp;
use std::collections::BTreeMap;
use std::path::Path;

#[cfg(test)]
mod tests;

/// At most this many users are notified after one sample, those with the nearest ends first: each
/// may have many terminals.
const MAX_USERS: usize = 32;

/// At most this many notices are sent to one user; the number of further ones follows in one line.
const MAX_NOTICES: usize = 4;

/// A notice that was sent.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct SentNotice<'a> {
    uid: u32,
    what: NoticeContent<'a>,
    /// The number of the user's terminals that accepted it.
    terminals: u32,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum NoticeContent<'a> {
    Step(&'a GuardRecord),
    /// The number of further notices.
    More(usize),
}

/// Notifies all users that these steps concern, on the terminals below `dev`, if the guard acts;
/// the open violations have how often they may snooze.
pub(super) fn notify_users(
    dev: &Path,
    records: &[GuardRecord],
    rules: &CompiledRules,
    open: &[OpenViolation],
) {
    let people = group_by_user(records);
    if people.is_empty() {
        return;
    }
    let host = rustix::system::uname();
    let host = host.nodename().to_string_lossy();
    let terminals = UserTerminals::find_in(dev);
    let to_say = NoticeContext {
        host: &host,
        most_warnings: rules.rules().enforcement.max_warnings,
        open,
    };
    let sent = send_all(&people, &to_say, |uid, text| terminals.write(uid, text));
    sent.iter().for_each(log_notice);
}

/// The steps that may be reported if the state cannot be saved: then no job is ended, and no user
/// may be notified that one is. Ends that are left to a scheduler are still reported.
pub(super) fn without_ends(mut records: Vec<GuardRecord>) -> Vec<GuardRecord> {
    records.retain(|record| match &record.step {
        GuardStep::Ended(victim) => victim.leave_to.is_some(),
        GuardStep::Violated
        | GuardStep::Warned { .. }
        | GuardStep::Exempt(_)
        | GuardStep::Over
        | GuardStep::Outdated
        | GuardStep::Snoozed { .. }
        | GuardStep::Outcome(_)
        | GuardStep::SnoozeVoided { .. }
        | GuardStep::Doubted(_)
        | GuardStep::Tripped { .. } => true,
    });
    records
}

/// The parts of a notice that are not in the step itself.
struct NoticeContext<'a> {
    host: &'a str,
    most_warnings: u32,
    open: &'a [OpenViolation],
}

impl NoticeContext<'_> {
    /// The deadline of this user, and the remaining snoozes.
    fn warned_user(&self, record: &GuardRecord, uid: u32) -> Option<WarnedOwner> {
        let is_same_violation =
            |open: &&OpenViolation| (&open.rule, &open.subject) == (&record.rule, &record.subject);
        self.open
            .iter()
            .find(is_same_violation)?
            .warned_owner(uid)
            .copied()
    }
}

/// A user with the steps to report, the most urgent first.
type UserNotices<'a> = (u32, Vec<&'a GuardRecord>);

/// The users to notify with their steps, the most urgent first.
fn group_by_user(records: &[GuardRecord]) -> Vec<UserNotices<'_>> {
    let mut of: BTreeMap<u32, Vec<&GuardRecord>> = BTreeMap::new();
    for record in records {
        for uid in recipients(record) {
            of.entry(uid).or_default().push(record);
        }
    }
    let mut people: Vec<UserNotices<'_>> = of.into_iter().collect();
    for (_, records) in &mut people {
        records.sort_indirect_by_key(|record| urgency(record));
    }
    people.sort_indirect_by_key(|(_, records)| records.first().map(|record| urgency(record)));
    people
}

/// Smaller values are more urgent: ends of now, then ends by deadline, then the rest.
fn urgency(record: &GuardRecord) -> (bool, Option<Timestamp>) {
    match &record.step {
        GuardStep::Ended(_) => (false, None),
        GuardStep::Warned { deadline, .. } => (deadline.is_none(), *deadline),
        GuardStep::Violated
        | GuardStep::Exempt(_)
        | GuardStep::Over
        | GuardStep::Outdated
        | GuardStep::Snoozed { .. }
        | GuardStep::Outcome(_)
        | GuardStep::SnoozeVoided { .. }
        | GuardStep::Doubted(_)
        | GuardStep::Tripped { .. } => (true, None),
    }
}

fn send_all<'a>(
    people: &[UserNotices<'a>],
    to_say: &NoticeContext<'_>,
    mut write: impl FnMut(u32, &str) -> u32,
) -> Vec<SentNotice<'a>> {
    let mut sent = Vec::new();
    for (uid, records) in people.iter().take(MAX_USERS) {
        for record in records.iter().take(MAX_NOTICES) {
            let notice = Notice {
                record,
                uid: *uid,
                host: to_say.host,
                max_warnings: to_say.most_warnings,
                reader: to_say.warned_user(record, *uid),
            };
            if let Some(text) = notice.text(local_time_of) {
                sent.push(SentNotice {
                    uid: *uid,
                    what: NoticeContent::Step(record),
                    terminals: write(*uid, &text),
                });
            }
        }
        let more = records.len().saturating_sub(MAX_NOTICES);
        if more > 0 {
            sent.push(SentNotice {
                uid: *uid,
                what: NoticeContent::More(more),
                terminals: write(*uid, &summarize_rest(to_say.host, more)),
            });
        }
    }
    let unnotified = people.len().saturating_sub(MAX_USERS);
    if unnotified > 0 {
        tracing::warn!(
            unnotified,
            "too many users at once: not notified on their terminals"
        );
    }
    sent
}

/// Logs one entry for each notice.
fn log_notice(notice: &SentNotice<'_>) {
    let terminals = notice.terminals;
    let mut affected = EventSubject::default();
    affected.add_uid(Some(notice.uid));
    match notice.what {
        NoticeContent::Step(record) => {
            let (rule, subject) = (record.rule.to_string(), record.subject.to_string());
            let (mode, action) = (record.mode.name(), action(&record.step));
            let [_, uid, _] = affected.fields();
            match terminals {
                0 => event!(
                    OwnerNotified, rule, subject, mode, uid, action, terminals;
                    "no terminal of the user who breaks a rule accepts a message"
                ),
                _ => event!(OwnerNotified, rule, subject, mode, uid, action, terminals),
            }
        }
        NoticeContent::More(count) => {
            let [_, uid, _] = affected.fields();
            event!(
                OwnerNotified, uid, terminals, count;
                "the user who breaks many rules is notified of the number of further ones"
            );
        }
    }
}

/// The action that the notice reports.
const fn action(step: &GuardStep) -> Option<&'static str> {
    match step {
        GuardStep::Warned { .. } => Some(GuardAction::Warn.name()),
        GuardStep::Ended(victim) if victim.leave_to.is_none() => {
            Some(GuardAction::Terminate.name())
        }
        GuardStep::Ended(_) => Some(GuardAction::Warn.name()),
        GuardStep::Violated
        | GuardStep::Exempt(_)
        | GuardStep::Over
        | GuardStep::Outdated
        | GuardStep::Snoozed { .. }
        | GuardStep::Outcome(_)
        | GuardStep::SnoozeVoided { .. }
        | GuardStep::Doubted(_)
        | GuardStep::Tripped { .. } => None,
    }
}
