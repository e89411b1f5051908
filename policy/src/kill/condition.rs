//! Does what a request asks for hold of one process?

use super::usage::Usage;
use super::{Candidate, Seen};
use crate::access::{Operation, Ruling, check};
use crate::select::{
    DeviceName, NoSuchDevice, PATTERN_MAX, devices, glob, is_theirs, is_user, pattern,
};
use gpukill_proto::collect::IntoSet as _;
use gpukill_proto::kill::KillSelector;
use gpukill_proto::reading::Reading;
use gpukill_proto::refusal::Refusal;
use gpukill_proto::snapshot::{Container, Device, DeviceId, Job};
use gpukill_proto::units::Bytes;
use regex_lite::Regex;
use std::collections::BTreeSet;

/// Whether a condition holds. The lesser decides where all have to hold, the
/// greater where one has to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Holds {
    No,
    /// What it asks is not known.
    Unknown,
    Yes,
}

impl From<bool> for Holds {
    fn from(holds: bool) -> Self {
        if holds { Self::Yes } else { Self::No }
    }
}

/// A selector whose texts were understood.
pub(super) struct Conditions<'a> {
    selector: &'a KillSelector,
    pids: BTreeSet<u32>,
    filter: Option<Regex>,
    command: Option<Regex>,
    image: Option<Regex>,
    /// The devices that are chosen.
    gpus: Option<BTreeSet<&'a DeviceId>>,
}

impl<'a> Conditions<'a> {
    /// Understands the texts of a selector.
    ///
    /// # Errors
    /// As [`super::meant::meant`].
    pub(super) fn new(selector: &'a KillSelector, seen: &Seen<'a>) -> Result<Self, Refusal> {
        are_bounded(selector)?;
        let expression = |typed: &Option<String>| {
            let compiled = typed.as_deref().map(pattern).transpose();
            compiled.map_err(Refusal::Invalid)
        };
        let image = match &selector.image {
            None => None,
            Some(typed) => Some(glob(typed).ok_or_else(|| {
                Refusal::Invalid(format!("the image {typed:?} is too long a pattern"))
            })?),
        };
        if let Some(typed) = &selector.container {
            is_unique(typed, seen)?;
        }
        let gpus = selector.gpu.as_deref().map(|typed| gpus(typed, seen));
        Ok(Self {
            selector,
            pids: selector.pids.iter().copied().collect(),
            filter: expression(&selector.filter)?,
            command: expression(&selector.command)?,
            image,
            gpus: gpus.transpose()?,
        })
    }

    /// Whether all of them hold.
    pub(super) fn judge(&self, process: &Candidate, used: &Usage<'_>, seen: &Seen<'_>) -> Holds {
        let conditions: [&dyn Fn() -> Holds; 8] = [
            &|| self.pid(process),
            &|| self.device(used, seen),
            &|| self.name(process),
            &|| self.user(process, used),
            &|| self.container(process),
            &|| self.image(process),
            &|| self.job(process),
            &|| self.command(process, seen),
        ];
        let all = conditions.iter().map(|holds| holds());
        all.min().unwrap_or(Holds::No)
    }

    fn pid(&self, process: &Candidate) -> Holds {
        (self.pids.is_empty() || self.pids.contains(&process.kin.key.pid)).into()
    }

    fn name(&self, process: &Candidate) -> Holds {
        let filter = self.filter.as_ref();
        filter
            .is_none_or(|filter| filter.is_match(&process.kin.name))
            .into()
    }

    fn command(&self, process: &Candidate, seen: &Seen<'_>) -> Holds {
        let Some(wanted) = &self.command else {
            return Holds::Yes;
        };
        let command = shown_command(process, seen);
        match (&command, command.known()) {
            // Whoever may not see it may not end the process either: nothing is missing.
            (Reading::Withheld, _) => Holds::No,
            (_, Some(command)) => wanted.is_match(command).into(),
            (_, None) => Holds::Unknown,
        }
    }

