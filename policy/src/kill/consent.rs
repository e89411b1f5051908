//! What a person has to agree to before a plan is carried out.

use gpukill_proto::kill::{Fate, KillPlan};

/// What they said beforehand, and whether they can be asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Said {
    /// `--batch`: several may be meant.
    pub batch: bool,
    /// `--yes`: do not ask.
    pub yes: bool,
    /// Whether somebody sits at a terminal.
    pub can_ask: bool,
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
/// on a terminal unless `--yes`, and off it needs `--yes` or `--batch`.
#[must_use]
pub fn consent(plan: &KillPlan, said: Said) -> Consent {
    // Of others' too: who typed it may not have meant so many. But what serves
    // everybody is on each GPU, and nobody means it.
    let is_protected = |fate: &Fate| matches!(fate, Fate::Protected(_));
    let named = plan.targets.iter().filter(|target| target.named);
    let meant = named.filter(|target| !is_protected(&target.fate)).count();
    if meant > 1 && !plan.request.selector.is_pids_only() && !said.batch {
        return Consent::NeedsBatch;
    }
    let ends = |fate: &Fate| matches!(fate, Fate::End(_));
    let ended = plan.targets.iter().filter(|target| ends(&target.fate));
    if ended.count() <= 1 || said.yes {
        Consent::Given
    } else if said.can_ask {
        Consent::Ask
    } else if said.batch {
        Consent::Given
    } else {
        Consent::NeedsYes
    }
}
