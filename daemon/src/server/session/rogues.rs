//! The calls about rogues: the rules by which they are known.

use super::Session;
use crate::audit::RulesOf;
use gpukill_policy::access::Operation;
use gpukill_proto::guard::{EditReport, RulesRevision, RulesText};
use gpukill_proto::refusal::Refusal;
use gpukill_proto::rogue::RogueEdit;
use std::sync::Arc;

impl Session {
    /// A part of the rules: for whoever may change them as they are written, for all
    /// others as they are in force.
    pub(super) async fn part_of_rogue(&self, offset: u64) -> Result<RulesText, Refusal> {
        self.may_read_those("read the rules on rogues: hide_other_users is set")?;
        let keeper = Arc::clone(&self.shared.rogue.keeper);
        // What lies where the rules are to be written may be no rules at all.
        if self.may_edit_rogue().is_err() {
            return Ok(keeper.text_in_force(offset));
        }
        let text = tokio::task::spawn_blocking(move || keeper.text(offset)).await;
        text.map_err(|_| Refusal::Internal)?
    }

    /// Changes the rules, or says what that would change.
    pub(super) async fn change_rogue(
        &self,
        edit: Option<RogueEdit>,
        expected: Option<RulesRevision>,
        is_dry_run: bool,
    ) -> Result<EditReport, Refusal> {
        self.may_edit_rogue().inspect_err(|refusal| {
            self.refuse_edit(RulesOf::Rogues, edit.as_ref(), refusal);
        })?;
        let edit = match edit {
            Some(edit) => edit,
            None => RogueEdit::Replace(self.offered.text()?),
        };
        let (keeper, uid) = (Arc::clone(&self.shared.rogue.keeper), self.caller.uid);
        let edited = tokio::task::spawn_blocking(move || {
            keeper.edit(uid, &edit, expected.as_ref(), is_dry_run)
        });
        edited.await.map_err(|_| Refusal::Internal)?
    }

    pub(super) fn may_edit_rogue(&self) -> Result<(), Refusal> {
        let admins = self.shared.authority.admins();
        self.may(Operation::EditRules, "change the rules on rogues", &admins)
    }
}
