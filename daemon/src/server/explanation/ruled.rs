//! What the guard says of one process: the rules that it breaks, and what holds for its
//! owner.

use super::Asker;
use crate::audit::{Accounts, about};
use crate::server::sight::{Sight, is_part, is_part_of_simulated};
use gpukill_policy::guard::about::{About, person_of};
use gpukill_policy::guard::limits::{Limit, of, protected, replaced};
use gpukill_policy::guard::rules::PersonBy;
use gpukill_policy::guard::schedule::Civil;
use gpukill_policy::guard::{Rulebook, SimulatedEnd};
use gpukill_proto::collect::IntoMap as _;
use gpukill_proto::guard::{GuardMode, HeldTo, JudgedAs, MOST_RULED, OpenViolation, Ruled};
use gpukill_proto::reading::Reading;
use gpukill_proto::snapshot::{GpuProcess, Snapshot};
use std::collections::BTreeMap;

/// What the guard knows now.
#[derive(Clone, Copy)]
pub(in crate::server) struct Judged<'a> {
    /// The rules in force.
    pub(in crate::server) book: &'a Rulebook,
    /// Whether the guard ends nobody any more, as too many were ended.
    pub(in crate::server) is_stopped: bool,
    /// The violations that go on.
    pub(in crate::server) open: &'a [OpenViolation],
    /// The jobs that would have been ended in a dry run, and are there still.
    pub(in crate::server) simulated: &'a [SimulatedEnd],
    /// Now, as the box's people count time.
    pub(in crate::server) civil: Civil,
    /// The names of a user's groups, where they are known.
    pub(in crate::server) groups: &'a dyn Fn(u32) -> Option<Vec<String>>,
    /// The accounts that processes name.
    pub(in crate::server) accounts: &'a Accounts,
}

/// What it says of the process of this pid, to whoever asks.
pub(super) fn ruled(snapshot: &Snapshot, pid: u32, asker: &Asker<'_>) -> Reading<Ruled> {
    let mut processes = snapshot.processes.iter();
    // One that is no process here is not judged.
    let process = processes.find(|process| process.pid == pid && process.key().is_some());
    let Some(process) = process else {
        return Reading::Unsupported;
    };
    let sight = Sight {
        caller: asker.caller,
        roles: asker.roles,
    };
    if !sight.of_process(process) {
        return Reading::Withheld;
    }
    let Judged {
        book,
        is_stopped,
        open,
        simulated,
        ..
    } = asker.judged;
    let (mode, by) = (book.rules().mode, book.rules().person);
    if mode == GuardMode::Disabled {
        return Reading::Value(Ruled {
            mode,
            ..Ruled::default()
        });
    }
    let its = simulated
        .iter()
        .filter(|end| is_part_of_simulated(end, process));
    let its: Vec<&OpenViolation> = its.map(|end| &end.violation).take(MOST_RULED).collect();
    let is_simulated = |open: &OpenViolation| its.iter().any(|it| it.rule == open.rule);
    let violations = open.iter().filter(|open| is_part(open, by, process));
    let violations = violations.filter(|open| !is_simulated(open));
    let violations = violations.take(MOST_RULED);
    let owner = person_of(process, by).and_then(|person| person.uid);
    let about = about_now(&asker.judged, process);
    let protected = protected(book, &about);
    let told = |open| sight.open_of(open, (pid, owner), book);
    Reading::Value(Ruled {
        mode,
        is_stopped: is_stopped && mode > GuardMode::DryRun,
        violations: violations.map(told).collect(),
        would_have_ended: its.iter().copied().map(told).collect(),
        limits: match protected {
            Some(_) => Vec::new(),
            None => limits(&asker.judged, &about),
        },
        protected,
        judged_as: judged_as(by, process),
    })
}

/// Whom rules that go by this person mean by a process.
fn judged_as(by: PersonBy, process: &GpuProcess) -> JudgedAs {
    // Who it is hangs on nobody's groups.
    let about = About::of(process, &BTreeMap::new());
    match (about.person(by), &about.owner) {
        (Some(person), Some(owner)) if person.uid != owner.uid => JudgedAs::Login(person),
        (None, Some(_)) => JudgedAs::Unknown,
        (Some(_) | None, _) => JudgedAs::Owner,
    }
}

/// What rules may know of it.
fn about_now(judged: &Judged<'_>, process: &GpuProcess) -> About {
    let owner = process.owner.last_known().and_then(|owner| owner.uid);
    let people = owner.into_iter().chain(process.login());
    let groups = people.filter_map(|uid| Some((uid, (judged.groups)(uid)?)));
    let groups: BTreeMap<u32, Vec<String>> = groups.into_map();
    about(process, &groups, judged.accounts)
}

/// What holds for its owner now, and in whose place.
fn limits(judged: &Judged<'_>, about: &About) -> Vec<HeldTo> {
    let mut others = replaced(judged.book, about, judged.civil);
    let limits = of(judged.book, about, judged.civil).into_iter();
    let limits = limits.take(MOST_RULED).map(|Limit { rule, limit }| {
        // The first of its kind is the one that replaces: what is said of a time or of
        // a group's total holds besides.
        let its = others.extract_if(.., |other| other.rule.kind == rule.kind);
        let its = its.filter_map(|other| Some((other.rule, other.limit?)));
        let mut replaces: Vec<_> = its.collect();
        replaces.truncate(MOST_RULED);
        HeldTo {
            rule,
            limit,
            replaces,
        }
    });
    limits.collect()
}
