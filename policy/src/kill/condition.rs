//! Evaluates the conditions of a request for a process.

use super::device_use::ProcessDeviceUse;
use super::{KillContext, ProcessInfo};
use crate::access::may_read_command;
use crate::select::{
    DeviceName, compile_glob, compile_pattern, names_user, names_user_or_owner, select_devices,
};
use gpukill_proto::collect::IntoSet as _;
use gpukill_proto::kill::KillSelector;
use gpukill_proto::model::{Container, Device, DeviceId, Job};
use gpukill_proto::reading::Reading;
use gpukill_proto::refusal::Refusal;
use gpukill_proto::units::Bytes;
use regex_lite::Regex;
use std::collections::BTreeSet;

/// Whether a condition holds. The minimum counts where all conditions must hold, the
/// maximum where one must.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum ConditionResult {
    No,
    /// The fact that the condition needs is unknown.
    Unknown,
    Yes,
}

impl From<bool> for ConditionResult {
    fn from(holds: bool) -> Self {
        if holds { Self::Yes } else { Self::No }
    }
}

/// A selector with its parsed texts.
pub(super) struct Conditions<'a> {
    selector: &'a KillSelector,
    pids: BTreeSet<u32>,
    filter: Option<Regex>,
    command: Option<Regex>,
    image: Option<Regex>,
    gpus: Option<BTreeSet<&'a DeviceId>>,
}

impl<'a> Conditions<'a> {
    /// Parses the texts of a selector.
    ///
    /// # Errors
    /// As [`super::resolve::resolve`].
    pub(super) fn new(
        selector: &'a KillSelector,
        context: &KillContext<'a>,
    ) -> Result<Self, Refusal> {
        let expression = |typed: &Option<String>| {
            let compiled = typed.as_deref().map(compile_pattern).transpose();
            compiled.map_err(Refusal::Invalid)
        };
        let image = match &selector.image {
            None => None,
            Some(typed) => Some(compile_glob(typed).ok_or_else(|| {
                Refusal::Invalid(format!("the image pattern {typed:?} is too long"))
            })?),
        };
        if let Some(typed) = &selector.container {
            check_unique_prefix(typed, context)?;
        }
        let gpus = selector
            .gpu
            .as_deref()
            .map(|typed| selected_gpus(typed, context));
        Ok(Self {
            selector,
            pids: selector.pids.iter().copied().into_set(),
            filter: expression(&selector.filter)?,
            command: expression(&selector.command)?,
            image,
            gpus: gpus.transpose()?,
        })
    }

    pub(super) fn evaluate(
        &self,
        process: &ProcessInfo,
        used: &ProcessDeviceUse<'_>,
        context: &KillContext<'_>,
    ) -> ConditionResult {
        let conditions: [&dyn Fn() -> ConditionResult; 8] = [
            &|| self.pid(process),
            &|| self.device(used, context),
            &|| self.name(process),
            &|| self.user(process, used),
            &|| self.container(process),
            &|| self.image(process),
            &|| self.job(process),
            &|| self.command(process, context),
        ];
        let all = conditions.iter().map(|holds| holds());
        all.min().unwrap_or(ConditionResult::No)
    }

    fn pid(&self, process: &ProcessInfo) -> ConditionResult {
        (self.pids.is_empty() || self.pids.contains(&process.lineage.key.pid)).into()
    }

    fn name(&self, process: &ProcessInfo) -> ConditionResult {
        let filter = self.filter.as_ref();
        filter
            .is_none_or(|filter| filter.is_match(&process.lineage.name))
            .into()
    }

    fn command(&self, process: &ProcessInfo, context: &KillContext<'_>) -> ConditionResult {
        let Some(wanted) = &self.command else {
            return ConditionResult::Yes;
        };
        let command = visible_command(process, context);
        match (&command, command.known()) {
            // A caller who may not see the command line may not end the process either,
            // so no fact is missing.
            (Reading::Withheld, _) => ConditionResult::No,
            (_, Some(command)) => wanted.is_match(command).into(),
            (_, None) => ConditionResult::Unknown,
        }
    }

    fn device(&self, used: &ProcessDeviceUse<'_>, context: &KillContext<'_>) -> ConditionResult {
        let selector = self.selector;
        if self.gpus.is_none() && selector.vendors.is_empty() && selector.min_memory.is_none() {
            return ConditionResult::Yes;
        }
        let each = used.memory.iter().map(|(id, parts)| {
            let is_chosen = self.gpus.as_ref().is_none_or(|gpus| gpus.contains(id));
            let vendor = match find_device(context, id) {
                _ if selector.vendors.is_empty() => ConditionResult::Yes,
                Some(device) => selector.vendors.contains(&device.vendor).into(),
                None => ConditionResult::Unknown,
            };
            let memory = selector
                .min_memory
                .map_or(ConditionResult::Yes, |min_memory| {
                    has_min_memory(min_memory, parts)
                });
            ConditionResult::from(is_chosen).min(vendor).min(memory)
        });
        each.max().unwrap_or(ConditionResult::No)
    }

