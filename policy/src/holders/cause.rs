//! The known causes of unattributed memory: whether each applies, and its evidence.

use super::evidence_text::{
    MAX_NAMED, describe_by_name, describe_ended, describe_holder, describe_namespace, format_size,
    join_pids, singular_or_plural,
};
use super::remedy;
use super::role::{has_known_memory, is_adopted, is_alive_and_listed};
use super::{DeviceEvidence, is_gone};
use crate::memory::noise_threshold;
use gpukill_proto::holders::{
    Cause, EndedHolder, Holder, HolderFinding, ProcessState, Remedy, Role,
};
use gpukill_proto::reading::Reading;
use gpukill_proto::text::{LISTED_BEFORE_START, format_duration};
use gpukill_proto::units::{Bytes, Timestamp};
use std::collections::BTreeSet;
use std::time::Duration;

/// Maximum time after the end of a process in which missing memory still counts as
/// being torn down.
const TEARDOWN_TIMEOUT: Duration = Duration::from_secs(30);

/// Minimum utilization and duration for a device that is busy without a holder. The
/// observed devices stayed at 100 % permanently.
const BUSY_PERCENT: u32 = 90;
const BUSY_WITHOUT_HOLDER_TIME: Duration = Duration::from_secs(30);

pub(super) fn orphans(device_evidence: &DeviceEvidence<'_>) -> Option<HolderFinding> {
    let orphans = device_evidence.holders_with_role(|role| matches!(role, Role::Orphan { .. }));
    let first = orphans.first()?;
    let mut evidence = vec![unlisted_evidence(&orphans)];
    let their_or_its = singular_or_plural(orphans.len(), "its", "their");
    let mut named = BTreeSet::new();
    for (holder, role) in &device_evidence.roles {
        let Role::Orphan {
            parent: Some(of), ..
        } = role
        else {
            continue;
        };
        if named.len() == MAX_NAMED || !named.insert(*of) {
            continue;
        }
        let leads = holder.group.known() == Some(of);
        if leads && holder.group_leader_is_here.known() == Some(&false) {
            evidence.push(format!(
                "{their_or_its} process group's leader {of} is gone"
            ));
        }
        evidence.extend(
            device_evidence
                .ended(*of)
                .map(|holder| describe_ended(holder, device_evidence.now)),
        );
    }
    if orphans.iter().all(|holder| is_adopted(holder)) {
        let parent = first.parent.last_known().copied().unwrap_or(1);
        evidence.push(format!(
            "{their_or_its} parent is {parent}, which adopts orphaned processes"
        ));
    }
    let remedy = remedy::end_orphans(device_evidence, &orphans);
    Some(device_evidence.build_finding(Cause::Orphans, &orphans, evidence, remedy))
}

/// Memory that is being released, and the memory that was unattributed before: that
/// part does not belong to the ended processes and is not released with them.
pub(super) fn tearing_down(
    device_evidence: &DeviceEvidence<'_>,
    remainder: Bytes,
) -> Option<(HolderFinding, Bytes)> {
    let ended_now = device_evidence.device.ended.iter();
    let just_ended: Vec<_> = ended_now
        .filter(|ended| is_within_teardown(ended.at, device_evidence.now) && held_memory(ended))
        .filter(|ended| ended.unattributed_before.known().is_some())
        .collect();
    // The first process to end comes first: the next one sees its memory as
    // unattributed.
    let (mut last_held, mut held) = (Bytes(0), 0u64);
    for ended in just_ended.iter().rev() {
        let unexplained = ended.unattributed_before.known().map_or(0, |it| it.0);
        last_held = last_held.max(Bytes(unexplained.saturating_sub(held)));
        held = held.saturating_add(ended.memory.known().map_or(0, |it| it.0));
    }
    let just_ended_memory = Bytes(remainder.0.saturating_sub(last_held.0));
    let total = device_evidence.device.memory_total.known().copied();
    // A part may be released already.
    let max_explained = held.saturating_add(noise_threshold(total.unwrap_or_default()).0);
    if just_ended.is_empty() || just_ended_memory == Bytes(0) || just_ended_memory.0 > max_explained
    {
        return None;
    }
    let named = just_ended.iter().take(MAX_NAMED);
    let mut evidence: Vec<String> = named
        .map(|holder| describe_ended(holder, device_evidence.now))
        .collect();
    let more = just_ended.len().saturating_sub(MAX_NAMED);
    if more > 0 {
        evidence.push(format!("{more} more have just ended"));
    }
    evidence.push(format!(
        "{} are not released yet",
        format_size(just_ended_memory)
    ));
    if last_held > Bytes(0) {
        let more = format_size(last_held);
        evidence.push(format!("{more} more were already unattributed before"));
    }
    let mut finding =
        device_evidence.build_finding(Cause::TearingDown, &[], evidence, Some(Remedy::Wait));
    finding.pids = just_ended
        .iter()
        .map(|ended| ended.key.pid)
        .take(super::MAX_PIDS)
        .collect();
    Some((finding, last_held))
}