    /// Whether it uses one device of which all holds that is asked of devices.
    fn device(&self, used: &Usage<'_>, seen: &Seen<'_>) -> Holds {
        let selector = self.selector;
        if self.gpus.is_none() && selector.vendors.is_empty() && selector.min_memory.is_none() {
            return Holds::Yes;
        }
        let each = used.memory.iter().map(|(id, parts)| {
            let is_chosen = self.gpus.as_ref().is_none_or(|gpus| gpus.contains(id));
            let vendor = match device(seen, id) {
                _ if selector.vendors.is_empty() => Holds::Yes,
                Some(device) => selector.vendors.contains(&device.vendor).into(),
                None => Holds::Unknown,
            };
            let memory = selector
                .min_memory
                .map_or(Holds::Yes, |least| holds_at_least(least, parts));
            Holds::from(is_chosen).min(vendor).min(memory)
        });
        each.max().unwrap_or(Holds::No)
    }

    fn user(&self, process: &Candidate, used: &Usage<'_>) -> Holds {
        let Some(typed) = self.selector.user.as_deref() else {
            return Holds::Yes;
        };
        let uid = process.kin.uid;
        let owner = process.owner.last_known().map(String::as_str);
        let maker = process.namespace_owner.last_known().copied().flatten();
        let listed = used.listed.iter();
        let open = used.open.iter();
        let is_of_them = is_user(typed, uid, owner)
            || is_user(typed, maker, None)
            || listed
                .clone()
                .any(|p| is_theirs(typed, &p.uid, &p.user, &p.owner))
            || open
                .clone()
                .any(|h| is_theirs(typed, &h.uid, &h.user, &h.owner));
        if is_of_them {
            return Holds::Yes;
        }
        let users = listed.map(|p| &p.user).chain(open.map(|h| &h.user));
        let nameless = users.into_iter().all(|user| user.failure().is_some());
        let no_name = owner.is_none() || (nameless && !used.memory.is_empty());
        let is_unknown = match typed.parse::<u32>() {
            Ok(_) => uid.is_none() || process.namespace_owner.failure().is_some(),
            Err(_) => no_name,
        };
        if is_unknown {
            Holds::Unknown
        } else {
            Holds::No
        }
    }

    fn container(&self, process: &Candidate) -> Holds {
        let Some(typed) = self.selector.container.as_deref() else {
            return Holds::Yes;
        };
        in_container(process, |container| is_called(container, typed))
    }

    fn image(&self, process: &Candidate) -> Holds {
        let Some(wanted) = &self.image else {
            return Holds::Yes;
        };
        in_container(process, |container| {
            text(&container.image, |image| wanted.is_match(image))
        })
    }

    fn job(&self, process: &Candidate) -> Holds {
        let Some(typed) = self.selector.job.as_deref() else {
            return Holds::Yes;
        };
        match process.job.known() {
            Some(job) => is_job(job, typed, process).into(),
            None => Holds::Unknown,
        }
    }
}

/// The command line, as far as the caller may see it.
pub(super) fn shown_command(process: &Candidate, seen: &Seen<'_>) -> Reading<String> {
    let operation = Operation::ReadCommand {
        owner: process.kin.uid,
        namespace_owner: process.namespace_owner.known().copied().flatten(),
    };
    match check(seen.caller, operation, seen.roles) {
        Ruling::Allow => process.command.clone(),
        Ruling::Deny(_) => Reading::Withheld,
    }
}

pub(super) fn device<'a>(seen: &Seen<'a>, id: &DeviceId) -> Option<&'a Device> {
    seen.snapshot.devices.iter().find(|device| device.id == *id)
}

/// An empty text is no condition, and whoever typed one meant something.
fn are_bounded(selector: &KillSelector) -> Result<(), Refusal> {
    let texts = [
        ("filter", &selector.filter),
        ("command", &selector.command),
        ("gpu", &selector.gpu),
        ("user", &selector.user),
        ("container", &selector.container),
        ("image", &selector.image),
        ("job", &selector.job),
    ];
    for (option, text) in texts {
        let Some(text) = text else { continue };
        if text.is_empty() {
            return Err(Refusal::Invalid(format!("--{option} is empty")));
        }
        // The list of GPUs has a limit of its own.
        if option != "gpu" && text.len() > PATTERN_MAX {
            return Err(Refusal::Invalid(format!(
                "--{option} of {} bytes is too long: at most {PATTERN_MAX}",
                text.len()
            )));
        }
    }
    if selector.min_memory == Some(Bytes(0)) {
        return Err(Refusal::Invalid("--min-memory 0 excludes nothing".into()));
    }
    Ok(())
}

