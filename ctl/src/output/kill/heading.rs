//! Who is meant by a plan, in one line: whose job, how many processes, which GPUs,
//! how much memory.

use super::super::holders::gpus;
use super::super::line::{Tone, shown};
use super::super::look::Symbols;
use super::super::table::Cell;
use super::super::value::{gib, size};
use super::{ends, owner, owner_within, what};
use gpukill_proto::kill::{KillPlan, KillScope, KillTarget};
use gpukill_proto::snapshot::Job;
use gpukill_proto::units::Bytes;
use std::collections::BTreeSet;

/// `alice's job slurm 1234.0: 9 processes on GPUs 0-3, 252.4 GiB`
pub(super) fn heading(plan: &KillPlan, symbols: Symbols) -> String {
    let meant: Vec<&KillTarget> = plan.targets.iter().filter(|target| ends(target)).collect();
    let number = meant.len();
    let where_and_how_much = format!("{}{}", on(&meant), memory(&meant));
    let others = match plan.targets.len() - number {
        0 => String::new(),
        1 => "; 1 other is left alone".to_owned(),
        several => format!("; {several} others are left alone"),
    };
    let known = meant.iter().filter(|target| is_known(target));
    let owners: BTreeSet<String> = known.map(|it| owner_within(it, plan, symbols)).collect();
    let owners: Vec<String> = owners.into_iter().collect();
    let meant_as_a_whole = match (meant.as_slice(), one_job(plan), owners.as_slice()) {
        ([], _, _) => return "nobody would be ended".to_owned(),
        ([one], _, _) => {
            let (pid, owner) = (one.key.pid, owner(one, symbols));
            let what = what(&one.command, &one.name, symbols);
            let whose = if is_known(one) {
                format!("{owner}'s ")
            } else {
                String::new()
            };
            format!("{whose}process {pid}{where_and_how_much}: {what}")
        }
        (_, Some(job), [owner]) => {
            let whose = format!("{owner}'s job {}", shown(&job.to_string(), symbols));
            if is_whole(job, plan) {
                format!("{whose}: {number} processes{where_and_how_much}")
            } else {
                format!("{number} processes of {whose}{where_and_how_much}")
            }
        }
        (_, Some(job), _) => {
            let (job, of) = (shown(&job.to_string(), symbols), of(&owners));
            format!("{number} processes{of} in job {job}{where_and_how_much}")
        }
        (_, None, _) => format!("{number} processes{}{where_and_how_much}", of(&owners)),
    };
    meant_as_a_whole + &others
}

/// Whether it is known whose it is.
fn is_known(target: &KillTarget) -> bool {
    target.owner.last_known().is_some() || target.uid.last_known().is_some()
}

/// The one job that all are part of whom a plan ends.
pub(super) fn one_job(plan: &KillPlan) -> Option<&Job> {
    let mut meant = plan.targets.iter().filter(|target| ends(target));
    let job = meant.next()?.job.known()?;
    meant
        .all(|target| target.job.known() == Some(job))
        .then_some(job)
}

/// Whether none of a job goes on, as far as the plan knows.
pub(super) fn is_whole(job: &Job, plan: &KillPlan) -> bool {
    let wide = match plan.request.scope {
        KillScope::Job | KillScope::Container => true,
        KillScope::Process | KillScope::Tree => false,
    };
    wide && plan.rest.iter().all(|rest| rest.job != *job)
}

fn of(owners: &[String]) -> String {
    match owners {
        [] => String::new(),
        [one] => format!(" of {one}"),
        [one, other] => format!(" of {one} and {other}"),
        several => format!(" of {} users", several.len()),
    }
}

/// ` on GPUs 0-3`; that one uses none is said, for then it may be the wrong one.
fn on(meant: &[&KillTarget]) -> String {
    let holds = meant.iter().flat_map(|target| &target.holds);
    let indices: BTreeSet<u32> = holds.map(|hold| hold.index).collect();
    let indices: Vec<u32> = indices.into_iter().collect();
    if indices.is_empty() {
        return match meant {
            [_] => " on no GPU".to_owned(),
            _ => String::new(),
        };
    }
    format!(" on {}", gpus(&indices))
}

fn memory(meant: &[&KillTarget]) -> String {
    match held(meant.iter().copied()) {
        None => String::new(),
        Some(Held::All(bytes)) => format!(", {}", amount(bytes)),
        Some(Held::AtLeast(bytes)) => format!(", at least {}", amount(bytes)),
        Some(Held::Unknown) => ", how much memory is not known".to_owned(),
    }
}

/// The memory that processes hold, as far as it is known.
pub(super) enum Held {
    /// So much.
    All(Bytes),
    /// So much, and more that is not known.
    AtLeast(Bytes),
    /// Something.
    Unknown,
}

impl Held {
    /// In a cell.
    pub(super) fn cell(&self) -> Cell {
        match self {
            Self::All(bytes) => Cell::plain(size(*bytes)),
            Self::AtLeast(bytes) => Cell::toned(format!(">{}", size(*bytes)), Tone::Doubtful),
            Self::Unknown => Cell::toned("?", Tone::Doubtful),
        }
    }
}

/// What these hold; `None` where they hold nothing of any GPU.
pub(super) fn held<'a>(targets: impl Iterator<Item = &'a KillTarget>) -> Option<Held> {
    let holds: Vec<Option<Bytes>> = targets
        .flat_map(|target| &target.holds)
        .map(|hold| hold.memory.last_known().copied())
        .collect();
    if holds.is_empty() {
        return None;
    }
    let known = holds.iter().flatten();
    let sum = known.clone().map(|bytes| bytes.0);
    let sum = Bytes(sum.fold(0, u64::saturating_add));
    Some(match known.count() {
        0 => Held::Unknown,
        all if all == holds.len() => Held::All(sum),
        _ => Held::AtLeast(sum),
    })
}

/// `252.4 GiB`, below one GiB `214 MiB`
pub(super) fn amount(bytes: Bytes) -> String {
    if bytes.as_mib() >= 1024 {
        format!("{} GiB", gib(bytes))
    } else if bytes.0 == 0 || bytes.as_mib() > 0 {
        format!("{} MiB", bytes.as_mib())
    } else {
        "less than 1 MiB".to_owned()
    }
}