/// Whether the process is known to have held at least 1 MiB.
fn held_memory(ended: &EndedHolder) -> bool {
    ended.memory.known().is_some_and(|it| it.as_mib() > 0)
}

/// Whether the time lies within the teardown time. A time in the future, after the
/// clock was set back, does not.
fn is_within_teardown(at: Timestamp, now: Timestamp) -> bool {
    at <= now && now.since(at) <= TEARDOWN_TIMEOUT
}

pub(super) fn uninterruptible(device_evidence: &DeviceEvidence<'_>) -> Option<HolderFinding> {
    let stuck = device_evidence.holders_with_role(|role| role == Role::Uninterruptible);
    let waits_in = |holder: &Holder| match holder.state.known() {
        Some(ProcessState::Uninterruptible(kernel_function)) => kernel_function.clone(),
        _ => None,
    };
    let phrases = stuck.iter().take(MAX_NAMED);
    let evidence = phrases.map(|holder| match waits_in(holder) {
        Some(kernel_function) => format!(
            "{} waits in the kernel, in {kernel_function}",
            describe_holder(holder)
        ),
        None => format!(
            "{} waits in the kernel, which does not say where",
            describe_holder(holder)
        ),
    });
    let evidence = evidence
        .chain(["no signal reaches it in this state".to_owned()])
        .collect();
    // A single scan does not show whether the state lasts.
    (!stuck.is_empty()).then(|| {
        device_evidence.build_finding(Cause::Uninterruptible, &stuck, evidence, Some(Remedy::Wait))
    })
}

pub(super) fn zombie(device_evidence: &DeviceEvidence<'_>) -> Option<HolderFinding> {
    let zombies = device_evidence.holders_with_role(|role| role == Role::Zombie);
    let evidence = zombies.iter().take(MAX_NAMED).map(|holder| {
        let parent = match (holder.parent.last_known(), holder.parent_name.last_known()) {
            (Some(parent), Some(name)) => format!("its parent {parent} ({name})"),
            (Some(parent), None) => format!("its parent {parent}"),
            (None, _) => "its parent".to_owned(),
        };
        format!(
            "{} has ended, and {parent} has not reaped it",
            describe_holder(holder)
        )
    });
    let evidence = evidence.collect();
    (!zombies.is_empty()).then(|| {
        let remedy = reap_remedy(&zombies);
        device_evidence.build_finding(Cause::Zombie, &zombies, evidence, remedy)
    })
}

/// The remedy for zombies. No command ends the parent, because it may be working.
/// Process 1 reaps all its children. Parent 0 is unknown.
fn reap_remedy(zombies: &[&Holder]) -> Option<Remedy> {
    let mut parents = zombies.iter().filter_map(|holder| holder.parent.known());
    match parents.find(|parent| **parent != 0)? {
        1 => Some(Remedy::Wait),
        parent => Some(Remedy::Reap(*parent)),
    }
}