fn gpus<'a>(typed: &str, seen: &Seen<'a>) -> Result<BTreeSet<&'a DeviceId>, Refusal> {
    let all = &seen.snapshot.devices;
    let names: Vec<DeviceName<'_>> = all.iter().map(DeviceName::from).collect();
    let chosen = devices(typed, &names).map_err(|error| match error {
        NoSuchDevice::Unknown { .. } => Refusal::NoMatch(error.to_string()),
        NoSuchDevice::Ambiguous { .. } | NoSuchDevice::Backwards { .. } => {
            Refusal::Invalid(error.to_string())
        }
    })?;
    let positions = all.iter().enumerate();
    let chosen = positions.filter(|(position, _)| chosen.contains(position));
    Ok(chosen.map(|(_, device)| &device.id).collect())
}

fn holds_at_least(least: Bytes, parts: &[&Reading<Bytes>]) -> Holds {
    let known = parts.iter().filter_map(|part| part.known());
    let sum = known.fold(0u64, |sum, bytes| sum.saturating_add(bytes.0));
    if sum >= least.0 {
        Holds::Yes
    } else if parts.iter().all(|part| part.known().is_some()) {
        Holds::No
    } else {
        Holds::Unknown
    }
}

fn in_container(process: &Candidate, holds: impl Fn(&Container) -> Holds) -> Holds {
    match process.container.known() {
        Some(Some(container)) => holds(container),
        Some(None) => Holds::No,
        None => Holds::Unknown,
    }
}

/// Whether a text that may be unknown is such. What there is no such text of is
/// not.
fn text(reading: &Reading<String>, is_such: impl Fn(&str) -> bool) -> Holds {
    match reading {
        Reading::Value(text) | Reading::Stale(text, _) => is_such(text).into(),
        Reading::Unsupported => Holds::No,
        Reading::Failed(_) | Reading::Withheld => Holds::Unknown,
    }
}

fn is_called(container: &Container, typed: &str) -> Holds {
    let whole = [
        container.id.id.as_str(),
        &container.id.to_string(),
        &container.to_string(),
    ]
    .contains(&typed);
    if whole || begins_id(container, typed) {
        return Holds::Yes;
    }
    let pod = container
        .pod
        .as_ref()
        .map_or(Holds::No, |pod| text(&pod.name, |name| name == typed));
    text(&container.name, |name| name == typed).max(pod)
}

/// Fewer digits would make typing errors choose a container.
const LEAST_DIGITS: usize = 4;

fn begins_id(container: &Container, typed: &str) -> bool {
    typed.len() >= LEAST_DIGITS && container.id.id.starts_with(typed)
}

/// Whether the beginning of an id begins one container's only.
fn is_unique(typed: &str, seen: &Seen<'_>) -> Result<(), Refusal> {
    let containers = seen.crowd.values().filter_map(|process| {
        let container = process.container.known()?.as_ref()?;
        begins_id(container, typed).then_some(&container.id.id)
    });
    let ids: BTreeSet<&String> = containers.into_set();
    if ids.len() > 1 && !ids.iter().any(|id| *id == typed) {
        return Err(Refusal::Invalid(format!(
            "{typed:?} begins the ids of several containers"
        )));
    }
    Ok(())
}

/// Whether a job is called so: as it is shown, by all that names it, or a
/// scheduler's by its number, with or without its step.
fn is_job(job: &Job, typed: &str, process: &Candidate) -> bool {
    if job.to_string() == typed || job.id() == typed {
        return true;
    }
    match job {
        Job::Scheduler(job) => {
            let whole = format!("{} {}", job.scheduler.name(), job.job);
            let step = job.step.as_ref().map(|step| format!("{}.{step}", job.job));
            job.job == typed || whole == typed || step.as_deref() == Some(typed)
        }
        Job::Container { .. } => {
            let container = process.container.known().and_then(Option::as_ref);
            container.is_some_and(|container| container.to_string() == typed)
        }
        Job::Unit { .. } | Job::Tree(_) => false,
    }
}
