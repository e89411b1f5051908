//! The rules of the guard: the part of a rules file that is specific to them.

use crate::log_events::event;
use crate::rules_file::{self, EditResult, RulesKind, RulesMistake, mistakes_refusal, new_lints};
use crate::store::RuleSetKind;
use gpukill_policy::guard::CompiledRules;
use gpukill_policy::guard::restarted::count_restarted;
use gpukill_policy::guard::rules::RuleSet;
use gpukill_policy::guard::rules::edit::edit;
use gpukill_policy::guard::rules::lint::lint;
use gpukill_policy::guard::rules::parse::parse;
use gpukill_proto::guard::edit::{EditError, GuardEdit, RuleMistake};
use gpukill_proto::guard::{GuardMode, OpenViolation, RulesRevision};
use gpukill_proto::refusal::Refusal;
use gpukill_proto::settings::position::TextPosition;
use std::sync::Arc;

#[cfg(test)]
mod tests;

pub(crate) type GuardRuleStore = rules_file::RuleStore<GuardRulesKind>;

/// The rules of the guard in force, and where they come from.
pub(crate) type GuardRulesInForce = rules_file::RulesInForce<GuardRuleSet>;

/// Compiled rules.
#[derive(Debug, Clone)]
pub(crate) struct GuardRuleSet {
    pub(crate) compiled: Arc<CompiledRules>,
    /// The same rules as a dry run.
    pub(crate) dry_run: Arc<CompiledRules>,
}

impl GuardRuleSet {
    fn compile(rules: RuleSet) -> Self {
        let dry_run = RuleSet {
            mode: rules.mode.min(GuardMode::DryRun),
            ..rules.clone()
        };
        Self {
            compiled: Arc::new(CompiledRules::new(rules)),
            dry_run: Arc::new(CompiledRules::new(dry_run)),
        }
    }
}

impl GuardRulesInForce {
    /// The rules as written.
    pub(crate) fn rules(&self) -> &RuleSet {
        self.rules.compiled.rules()
    }
}

/// The file `guard.toml`.
pub(crate) struct GuardRulesKind;

impl RulesKind for GuardRulesKind {
    type Rules = GuardRuleSet;
    type Edit = GuardEdit;

    const KIND: RuleSetKind = RuleSetKind::Guard;
    const CHECK_COMMAND: &str = "gpukillctl guard check";

    /// Without a file there are no limits.
    fn built_in() -> GuardRuleSet {
        GuardRuleSet::compile(RuleSet::default())
    }

    fn parse(text: &str) -> Result<GuardRuleSet, Vec<RulesMistake>> {
        let rules = parse(text);
        let rules =
            rules.map_err(|mistakes| mistakes.iter().map(to_rules_mistake).collect::<Vec<_>>())?;
        Ok(GuardRuleSet::compile(rules))
    }

    fn apply_edit(text: &str, asked: &GuardEdit, held: &GuardRuleSet) -> Result<String, String> {
        edit(text, asked).map_err(|error| match error {
            EditError::AlreadyInvalid(_) if held.compiled.rules().mode > GuardMode::DryRun => {
                format!(
                    "{error}\n\
                     the previous rules are in force, and end jobs: correct the file, replace it \
                     (gpukillctl guard import FILE), or stop gpukilld"
                )
            }
            error => error.to_string(),
        })
    }

    fn replacement(text: String) -> GuardEdit {
        GuardEdit::Replace(text)
    }

    fn replacement_text(asked: &GuardEdit) -> Option<&str> {
        match asked {
            GuardEdit::Replace(text) => Some(text),
            GuardEdit::SetPolicy { .. }
            | GuardEdit::RemovePolicy { .. }
            | GuardEdit::SetKey { .. }
            | GuardEdit::SetMode(_)
            | GuardEdit::ToggleDryRun => None,
        }
    }

    fn log_in_force(rules: &GuardRuleSet, revision: Option<&str>) {
        let rules = rules.compiled.rules();
        let (mode, rules) = (rules.mode.name(), rules.rule_count());
        event!(RulesInForce, mode, rules, revision);
    }
}

/// Parses rules.
///
/// # Errors
/// All mistakes in the text.
pub(crate) fn parse_rules(text: &str) -> Result<RuleSet, Refusal> {
    parse(text).map_err(|mistakes| mistakes_refusal(&mistakes))
}

fn to_rules_mistake(mistake: &RuleMistake) -> RulesMistake {
    let position = mistake
        .position
        .map(|TextPosition { line, column }| format!("line {line}, column {column}"));
    RulesMistake::at_position(position, mistake.to_string())
}

impl GuardRuleStore {
    /// Changes the rules, or only reports what that would change. `expected` is the revision that
    /// the caller has seen; `open` are the open violations.
    ///
    /// # Errors
    /// All mistakes in the new rules, or why they cannot be written or recorded.
    pub(super) fn edit(
        &self,
        uid: u32,
        asked: &GuardEdit,
        expected: Option<&RulesRevision>,
        is_dry_run: bool,
        open: &[OpenViolation],
    ) -> Result<EditResult<GuardRuleSet>, Refusal> {
        self.change(uid, asked, expected, is_dry_run, |held, new| {
            let (held, new) = (&held.compiled, &new.compiled);
            let lints = new_lints(&lint(held.rules()), lint(new.rules()));
            no_limits_warning(held.rules(), new.rules())
                .into_iter()
                .chain(restart_warning(count_restarted(open, held, new)))
                .chain(lints)
                .collect()
        })
    }
}

/// A warning that an edit removes the last rule.
fn no_limits_warning(held: &RuleSet, new: &RuleSet) -> Option<String> {
    let gone = match held.rule_count() {
        0 => return None,
        1 => "the only rule is removed".to_owned(),
        several => format!("all {several} rules are removed"),
    };
    (new.rule_count() == 0).then(|| format!("{gone}: there are no more limits"))
}

/// A warning that this many violations start again after an edit.
fn restart_warning(count: usize) -> Option<String> {
    let (violations, grace) = match count {
        0 => return None,
        1 => ("1 violation starts".to_owned(), "its grace period starts"),
        several => (
            format!("{several} violations start"),
            "their grace periods start",
        ),
    };
    Some(format!(
        "{violations} again if the new rules are still broken: {grace} again"
    ))
}