pub(super) fn other_namespace(device_evidence: &DeviceEvidence<'_>) -> Option<HolderFinding> {
    let inner = device_evidence.holders_with_role(|role| role == Role::OtherNamespace);
    let named = inner.iter().take(MAX_NAMED);
    let mut evidence: Vec<String> = named
        .map(|holder| {
            let (process, inside) = (describe_holder(holder), describe_namespace(holder));
            format!("{process} has the device open, runs {inside}, and the driver does not list it")
        })
        .collect();
    let more = inner.len().saturating_sub(MAX_NAMED);
    if more > 0 {
        evidence.push(format!(
            "{more} more like {}",
            singular_or_plural(more, "it", "them")
        ));
    }
    (!inner.is_empty())
        .then(|| device_evidence.build_finding(Cause::OtherNamespace, &inner, evidence, None))
}

pub(super) fn mps(device_evidence: &DeviceEvidence<'_>) -> Option<HolderFinding> {
    let clients: Vec<u32> = device_evidence
        .holders_with_role(|role| role == Role::MpsClient)
        .iter()
        .map(|c| c.pid)
        .collect();
    let mut servers = device_evidence.holders_with_role(|role| role == Role::Mps);
    servers.retain(|server| {
        let has_it = server.listed || server.holds_this_device;
        has_it && (!clients.is_empty() || !has_known_memory(server))
    });
    let server = servers.first()?;
    let evidence = vec![
        format!("{} holds memory for its clients", describe_holder(server)),
        match clients.len() {
            0 => "it has no clients now".to_owned(),
            n => format!(
                "{} {} listed as such",
                join_pids(&clients),
                singular_or_plural(n, "is", "are")
            ),
        },
    ];
    Some(device_evidence.build_finding(Cause::Mps, &servers, evidence, None))
}

pub(super) fn unlisted(device_evidence: &DeviceEvidence<'_>) -> Option<HolderFinding> {
    let unlisted =
        device_evidence.holders_with_role(|role| matches!(role, Role::Unlisted | Role::Passed));
    let passed = device_evidence.holders_with_role(|role| role == Role::Passed);
    let mut evidence = vec![unlisted_evidence(&unlisted)];
    if !passed.is_empty() {
        evidence.push(passed_descriptor_evidence(&passed));
    }
    (!unlisted.is_empty())
        .then(|| device_evidence.build_finding(Cause::Unlisted, &unlisted, evidence, None))
}

pub(super) fn display(device_evidence: &DeviceEvidence<'_>) -> Option<HolderFinding> {
    let mut drawing = device_evidence.holders_with_role(|role| role == Role::Display);
    drawing
        .retain(|holder| (holder.listed || holder.holds_this_device) && !has_known_memory(holder));
    let named = drawing.iter().take(MAX_NAMED);
    let evidence = named
        .map(|holder| format!("{} draws on it", describe_holder(holder)))
        .collect();
    (!drawing.is_empty())
        .then(|| device_evidence.build_finding(Cause::Display, &drawing, evidence, None))
}

pub(super) fn busy_without_holder(device_evidence: &DeviceEvidence<'_>) -> Option<HolderFinding> {
    let device = device_evidence.device;
    let percent = device.utilization.known()?.0;
    let length = device_evidence.now.since(device.busy_without_holder_since?);
    let is_held = device
        .holders
        .iter()
        .any(|holder| holder.listed || holder.holds_this_device);
    if percent < BUSY_PERCENT
        || length < BUSY_WITHOUT_HOLDER_TIME
        || is_held
        || device.incomplete_reason.is_some()
    {
        return None;
    }
    let evidence = vec![
        format!(
            "its utilization has stayed at {percent} % for {}",
            format_duration(length)
        ),
        "all open files were scanned, and no process has the device open".to_owned(),
    ];
    Some(device_evidence.build_finding(
        Cause::BusyWithoutHolder,
        &[],
        evidence,
        Some(Remedy::Reset),
    ))
}

pub(super) fn unknown(device_evidence: &DeviceEvidence<'_>, remainder: Bytes) -> HolderFinding {
    let used = format!(
        "{} are used, and no process explains them",
        format_size(remainder)
    );
    device_evidence.build_finding(
        Cause::Unknown,
        &[],
        search_evidence(device_evidence, used),
        None,
    )
}

