//! Each known cause of memory that no process explains: is it here, and what
//! says so?

use super::remedy;
use super::role::{explains_itself, is_adopted, lives_and_is_listed};
use super::words::{NAMED, called_first, ended, inside, of_number, pids, size, who};
use super::{Seen, is_gone};
use crate::memory::noise;
use gpukill_proto::holders::{Cause, EndedHolder, Finding, Holder, ProcessState, Remedy, Role};
use gpukill_proto::reading::Reading;
use gpukill_proto::text::{LISTED_BEFORE, duration};
use gpukill_proto::units::{Bytes, Timestamp};
use std::collections::BTreeSet;
use std::time::Duration;

/// The longest that the memory of a process that has ended takes to come back
/// and is still put down to that.
const TEARING_DOWN: Duration = Duration::from_secs(30);

/// A device that is busy at nothing works at least so much, for so long: those
/// that were seen stood at 100 % for good.
const BUSY_PERCENT: u32 = 90;
const BUSY_ALONE: Duration = Duration::from_secs(30);

pub(super) fn orphans(seen: &Seen<'_>) -> Option<Finding> {
    let orphans = seen.having(|role| matches!(role, Role::Orphan { .. }));
    let first = orphans.first()?;
    let mut evidence = vec![open_and_not_listed(&orphans)];
    let its = of_number(orphans.len(), "its", "their");
    let mut said = BTreeSet::new();
    for (holder, role) in &seen.roles {
        let Role::Orphan { of: Some(of), .. } = role else {
            continue;
        };
        if said.len() == NAMED || !said.insert(*of) {
            continue;
        }
        let leads = holder.group.known() == Some(of);
        if leads && holder.group_leader_is_here.known() == Some(&false) {
            evidence.push(format!("{its} process group's leader {of} is gone"));
        }
        evidence.extend(seen.ended(*of).map(|holder| ended(holder, seen.now)));
    }
    if orphans.iter().all(|holder| is_adopted(holder)) {
        let parent = first.parent.last_known().copied().unwrap_or(1);
        evidence.push(format!(
            "{its} parent is {parent}, which takes in the children of those that end"
        ));
    }
    let remedy = remedy::end(seen, &orphans);
    Some(seen.finding(Cause::Orphans, &orphans, evidence, remedy))
}

/// Memory on its way back, and how much nobody explained before already: that is
/// not theirs, and does not come back with it.
pub(super) fn tearing_down(seen: &Seen<'_>, remainder: Bytes) -> Option<(Finding, Bytes)> {
    let ended_now = seen.device.ended.iter();
    let just_ended: Vec<_> = ended_now
        .filter(|ended| is_recent(ended.at, seen.now) && held_some(ended))
        .filter(|ended| ended.unexplained_before.known().is_some())
        .collect();
    // The first that ended comes first: the next one finds unexplained what that
    // one held.
    let (mut before, mut held) = (Bytes(0), 0u64);
    for ended in just_ended.iter().rev() {
        let unexplained = ended.unexplained_before.known().map_or(0, |it| it.0);
        before = before.max(Bytes(unexplained.saturating_sub(held)));
        held = held.saturating_add(ended.memory.known().map_or(0, |it| it.0));
    }
    let theirs = Bytes(remainder.0.saturating_sub(before.0));
    let total = seen.device.memory_total.known().copied();
    // A part of it may be back already.
    let most = held.saturating_add(noise(total.unwrap_or_default()).0);
    if just_ended.is_empty() || theirs == Bytes(0) || theirs.0 > most {
        return None;
    }
    let named = just_ended.iter().take(NAMED);
    let mut evidence: Vec<String> = named.map(|holder| ended(holder, seen.now)).collect();
    let more = just_ended.len().saturating_sub(NAMED);
    if more > 0 {
        evidence.push(format!("{more} more have just ended"));
    }
    evidence.push(format!("{} are not back yet", size(theirs)));
    if before > Bytes(0) {
        let more = size(before);
        evidence.push(format!(
            "{more} more were used before that, and nothing explained them"
        ));
    }
    let mut finding = seen.finding(Cause::TearingDown, &[], evidence, Some(Remedy::Wait));
    finding.pids = just_ended
        .iter()
        .map(|ended| ended.key.pid)
        .take(super::MOST)
        .collect();
    Some((finding, before))
}

/// Whether it is known to have held memory that is worth a word.
fn held_some(ended: &EndedHolder) -> bool {
    ended.memory.known().is_some_and(|it| it.as_mib() > 0)
}

/// Whether it was within the time that tearing down takes. What the clock has
/// yet to come to, because it was put back, is not.
fn is_recent(at: Timestamp, now: Timestamp) -> bool {
    at <= now && now.since(at) <= TEARING_DOWN
}