    fn user(&self, process: &ProcessInfo, used: &ProcessDeviceUse<'_>) -> ConditionResult {
        let Some(typed) = self.selector.user.as_deref() else {
            return ConditionResult::Yes;
        };
        let uid = process.lineage.uid;
        let owner = process.owner.last_known().map(String::as_str);
        let namespace_creator = process.namespace_owner.last_known().copied().flatten();
        let listed = used.listed.iter();
        let open = used.open.iter();
        let is_of_them = names_user(typed, uid, owner)
            || names_user(typed, namespace_creator, None)
            || listed
                .clone()
                .any(|p| names_user_or_owner(typed, &p.uid, &p.user, &p.owner))
            || open
                .clone()
                .any(|h| names_user_or_owner(typed, &h.uid, &h.user, &h.owner));
        if is_of_them {
            return ConditionResult::Yes;
        }
        let users = listed.map(|p| &p.user).chain(open.map(|h| &h.user));
        let nameless = users.into_iter().all(|user| user.failure().is_some());
        let no_name = owner.is_none() || (nameless && !used.memory.is_empty());
        let is_unknown = match typed.parse::<u32>() {
            Ok(_) => uid.is_none() || process.namespace_owner.failure().is_some(),
            Err(_) => no_name,
        };
        if is_unknown {
            ConditionResult::Unknown
        } else {
            ConditionResult::No
        }
    }

    fn container(&self, process: &ProcessInfo) -> ConditionResult {
        let Some(typed) = self.selector.container.as_deref() else {
            return ConditionResult::Yes;
        };
        evaluate_container(process, |container| matches_container(container, typed))
    }

    fn image(&self, process: &ProcessInfo) -> ConditionResult {
        let Some(wanted) = &self.image else {
            return ConditionResult::Yes;
        };
        evaluate_container(process, |container| {
            evaluate_text(&container.image, |image| wanted.is_match(image))
        })
    }

    fn job(&self, process: &ProcessInfo) -> ConditionResult {
        let Some(typed) = self.selector.job.as_deref() else {
            return ConditionResult::Yes;
        };
        match process.job.known() {
            Some(job) => names_job(job, typed, process).into(),
            None => ConditionResult::Unknown,
        }
    }
}

/// The command line, as far as the caller may see it.
pub(super) fn visible_command(process: &ProcessInfo, context: &KillContext<'_>) -> Reading<String> {
    let namespace_owner = process.namespace_owner.known().copied().flatten();
    let owners = (process.lineage.uid, namespace_owner);
    match may_read_command(context.caller, owners, context.roles) {
        true => process.command.clone(),
        false => Reading::Withheld,
    }
}

pub(super) fn find_device<'a>(context: &KillContext<'a>, id: &DeviceId) -> Option<&'a Device> {
    context
        .snapshot
        .devices
        .iter()
        .find(|device| device.id == *id)
}

fn selected_gpus<'a>(
    typed: &str,
    context: &KillContext<'a>,
) -> Result<BTreeSet<&'a DeviceId>, Refusal> {
    let all = &context.snapshot.devices;
    let names: Vec<DeviceName<'_>> = all.iter().map(DeviceName::from).collect();
    let chosen = select_devices(typed, &names)?;
    let positions = all.iter().enumerate();
    let chosen = positions.filter(|(position, _)| chosen.contains(position));
    Ok(chosen.map(|(_, device)| &device.id).into_set())
}

fn has_min_memory(min_memory: Bytes, parts: &[&Reading<Bytes>]) -> ConditionResult {
    let known = parts.iter().filter_map(|part| part.known());
    let sum = known.fold(0u64, |sum, bytes| sum.saturating_add(bytes.0));
    if sum >= min_memory.0 {
        ConditionResult::Yes
    } else if parts.iter().all(|part| part.known().is_some()) {
        ConditionResult::No
    } else {
        ConditionResult::Unknown
    }
}

fn evaluate_container(
    process: &ProcessInfo,
    holds: impl Fn(&Container) -> ConditionResult,
) -> ConditionResult {
    match process.container.known() {
        Some(Some(container)) => holds(container),
        Some(None) => ConditionResult::No,
        None => ConditionResult::Unknown,
    }
}

/// Evaluates a text that may be unknown. A text that does not exist fails the
/// condition.
fn evaluate_text(reading: &Reading<String>, is_such: impl Fn(&str) -> bool) -> ConditionResult {
    match reading {
        Reading::Value(text) | Reading::Stale(text, _) => is_such(text).into(),
        Reading::Unsupported => ConditionResult::No,
        Reading::Failed(_) | Reading::Withheld => ConditionResult::Unknown,
    }
}

fn matches_container(container: &Container, typed: &str) -> ConditionResult {
    let whole = [
        container.id.id.as_str(),
        &container.id.to_string(),
        &container.to_string(),
    ]
    .contains(&typed);
    if whole || has_id_prefix(container, typed) {
        return ConditionResult::Yes;
    }
    let pod = container.pod.as_ref().map_or(ConditionResult::No, |pod| {
        evaluate_text(&pod.name, |name| name == typed)
    });
    evaluate_text(&container.name, |name| name == typed).max(pod)
}

/// With fewer digits, a typing error could select a container.
const MIN_ID_DIGITS: usize = 4;

fn has_id_prefix(container: &Container, typed: &str) -> bool {
    typed.len() >= MIN_ID_DIGITS && container.id.id.starts_with(typed)
}

/// Checks that an id prefix belongs to one container only.
fn check_unique_prefix(typed: &str, context: &KillContext<'_>) -> Result<(), Refusal> {
    let containers = context.processes.values().filter_map(|process| {
        let container = process.container.known()?.as_ref()?;
        has_id_prefix(container, typed).then_some(&container.id.id)
    });
    let ids: BTreeSet<&String> = containers.into_set();
    if ids.len() > 1 && !ids.iter().any(|id| *id == typed) {
        return Err(Refusal::Invalid(format!(
            "{typed:?} is a prefix of several container ids"
        )));
    }
    Ok(())
}

/// Whether `typed` names a job: as displayed, by its full id, or a scheduler's job by
/// its number, with or without the step.
fn names_job(job: &Job, typed: &str, process: &ProcessInfo) -> bool {
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
