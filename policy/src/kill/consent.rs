//! What a person has to agree to before a plan is carried out.

use gpukill_proto::kill::{Fate, KillPlan, KillTarget};
use gpukill_proto::reading::Reading;

/// What they said beforehand, and whether they can be asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Said<'a> {
    /// `--batch`: several may be meant.
    pub batch: bool,
    /// `--yes`: do not ask.
    pub yes: bool,
    /// Whether somebody sits at a terminal.
    pub can_ask: bool,
    /// Who asks: the uid.
    pub uid: u32,
    /// What the daemon calls them, where it knows.
    pub name: Option<&'a str>,
}

/// What is to be done with a plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Consent {
    /// Carry it out.
    Given,
    /// Ask.
    Ask,
    /// List them: the selector means several, and only `--batch` allows that.
    NeedsBatch,
    /// List them: nobody can be asked, and only `--yes` or `--batch` allows it.
    NeedsYes,
}

/// Whether a plan may be carried out: a selector other than pids that means
/// several, protected ones aside, needs `--batch`; more than one process is asked about
/// on a terminal unless `--yes`, and off it needs `--yes` or `--batch`. On a terminal one
/// process is asked about too where a slip may have named it: it is somebody else's, uses
/// no GPU, or is protected.
#[must_use]
pub fn consent(plan: &KillPlan, said: Said<'_>) -> Consent {
    // Of others' too: who typed it may not have meant so many. But what serves
    // everybody is on each GPU, and nobody means it.
    let is_protected = |fate: &Fate| matches!(fate, Fate::Protected(_));
    let named = plan.targets.iter().filter(|target| target.named);
    let meant = named.filter(|target| !is_protected(&target.fate)).count();
    if meant > 1 && !plan.request.selector.is_pids_only() && !said.batch {
        return Consent::NeedsBatch;
    }
    let ends = |target: &&KillTarget| matches!(target.fate, Fate::End(_));
    let ended = || plan.targets.iter().filter(ends);
    let is_several = ended().count() > 1;
    let may_be_a_slip =
        ended().any(|one| !is_own(one, said) || one.holds.is_empty() || one.overridden.is_some());
    if said.yes || !(is_several || may_be_a_slip) {
        Consent::Given
    } else if said.can_ask {
        Consent::Ask
    } else if said.batch || !is_several {
        Consent::Given
    } else {
        Consent::NeedsYes
    }
}

/// Whether a process belongs to whoever asks. In a container it may run as one user and
/// belong to another, so that the uid counts only where nothing else is known.
fn is_own(target: &KillTarget, said: Said<'_>) -> bool {
    match (target.owner.last_known(), said.name) {
        (Some(owner), Some(name)) => owner == name,
        (_, _) => target.uid == Reading::Value(said.uid),
    }
}
