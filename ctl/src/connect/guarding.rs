//! The questions about the guard, and the changes of its rules.

use super::Doing;
use super::daemon::Daemon;
use super::patience::Patience;
use crate::exit::Failure;
use gpukill_proto::guard::edit::GuardEdit;
use gpukill_proto::guard::{
    EditReport, ReplayReport, ReplayRequest, RulesRevision, RulesText, Snoozed, ViolationPage,
    ViolationQuery,
};
use gpukill_proto::service::{LONGEST_PART, LONGEST_RULES};

impl Daemon {
    /// One page of what the guard decided.
    pub(crate) async fn violations(
        &self,
        query: &ViolationQuery,
        patience: Patience,
    ) -> Result<ViolationPage, Failure> {
        self.ask(patience, async |context| {
            self.client.violations(context, query.clone()).await
        })
        .await
    }

    /// The rules as they are written: where, what names them, and their text.
    pub(crate) async fn rules(
        &self,
        patience: Patience,
    ) -> Result<(String, Option<RulesRevision>, String), Failure> {
        let mut bytes: Vec<u8> = Vec::new();
        let mut first: Option<(String, Option<RulesRevision>)> = None;
        loop {
            let offset = bytes.len() as u64;
            let RulesText {
                file,
                revision,
                part,
            } = self
                .ask(patience, async |context| {
                    self.client.rules_text(context, offset).await
                })
                .await?;
            let is_same = first.as_ref().is_none_or(|(_, before)| *before == revision);
            if !is_same {
                // Somebody changed them meanwhile: a mixture is nobody's rules.
                bytes.clear();
                first = None;
                continue;
            }
            first.get_or_insert((file, revision));
            if part.is_empty() {
                break;
            }
            bytes.extend(part);
            if bytes.len() > LONGEST_RULES {
                return Err(Failure::Broken("its rules do not end".into()));
            }
        }
        let (file, revision) = first.unwrap_or_default();
        let text = String::from_utf8(bytes);
        let text = text.map_err(|_| Failure::Broken("its rules are no text".into()))?;
        Ok((file, revision, text))
    }

    /// Offers rules of one's own.
    pub(crate) async fn offer_rules(&self, text: &str, patience: Patience) -> Result<(), Failure> {
        let mut offset = 0;
        let nothing: &[u8] = &[];
        // Rules that say nothing are rules: the built-in defaults.
        let first = text.is_empty().then_some(nothing);
        let parts = text.as_bytes().chunks(LONGEST_PART);
        for part in first.into_iter().chain(parts) {
            self.ask(patience, async |context| {
                let part = part.to_vec();
                self.client.offer_rules(context, offset, part).await
            })
            .await?;
            offset += part.len() as u64;
        }
        Ok(())
    }

    /// Changes the rules, or says what that would change; without an edit, to what
    /// was offered.
    pub(crate) async fn edit_rules(
        &self,
        edit: Option<&GuardEdit>,
        expected: Option<&RulesRevision>,
        doing: Doing,
        patience: Patience,
    ) -> Result<EditReport, Failure> {
        let is_dry_run = doing == Doing::Saying;
        self.ask(patience, async |context| {
            let (edit, expected) = (edit.cloned(), expected.cloned());
            self.client
                .edit_rules(context, edit, expected, is_dry_run)
                .await
        })
        .await
    }

    /// Asks for more time before the job of this process is ended.
    pub(crate) async fn snooze(
        &self,
        pid: u32,
        doing: Doing,
        patience: Patience,
    ) -> Result<Vec<Snoozed>, Failure> {
        let is_dry_run = doing == Doing::Saying;
        self.ask(patience, async |context| {
            self.client.snooze(context, pid, is_dry_run).await
        })
        .await
    }

    /// What rules would have done.
    pub(crate) async fn replay_rules(
        &self,
        request: &ReplayRequest,
        patience: Patience,
    ) -> Result<ReplayReport, Failure> {
        self.ask(patience, async |context| {
            self.client.replay_rules(context, request.clone()).await
        })
        .await
    }
}
