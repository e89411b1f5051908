//! Decides what to do with a plan: show it, carry it out, ask, or refuse.

use crate::exit::{Error, Exit};
use gpukill_policy::kill::consent::{Consent, ConsentContext, required_consent};
use gpukill_proto::kill::{KillPlan, KillTarget, PlanId, PlannedAction};
use gpukill_proto::reading::Reading;
use gpukill_proto::refusal::Refusal;

#[derive(Debug)]
pub(super) enum NextStep {
    /// Show the plan: it is a dry run. The consent that the real run needs; `None` if it would end
    /// nothing.
    Show(Option<Consent>),
    CarryOut(PlanId),
    /// Ask first.
    Ask(PlanId),
    /// End no process, for this reason.
    Refuse(Error),
}

/// Decides what to do with this plan.
pub(super) fn next_step(
    id: Option<PlanId>,
    plan: &KillPlan,
    consent: ConsentContext<'_>,
) -> NextStep {
    if plan.targets.is_empty() {
        return NextStep::Refuse(no_targets_error(plan));
    }
    let ends = |target: &&KillTarget| matches!(target.action, PlannedAction::End(_));
    let ended = plan.targets.iter().filter(ends).count();
    if plan.request.dry_run {
        return NextStep::Show((ended > 0).then(|| required_consent(plan, consent)));
    }
    let Some(id) = id.filter(|_| ended > 0) else {
        return NextStep::Refuse(nothing_ends_error(plan));
    };
    match required_consent(plan, consent) {
        Consent::Given => NextStep::CarryOut(id),
        Consent::Ask => NextStep::Ask(id),
        Consent::NeedsBatch => {
            let named = plan.targets.iter().filter(|target| target.named);
            let can_end = named.clone().filter(ends).count();
            NextStep::Refuse(needs_batch_error(named.count(), can_end))
        }
        Consent::NeedsYes => NextStep::Refuse(usage_error(
            format!("{ended} processes would be ended, and there is no terminal to ask on"),
            "add --yes to end them all",
        )),
    }
}

/// The error when a condition selects several processes without `--batch`.
fn needs_batch_error(named: usize, can_end: usize) -> Error {
    if can_end == named {
        return usage_error(
            format!("{named} processes are selected, and nothing was ended"),
            "add --batch to end them all, or name PIDs",
        );
    }
    usage_error(
        format!("{named} processes are selected, of which {can_end} can be ended, and none was"),
        "add --batch to end what can be, or name PIDs",
    )
}

fn usage_error(what: String, hint: &str) -> Error {
    Error::NotDone {
        what,
        hint: Some(hint.to_owned()),
        exit: Exit::BadUsage,
    }
}

/// Why a plan has no targets.
fn no_targets_error(plan: &KillPlan) -> Error {
    match plan.undetermined {
        0 => Error::NoMatch("no process is selected".into()),
        1 => Error::Vendor("it is not known whether 1 process is selected".into()),
        many => Error::Vendor(format!(
            "it is not known whether {many} processes are selected"
        )),
    }
}

/// Why a plan ends none of its targets.
fn nothing_ends_error(plan: &KillPlan) -> Error {
    if let [one] = plan.targets.as_slice() {
        return not_ended_error(one);
    }
    let refused = |target: &KillTarget| match target.action {
        PlannedAction::Protected(_) | PlannedAction::Denied(_) => true,
        PlannedAction::End(_) | PlannedAction::Unclear(_) | PlannedAction::Zombie(_) => false,
    };
    let number = plan.targets.len();
    let exit = if plan.targets.iter().all(refused) {
        Exit::NotPermitted
    } else {
        Exit::Failed
    };
    Error::NotDone {
        what: format!("cannot end any of these {number} processes"),
        hint: remedy_of_several(&plan.targets),
        exit,
    }
}

/// What to do where several processes are not ended: the remedy of the first, which is often that of
/// all.
fn remedy_of_several(targets: &[KillTarget]) -> Option<String> {
    let remedies: Vec<String> = targets.iter().filter_map(remedy).collect();
    let first = remedies.first()?;
    Some(match remedies.iter().all(|other| other == first) {
        true => first.clone(),
        false => format!("{first}; the list names the people to ask for the other processes"),
    })
}

/// What to do about a process that the caller may not end.
fn remedy(target: &KillTarget) -> Option<String> {
    match &target.action {
        PlannedAction::Denied(ask) => Some(format!("ask {ask}")),
        PlannedAction::Protected(protected) => protected.override_hint().map(str::to_owned),
        PlannedAction::End(_) | PlannedAction::Unclear(_) | PlannedAction::Zombie(_) => None,
    }
}

/// Why this target is not ended.
fn not_ended_error(target: &KillTarget) -> Error {
    let pid = target.key.pid;
    let cannot = |why: &str, exit| Error::NotDone {
        what: format!("cannot end process {pid}: {why}"),
        hint: None,
        exit,
    };
    match &target.action {
        PlannedAction::Denied(ask) => {
            let owner_text = match (&target.owner, &target.uid) {
                (Reading::Value(owner) | Reading::Stale(owner, _), _) => {
                    format!("it belongs to {owner}")
                }
                (_, Reading::Value(uid)) => format!("it belongs to uid {uid}"),
                (_, _) => "it is not yours".to_owned(),
            };
            Error::Refused(Refusal::Denied {
                asked: format!("end process {pid}: {owner_text}"),
                ask: ask.clone(),
            })
        }
        PlannedAction::Protected(protected) => Error::NotDone {
            what: format!("cannot end process {pid}: {}", protected.why),
            hint: protected.override_hint().map(str::to_owned),
            exit: Exit::NotPermitted,
        },
        PlannedAction::Unclear(why) => cannot(why, Exit::Failed),
        PlannedAction::Zombie(parent) => {
            let name = parent.name.last_known();
            let name = name.map_or_else(String::new, |name| format!(" ({name})"));
            let parent = parent.pid;
            cannot(
                &format!("it has ended, and goes when its parent {parent}{name} reaps it"),
                Exit::Failed,
            )
        }
        // The daemon gives an id to every plan that ends a process, except for a dry run.
        PlannedAction::End(_) => cannot("gpukilld does not say how", Exit::Failed),
    }
}

#[cfg(test)]
mod tests;
