//! The calls about the rogue rules.

use super::Session;
use crate::store::RuleSetKind;
use gpukill_policy::access::Operation;
use gpukill_proto::guard::{EditReport, RulesRevision, RulesText};
use gpukill_proto::refusal::Refusal;
use gpukill_proto::rogue::RogueEdit;
use std::sync::Arc;

impl Session {
    /// Returns a part of the rules: as written for callers who may edit them, as in force for all
    /// others.
    pub(super) async fn rogue_rules_part(&self, offset: u64) -> Result<RulesText, Refusal> {
        self.check_rules_access("read the rogue rules: hide_other_users is set")?;
        let keeper = Arc::clone(&self.shared.rogue.store);
        // The file of the rules may contain something that is not rules.
        if self.may_edit_rogue().is_err() {
            return Ok(keeper.text_in_force(offset));
        }
        let text = tokio::task::spawn_blocking(move || keeper.text(offset)).await;
        text.map_err(|_| Refusal::Internal)?
    }

    /// Changes the rules, or only reports what that would change.
    pub(super) async fn change_rogue_rules(
        &self,
        edit: Option<RogueEdit>,
        expected: Option<RulesRevision>,
        is_dry_run: bool,
    ) -> Result<EditReport, Refusal> {
        self.may_edit_rogue().inspect_err(|refusal| {
            self.record_refused_edit(RuleSetKind::Rogues, edit.as_ref(), refusal);
        })?;
        let edit = match edit {
            Some(edit) => edit,
            None => RogueEdit::Replace(self.offered_rules.text()?),
        };
        let (keeper, uid) = (Arc::clone(&self.shared.rogue.store), self.caller.uid);
        let edited = tokio::task::spawn_blocking(move || {
            keeper.edit(uid, &edit, expected.as_ref(), is_dry_run)
        });
        edited.await.map_err(|_| Refusal::Internal)?
    }

    pub(super) fn may_edit_rogue(&self) -> Result<(), Refusal> {
        let admins = self.shared.authority.admin_group_name();
        self.require_right(Operation::EditRules, "change the rogue rules", &admins)
    }
}
