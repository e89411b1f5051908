//! The calls that read and change the rules of both kinds.

use super::{Session, lock};
use crate::guard::rules::GuardRulesKind;
use crate::rogue::rules::RogueRulesKind;
use crate::rules_file::{RuleStore, RulesKind};
use crate::store::{Action, ActionKind, RuleSetKind};
use gpukill_policy::access::{Operation, Ruling, check};
use gpukill_proto::guard::edit::GuardEdit;
use gpukill_proto::guard::{EditReport, RulesRevision, RulesText};
use gpukill_proto::refusal::Refusal;
use gpukill_proto::rogue::RogueEdit;
use gpukill_proto::service::{MAX_PART_BYTES, MAX_RULES_BYTES};
use std::sync::{Arc, Mutex};

/// The rules that a client offers on this connection. They are dropped with it.
#[derive(Clone, Default)]
pub(crate) struct OfferedRules(Arc<Mutex<Option<Vec<u8>>>>);

impl OfferedRules {
    /// Appends a part; a part at offset 0 starts again.
    pub(crate) fn append(&self, offset: u64, part: &[u8]) -> Result<(), Refusal> {
        let mut taken = lock(&self.0);
        let taken = taken.get_or_insert_default();
        if offset == 0 {
            taken.clear();
        }
        let invalid = |what: String| Err(Refusal::Invalid(what));
        if offset != taken.len() as u64 {
            return invalid(format!(
                "a part at offset {offset} does not follow the {} bytes received",
                taken.len()
            ));
        }
        if part.len() > MAX_PART_BYTES || taken.len() + part.len() > MAX_RULES_BYTES {
            return invalid(format!("rules may have at most {MAX_RULES_BYTES} bytes"));
        }
        taken.extend_from_slice(part);
        Ok(())
    }

    pub(super) fn text(&self) -> Result<String, Refusal> {
        let taken = lock(&self.0).clone();
        let taken = taken.ok_or_else(|| Refusal::Invalid("no rules were offered".into()))?;
        String::from_utf8(taken)
            .map_err(|_| Refusal::Invalid("the rules are not valid UTF-8".into()))
    }
}

impl Session {
    /// A part of the rules: as written for callers who may edit them, as in force for all others.
    pub(crate) async fn rules_part<K: RulesKind>(
        &self,
        rules: &Arc<RuleStore<K>>,
        offset: u64,
    ) -> Result<RulesText, Refusal> {
        self.may_read_rules(K::KIND)?;
        // The file of the rules may contain something that is not rules.
        if self.may_edit_rules(K::KIND).is_err() {
            return Ok(rules.text_in_force(offset));
        }
        let rules = Arc::clone(rules);
        let text = tokio::task::spawn_blocking(move || rules.text(offset)).await;
        text.map_err(|_| Refusal::Internal)?
    }

    /// Changes the guard's rules, or only reports what that would change.
    pub(crate) async fn change_rules(
        &self,
        edit: Option<GuardEdit>,
        expected: Option<RulesRevision>,
        is_dry_run: bool,
    ) -> Result<EditReport, Refusal> {
        let guard = self.shared.guard.clone();
        self.change::<GuardRulesKind>(edit, move |uid, edit| {
            guard.edit(uid, edit, expected.as_ref(), is_dry_run)
        })
        .await
    }

    /// Changes the rogue rules, or only reports what that would change.
    pub(crate) async fn change_rogue_rules(
        &self,
        edit: Option<RogueEdit>,
        expected: Option<RulesRevision>,
        is_dry_run: bool,
    ) -> Result<EditReport, Refusal> {
        let rules = Arc::clone(&self.shared.rogue.store);
        self.change::<RogueRulesKind>(edit, move |uid, edit| {
            rules.edit(uid, edit, expected.as_ref(), is_dry_run)
        })
        .await
    }

    /// Makes an edit of a caller who may; `None` replaces all rules by the offered ones. Records a
    /// refused edit.
    async fn change<K: RulesKind>(
        &self,
        edit: Option<K::Edit>,
        apply: impl FnOnce(u32, &K::Edit) -> Result<EditReport, Refusal> + Send + 'static,
    ) -> Result<EditReport, Refusal> {
        let uid = self.caller.uid;
        self.may_edit_rules(K::KIND).inspect_err(|refusal| {
            let edit = edit.as_ref();
            let edit = edit.map_or_else(|| "replace all".to_owned(), ToString::to_string);
            let action = Action {
                kind: ActionKind::EditRules,
                uid,
                request: format!("{}{edit}", K::KIND.record_prefix()),
                plan: "{}".into(),
            };
            let by = self.caller.limit_group;
            let store = &self.shared.store;
            store.record_refusal(action, by, refusal.to_string());
        })?;
        let edit = match edit {
            Some(edit) => edit,
            None => K::replacement(self.offered_rules.text()?),
        };
        let edited = tokio::task::spawn_blocking(move || apply(uid, &edit));
        edited.await.map_err(|_| Refusal::Internal)?
    }

    pub(super) fn may_edit_rules(&self, kind: RuleSetKind) -> Result<(), Refusal> {
        let admins = self.shared.authority.admin_group_name();
        let asked = format!("change {}", kind.name());
        self.require_right(Operation::EditRules, &asked, &admins)
    }

    /// Rules name people: if other users are hidden, so are the rules.
    pub(super) fn may_read_rules(&self, kind: RuleSetKind) -> Result<(), Refusal> {
        let by_nobody = Operation::ReadAction { requester: None };
        match check(&self.caller, by_nobody, &self.shared.roles()) {
            Ruling::Allow => Ok(()),
            Ruling::Deny(_) => Err(Refusal::Denied {
                asked: format!("read {}: hide_other_users is set", kind.name()),
                ask: format!(
                    "someone in group {}",
                    self.shared.authority.operator_group_name()
                ),
            }),
        }
    }
}