pub(super) fn uninterruptible(seen: &Seen<'_>) -> Option<Finding> {
    let stuck = seen.having(|role| role == Role::Uninterruptible);
    let place = |holder: &Holder| match holder.state.known() {
        Some(ProcessState::Uninterruptible(place)) => place.clone(),
        _ => None,
    };
    let sentences = stuck.iter().take(NAMED);
    let evidence = sentences.map(|holder| match place(holder) {
        Some(place) => format!("{} waits in the kernel, in {place}", who(holder)),
        None => format!(
            "{} waits in the kernel, which does not say where",
            who(holder)
        ),
    });
    let evidence = evidence
        .chain(["no signal reaches it there".to_owned()])
        .collect();
    // From one sight nobody knows whether it stays so.
    (!stuck.is_empty())
        .then(|| seen.finding(Cause::Uninterruptible, &stuck, evidence, Some(Remedy::Wait)))
}

pub(super) fn zombie(seen: &Seen<'_>) -> Option<Finding> {
    let zombies = seen.having(|role| role == Role::Zombie);
    let evidence = zombies.iter().take(NAMED).map(|holder| {
        let parent = match (holder.parent.last_known(), holder.parent_name.last_known()) {
            (Some(parent), Some(name)) => format!("its parent {parent} ({name})"),
            (Some(parent), None) => format!("its parent {parent}"),
            (None, _) => "its parent".to_owned(),
        };
        format!("{} has ended, and {parent} has not asked how", who(holder))
    });
    let evidence = evidence.collect();
    (!zombies.is_empty()).then(|| {
        let remedy = reaping(&zombies);
        seen.finding(Cause::Zombie, &zombies, evidence, remedy)
    })
}

/// Who has to reap. No parent is ended for that by a command: it may be at work.
/// Process 1 reaps all that it is given; 0 is a parent of whom nothing is known.
fn reaping(zombies: &[&Holder]) -> Option<Remedy> {
    let mut parents = zombies.iter().filter_map(|holder| holder.parent.known());
    match parents.find(|parent| **parent != 0)? {
        1 => Some(Remedy::Wait),
        parent => Some(Remedy::Reap(*parent)),
    }
}

pub(super) fn other_namespace(seen: &Seen<'_>) -> Option<Finding> {
    let inner = seen.having(|role| role == Role::OtherNamespace);
    let named = inner.iter().take(NAMED);
    let mut evidence: Vec<String> = named
        .map(|holder| {
            let (who, inside) = (who(holder), inside(holder));
            format!("{who} has it open, runs {inside}, and the driver does not list it")
        })
        .collect();
    let more = inner.len().saturating_sub(NAMED);
    if more > 0 {
        evidence.push(format!(
            "{more} more like {}",
            of_number(more, "it", "them")
        ));
    }
    (!inner.is_empty()).then(|| seen.finding(Cause::OtherNamespace, &inner, evidence, None))
}

pub(super) fn mps(seen: &Seen<'_>) -> Option<Finding> {
    let clients: Vec<u32> = seen
        .having(|role| role == Role::MpsClient)
        .iter()
        .map(|c| c.pid)
        .collect();
    let mut servers = seen.having(|role| role == Role::Mps);
    servers.retain(|server| {
        let has_it = server.listed || server.holds_this_device;
        has_it && (!clients.is_empty() || !explains_itself(server))
    });
    let server = servers.first()?;
    let evidence = vec![
        format!("{} holds memory for its clients", who(server)),
        match clients.len() {
            0 => "it has none now".to_owned(),
            n => format!(
                "{} {} listed as such",
                pids(&clients),
                of_number(n, "is", "are")
            ),
        },
    ];
    Some(seen.finding(Cause::Mps, &servers, evidence, None))
}

pub(super) fn unlisted(seen: &Seen<'_>) -> Option<Finding> {
    let unlisted = seen.having(|role| matches!(role, Role::Unlisted | Role::Passed));
    let passed = seen.having(|role| role == Role::Passed);
    let mut evidence = vec![open_and_not_listed(&unlisted)];
    if !passed.is_empty() {
        evidence.push(passed_on(&passed));
    }
    (!unlisted.is_empty()).then(|| seen.finding(Cause::Unlisted, &unlisted, evidence, None))
}

pub(super) fn display(seen: &Seen<'_>) -> Option<Finding> {
    let mut drawing = seen.having(|role| role == Role::Display);
    drawing
        .retain(|holder| (holder.listed || holder.holds_this_device) && !explains_itself(holder));
    let named = drawing.iter().take(NAMED);
    let evidence = named
        .map(|holder| format!("{} draws on it", who(holder)))
        .collect();
    (!drawing.is_empty()).then(|| seen.finding(Cause::Display, &drawing, evidence, None))
}