/// Memory that was unattributed before other processes ended. The memory of those is being
/// released.
pub(super) fn unknown_earlier(
    device_evidence: &DeviceEvidence<'_>,
    last_held: Bytes,
) -> HolderFinding {
    let used = format!(
        "{} have been unattributed for longer",
        format_size(last_held)
    );
    device_evidence.build_finding(
        Cause::Unknown,
        &[],
        search_evidence(device_evidence, used),
        None,
    )
}

/// The used memory, and the result of the search for its holder.
fn search_evidence(device_evidence: &DeviceEvidence<'_>, used: String) -> Vec<String> {
    const LOOKED: &str = "all open files were scanned";
    if device_evidence.device.incomplete_reason.is_some() {
        return vec![used];
    }
    let is_listed = device_evidence
        .device
        .holders
        .iter()
        .any(is_alive_and_listed);
    let looked = if !remedy::unverified_monitors(device_evidence).is_empty() {
        LOOKED.to_owned()
    } else if is_listed {
        format!(
            "{LOOKED}, and only listed processes that could hold the memory have the device open"
        )
    } else {
        format!("{LOOKED}, and no process that could hold the memory has the device open")
    };
    vec![used, looked]
}

/// The finding for a device with stale readings, of which nothing is decided.
pub(super) fn stale(device_evidence: &DeviceEvidence<'_>, seconds: u32) -> HolderFinding {
    let evidence = vec![format!("the readings are {seconds} s old")];
    device_evidence.build_finding(Cause::Unknown, &[], evidence, None)
}

/// Processes that are not considered only because of their names.
pub(super) fn monitors_by_name(device_evidence: &DeviceEvidence<'_>, cause: Cause) -> Vec<String> {
    // Without a known cause, no other process has it open.
    let too = if cause == Cause::Unknown { "" } else { " too" };
    let monitors = remedy::unverified_monitors(device_evidence).into_iter();
    let phrase = |holder| {
        let process = describe_by_name(holder);
        format!("{process} has the device open{too}, and counts as a monitor only by its name")
    };
    monitors.take(MAX_NAMED).map(phrase).collect()
}

/// Pids that the driver lists and that do not exist here.
pub(super) fn missing_listed_pids(device_evidence: &DeviceEvidence<'_>) -> Vec<String> {
    let gone = device_evidence
        .device
        .holders
        .iter()
        .filter(|holder| is_gone(holder));
    let phrase = |holder: &Holder| {
        let what = match &holder.start_ticks {
            Reading::Failed(why) if why == LISTED_BEFORE_START => LISTED_BEFORE_START,
            Reading::Stale(..) => "which has ended",
            Reading::Failed(_) | Reading::Value(_) | Reading::Unsupported | Reading::Withheld => {
                "which does not exist on this host"
            }
        };
        match holder.memory.known() {
            Some(held) => format!(
                "the driver lists {} under {}, {what}",
                format_size(*held),
                holder.pid
            ),
            None => format!("the driver lists {}, {what}", holder.pid),
        }
    };
    gone.take(MAX_NAMED).map(phrase).collect()
}

/// The evidence that an incomplete scan may have missed holders.
pub(super) fn incomplete_scan_evidence(why: &str) -> String {
    format!("not every process could be scanned, so others may have the device open: {why}")
}

/// The evidence that memory behind a passed descriptor is attributed to no process.
fn passed_descriptor_evidence(holders: &[&Holder]) -> String {
    let numbers: Vec<u32> = holders.iter().map(|holder| holder.pid).collect();
    format!(
        "{} {} a descriptor that was passed between processes of several users: its memory is \
        attributed to no process",
        join_pids(&numbers),
        singular_or_plural(numbers.len(), "holds", "hold")
    )
}

fn unlisted_evidence(holders: &[&Holder]) -> String {
    match holders {
        [one] => format!(
            "{} has the device open, and the driver does not list it",
            describe_holder(one)
        ),
        several => {
            let numbers: Vec<u32> = several.iter().map(|holder| holder.pid).collect();
            format!(
                "{} have the device open, and the driver does not list them",
                join_pids(&numbers)
            )
        }
    }
}
