//! Copies of the store that a user requested, with their entries in the record.

use super::{Action, ActionKind, Store, StoreCopy};
use crate::log_events::EventSubject;
use gpukill_proto::refusal::Refusal;
use serde_json::json;
use std::time::SystemTime;

/// The action of a user who requests a copy.
pub(crate) fn backup_action(uid: u32) -> Action {
    Action {
        kind: ActionKind::Backup,
        uid,
        request: String::new(),
        plan: "{}".into(),
    }
}

impl Store {
    /// Makes a copy, even if the caller goes away, and records the action before any part of the
    /// copy is handed out. The action is recorded after the copy was made: otherwise the copy would
    /// contain an open action. A copy that cannot be recorded is made all the same, because then it
    /// is needed most; the log has the action.
    pub(crate) async fn make_recorded_copy(
        &self,
        uid: u32,
        host: String,
    ) -> Result<StoreCopy, Refusal> {
        let store = self.clone();
        let copied = tokio::spawn(async move {
            let asked_at = SystemTime::now().into();
            let made = store.make_copy(host).await;
            let (result, outcome) = match &made {
                Ok(made) => ("done", json!({ "bytes": made.bytes() })),
                Err(why) => ("failed", json!({ "why": why.to_string() })),
            };
            let recorded = tokio::task::spawn_blocking(move || {
                match store.record_intent_at(asked_at, backup_action(uid), EventSubject::default())
                {
                    Ok(open) => open.settle(result, outcome.to_string()),
                    // The log already has the reason.
                    Err(_) => {
                        let (kind, subject) = (ActionKind::Backup, EventSubject::default());
                        store.log_unrecorded_end(kind, &subject, result, &outcome.to_string());
                    }
                }
            });
            recorded.await.map_err(|_| Refusal::Internal)?;
            made
        });
        copied.await.map_err(|_| Refusal::Internal)?
    }
}
