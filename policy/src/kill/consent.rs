//! Decides which consent a plan needs before it is carried out.

use gpukill_proto::kill::{KillPlan, KillTarget, PlannedAction};
use gpukill_proto::reading::Reading;

/// The consent that the caller gave in advance, and whether the caller can be asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConsentContext<'a> {
    /// `--batch`: several processes may be selected.
    pub batch: bool,
    /// `--yes`: do not ask.
    pub yes: bool,
    /// Whether a person sits at a terminal.
    pub can_ask: bool,
    /// The uid of the caller.
    pub uid: u32,
    /// The daemon's name for the caller, if known.
    pub name: Option<&'a str>,
}

/// The consent that a plan needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Consent {
    /// None: carry out the plan.
    Given,
    /// Ask the caller.
    Ask,
    /// List the processes: the selector selects several, and only `--batch` allows
    /// that.
    NeedsBatch,
    /// List the processes: the caller cannot be asked, and only `--yes` or `--batch`
    /// allows the plan.
    NeedsYes,
}

/// Returns the consent that a plan needs. A selector other than pids that selects
/// several unprotected processes needs `--batch`. More than one process needs an answer
/// on a terminal unless `--yes` is given, and `--yes` or `--batch` elsewhere. On a
/// terminal, a single process needs an answer too where the caller may not mean it: a
/// selector without pids chose it, it belongs to another person, uses no GPU, or is
/// protected.
#[must_use]
pub fn required_consent(plan: &KillPlan, context: ConsentContext<'_>) -> Consent {
    // Processes of other people count too: the caller may not have meant so many.
    // Protected processes do not count: they run on every GPU, and no caller means
    // them.
    let is_protected = |action: &PlannedAction| matches!(action, PlannedAction::Protected(_));
    let named = plan.targets.iter().filter(|target| target.named);
    let selected = named.filter(|target| !is_protected(&target.action)).count();
    if selected > 1 && !plan.request.selector.is_pids_only() && !context.batch {
        return Consent::NeedsBatch;
    }
    let ends = |target: &&KillTarget| matches!(target.action, PlannedAction::End(_));
    let ended = || plan.targets.iter().filter(ends);
    let is_several = ended().count() > 1;
    let is_unnamed = plan.request.selector.pids.is_empty();
    let may_be_unintended = ended().any(|one| {
        is_unnamed
            || !belongs_to_caller(one, context)
            || one.holds.is_empty()
            || one.overridden.is_some()
    });
    if context.yes || !(is_several || may_be_unintended) {
        Consent::Given
    } else if context.can_ask {
        Consent::Ask
    } else if context.batch || !is_several {
        Consent::Given
    } else {
        Consent::NeedsYes
    }
}

/// Whether the process belongs to the caller. In a container a process may run as one
/// user and belong to another, so the uid counts only where a name is unknown.
fn belongs_to_caller(target: &KillTarget, context: ConsentContext<'_>) -> bool {
    match (target.owner.last_known(), context.name) {
        (Some(owner), Some(name)) => owner == name,
        (_, _) => target.uid == Reading::Value(context.uid),
    }
}
