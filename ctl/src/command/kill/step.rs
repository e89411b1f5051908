//! What is done with a plan: shown, carried out, asked about, or refused.

use crate::exit::{Exit, Failure};
use gpukill_policy::kill::consent::{Consent, Said, consent};
use gpukill_proto::kill::{Fate, KillPlan, KillTarget, PlanId};
use gpukill_proto::reading::Reading;
use gpukill_proto::refusal::Refusal;

/// What is done with a plan.
#[derive(Debug)]
pub(super) enum Step {
    /// It was a dry run.
    Show,
    /// End them.
    CarryOut(PlanId),
    /// Ask first.
    Ask(PlanId),
    /// End nobody, for this reason.
    Refuse(Failure),
}

/// What is done with this plan.
pub(super) fn step(id: Option<PlanId>, plan: &KillPlan, said: Said<'_>) -> Step {
    if plan.targets.is_empty() {
        return Step::Refuse(nobody(plan));
    }
    if plan.request.dry_run {
        return Step::Show;
    }
    let ends = |target: &&KillTarget| matches!(target.fate, Fate::End(_));
    let ended = plan.targets.iter().filter(ends).count();
    let Some(id) = id.filter(|_| ended > 0) else {
        return Step::Refuse(nobody_ends(plan));
    };
    match consent(plan, said) {
        Consent::Given => Step::CarryOut(id),
        Consent::Ask => Step::Ask(id),
        Consent::NeedsBatch => {
            let meant = plan.targets.iter().filter(|target| target.named);
            let can_end = meant.clone().filter(ends).count();
            Step::Refuse(needs_batch(meant.count(), can_end))
        }
        Consent::NeedsYes => Step::Refuse(bad_usage(
            format!("{ended} processes would be ended, and nobody is here to be asked"),
            "add --yes to end them all",
        )),
    }
}

/// A condition means several, of which so many can be ended.
fn needs_batch(meant: usize, can_end: usize) -> Failure {
    if can_end == meant {
        return bad_usage(
            format!("{meant} processes are meant, and nothing was ended"),
            "add --batch to end them all, or name PIDs",
        );
    }
    bad_usage(
        format!("{meant} processes are meant, of which {can_end} can be ended, and none was"),
        "add --batch to end what can be, or name PIDs",
    )
}

fn bad_usage(what: String, hint: &str) -> Failure {
    Failure::NotDone {
        what,
        hint: Some(hint.to_owned()),
        exit: Exit::BadUsage,
    }
}

/// Why there is nobody in a plan.
fn nobody(plan: &KillPlan) -> Failure {
    match plan.unjudged {
        0 => Failure::NoMatch("no process is meant".into()),
        1 => Failure::Vendor("whether 1 process is meant is not known".into()),
        many => Failure::Vendor(format!("whether {many} processes are meant is not known")),
    }
}

/// Why a plan ends none of its targets.
fn nobody_ends(plan: &KillPlan) -> Failure {
    if let [one] = plan.targets.as_slice() {
        return not_ended(one);
    }
    let refused = |target: &KillTarget| match target.fate {
        Fate::Protected(_) | Fate::Denied(_) => true,
        Fate::End(_) | Fate::Unclear(_) | Fate::Zombie(_) => false,
    };
    let number = plan.targets.len();
    let exit = if plan.targets.iter().all(refused) {
        Exit::NotPermitted
    } else {
        Exit::Failed
    };
    Failure::NotDone {
        what: format!("cannot end any of these {number} processes"),
        hint: None,
        exit,
    }
}

/// Why this one is not ended.
fn not_ended(target: &KillTarget) -> Failure {
    let pid = target.key.pid;
    let cannot = |why: &str, exit| Failure::NotDone {
        what: format!("cannot end process {pid}: {why}"),
        hint: None,
        exit,
    };
    match &target.fate {
        Fate::Denied(ask) => {
            let whose = match (&target.owner, &target.uid) {
                (Reading::Value(owner) | Reading::Stale(owner, _), _) => {
                    format!("it belongs to {owner}")
                }
                (_, Reading::Value(uid)) => format!("it belongs to uid {uid}"),
                (_, _) => "it is not yours".to_owned(),
            };
            Failure::Refused(Refusal::Denied {
                asked: format!("end process {pid}: {whose}"),
                ask: ask.clone(),
            })
        }
        Fate::Protected(protected) => Failure::NotDone {
            what: format!("cannot end process {pid}: {}", protected.why),
            hint: protected.way().map(str::to_owned),
            exit: Exit::NotPermitted,
        },
        Fate::Unclear(why) => cannot(why, Exit::Failed),
        Fate::Zombie(parent) => {
            let name = parent.name.last_known();
            let name = name.map_or_else(String::new, |name| format!(" ({name})"));
            let parent = parent.pid;
            cannot(
                &format!("it has ended, and goes when its parent {parent}{name} asks how"),
                Exit::Failed,
            )
        }
        // The daemon gives a plan that ends somebody its name, but for a dry run.
        Fate::End(_) => cannot("gpukilld does not say how", Exit::Failed),
    }
}

#[cfg(test)]
mod tests;