pub(super) fn busy_alone(seen: &Seen<'_>) -> Option<Finding> {
    let device = seen.device;
    let percent = device.utilization.known()?.0;
    let length = seen.now.since(device.busy_alone_since?);
    let is_held = device
        .holders
        .iter()
        .any(|holder| holder.listed || holder.holds_this_device);
    if percent < BUSY_PERCENT || length < BUSY_ALONE || is_held || device.unseen.is_some() {
        return None;
    }
    let evidence = vec![
        format!(
            "it has worked at {percent} % for {}, without a pause",
            duration(length)
        ),
        "the open files of every process were looked at, and it is not among them".to_owned(),
    ];
    Some(seen.finding(Cause::BusyAlone, &[], evidence, Some(Remedy::Reset)))
}

pub(super) fn unknown(seen: &Seen<'_>, remainder: Bytes) -> Finding {
    let used = format!("{} are used, and nothing explains them", size(remainder));
    seen.finding(Cause::Unknown, &[], looked_for(seen, used), None)
}

/// Of what nobody explained before those ended whose memory is on its way back.
pub(super) fn unknown_before(seen: &Seen<'_>, before: Bytes) -> Finding {
    let used = format!(
        "{} have been used for longer, and nothing explains them",
        size(before)
    );
    seen.finding(Cause::Unknown, &[], looked_for(seen, used), None)
}

/// What is used, and where whoever holds it was looked for.
fn looked_for(seen: &Seen<'_>, used: String) -> Vec<String> {
    const LOOKED: &str = "the open files of every process were looked at";
    if seen.device.unseen.is_some() {
        return vec![used];
    }
    let is_listed = seen.device.holders.iter().any(lives_and_is_listed);
    let looked = if !remedy::so_called_monitors(seen).is_empty() {
        LOOKED.to_owned()
    } else if is_listed {
        format!("{LOOKED}, and none that could hold them has it open but those that are listed")
    } else {
        format!("{LOOKED}, and none that could hold them has it open")
    };
    vec![used, looked]
}

/// Of a device whose readings are not of now, nothing is decided.
pub(super) fn stale(seen: &Seen<'_>, seconds: u32) -> Finding {
    let evidence = vec![format!("the readings are {seconds} s old")];
    seen.finding(Cause::Unknown, &[], evidence, None)
}

/// Those that are no candidates by nothing but their name.
pub(super) fn monitors_by_name(seen: &Seen<'_>, cause: Cause) -> Vec<String> {
    // Without a cause nobody else is said to have it open.
    let too = if cause == Cause::Unknown { "" } else { " too" };
    let monitors = remedy::so_called_monitors(seen).into_iter();
    let sentence = |holder| {
        let who = called_first(holder);
        format!("{who} has it open{too}, and is taken for a monitor by its name only")
    };
    monitors.take(NAMED).map(sentence).collect()
}

/// What the driver lists under pids that are no processes here.
pub(super) fn listed_and_gone(seen: &Seen<'_>) -> Vec<String> {
    let gone = seen.device.holders.iter().filter(|holder| is_gone(holder));
    let sentence = |holder: &Holder| {
        let what = match &holder.start_ticks {
            Reading::Failed(why) if why == LISTED_BEFORE => LISTED_BEFORE,
            Reading::Stale(..) => "which has ended",
            Reading::Failed(_) | Reading::Value(_) | Reading::Unsupported | Reading::Withheld => {
                "which is no process here"
            }
        };
        match holder.memory.known() {
            Some(held) => format!(
                "the driver lists {} under {}, {what}",
                size(*held),
                holder.pid
            ),
            None => format!("the driver lists {}, {what}", holder.pid),
        }
    };
    gone.take(NAMED).map(sentence).collect()
}

/// What a search that was not complete leaves open.
pub(super) fn others_may_hold_it(why: &str) -> String {
    format!("not every process could be looked at, so that others may have it open: {why}")
}

/// Why the memory of what these hold is nobody's.
fn passed_on(holders: &[&Holder]) -> String {
    let numbers: Vec<u32> = holders.iter().map(|holder| holder.pid).collect();
    format!(
        "{} {} a descriptor that was passed between processes of several users: its memory is \
         counted for nobody",
        pids(&numbers),
        of_number(numbers.len(), "holds", "hold")
    )
}

fn open_and_not_listed(holders: &[&Holder]) -> String {
    match holders {
        [one] => format!("{} has it open, and the driver does not list it", who(one)),
        several => {
            let numbers: Vec<u32> = several.iter().map(|holder| holder.pid).collect();
            format!(
                "{} have it open, and the driver does not list them",
                pids(&numbers)
            )
        }
    }
}
