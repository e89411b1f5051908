//! The rogue rules: the part of a rules file that is specific to them.

use crate::log_events::event;
use crate::rules_file::{self, RulesKind, RulesMistake, new_lints};
use crate::store::RuleSetKind;
use gpukill_policy::rogue::edit::edit;
use gpukill_policy::rogue::lints::lint;
use gpukill_policy::rogue::read::read;
use gpukill_policy::rogue::rules::RogueRules;
use gpukill_proto::guard::{EditReport, RulesRevision};
use gpukill_proto::refusal::Refusal;
use gpukill_proto::rogue::RogueEdit;
use gpukill_proto::settings::SettingMistake;
use std::sync::Arc;
use std::time::SystemTime;

#[cfg(test)]
mod tests;

pub(crate) type RogueRuleStore = rules_file::RuleStore<RogueRulesKind>;

/// The rogue rules in force, with their revision and mistakes.
pub(crate) type RogueRulesInForce = rules_file::RulesInForce<Arc<RogueRules>>;

/// The file `rogue.toml`.
pub(crate) struct RogueRulesKind;

impl RulesKind for RogueRulesKind {
    type Rules = Arc<RogueRules>;
    type Edit = RogueEdit;

    const KIND: RuleSetKind = RuleSetKind::Rogues;
    const CHECK_COMMAND: &str = "gpukillctl rogue check";

    fn built_in() -> Arc<RogueRules> {
        Arc::default()
    }

    fn parse(text: &str) -> Result<Arc<RogueRules>, Vec<RulesMistake>> {
        let rules = read(text);
        rules
            .map(Arc::new)
            .map_err(|mistakes| mistakes.iter().map(to_rules_mistake).collect())
    }

    fn apply_edit(
        text: &str,
        requested: &RogueEdit,
        _: &Arc<RogueRules>,
    ) -> Result<String, String> {
        edit(text, requested, SystemTime::now().into()).map_err(|error| error.to_string())
    }

    fn replacement(text: String) -> RogueEdit {
        RogueEdit::Replace(text)
    }

    fn replacement_text(requested: &RogueEdit) -> Option<&str> {
        match requested {
            RogueEdit::Replace(text) => Some(text),
            RogueEdit::SetKey { .. } | RogueEdit::Allow(..) | RogueEdit::Disallow(..) => None,
        }
    }

    fn log_in_force(_: &Arc<RogueRules>, revision: Option<&str>) {
        event!(RogueRulesInForce, revision);
    }
}

fn to_rules_mistake(mistake: &SettingMistake) -> RulesMistake {
    let position = mistake.line.map(|line| format!("line {line}"));
    RulesMistake::at_position(position, mistake.to_string())
}

impl RogueRuleStore {
    /// Changes the rules, or only reports what that would change. `expected` is the revision that
    /// the caller has seen.
    ///
    /// # Errors
    /// All mistakes in the new rules, or why they cannot be written or recorded.
    pub(crate) fn edit(
        &self,
        uid: u32,
        requested: &RogueEdit,
        expected: Option<&RulesRevision>,
        is_dry_run: bool,
    ) -> Result<EditReport, Refusal> {
        let lints =
            |held: &Arc<RogueRules>, new: &Arc<RogueRules>| new_lints(&lint(held), lint(new));
        let edited = self.change(uid, requested, expected, is_dry_run, lints)?;
        Ok(edited.report)
    }
}
