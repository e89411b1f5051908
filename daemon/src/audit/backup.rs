//! Copies that people asked for, in the record.

use super::{Act, ActKind, Made, Store, tell_unrecorded_end};
use crate::catalogue::About;
use gpukill_proto::refusal::Refusal;
use serde_json::json;
use std::time::SystemTime;

/// That somebody asks for a copy.
pub(crate) fn asked_for(uid: u32) -> Act {
    Act {
        kind: ActKind::Backup,
        uid,
        asked: String::new(),
        plan: "{}".into(),
    }
}

impl Store {
    /// Makes a copy, whether or not whoever asked still waits, and records it before
    /// anything of it is given to them. That is not before it is made: what a copy
    /// holds would be an act without an end. One that cannot be recorded is made all
    /// the same, for that is when it is needed: it stands in the log.
    ///
    /// # Errors
    /// Why there is none.
    pub(crate) async fn copy_for(&self, uid: u32, host: String) -> Result<Made, Refusal> {
        let store = self.clone();
        let copied = tokio::spawn(async move {
            let asked_at = SystemTime::now().into();
            let made = store.copy(host).await;
            let (word, outcome) = match &made {
                Ok(made) => ("done", json!({ "bytes": made.bytes() })),
                Err(why) => ("failed", json!({ "why": why.to_string() })),
            };
            let recorded = tokio::task::spawn_blocking(move || {
                match store.intend_since(asked_at, asked_for(uid), About::default()) {
                    Ok(open) => open.settle(word, outcome.to_string()),
                    // The log has had why.
                    Err(_) => {
                        let (kind, about) = (ActKind::Backup, About::default());
                        tell_unrecorded_end(kind, &about, word, &outcome.to_string());
                    }
                }
            });
            recorded.await.map_err(|_| Refusal::Internal)?;
            made
        });
        copied.await.map_err(|_| Refusal::Internal)?
    }
}
