//! Has the store go on in the files of a copy. Only the thread that writes can: what
//! it has not written yet is in no file.

use super::super::restore::{Prepared, Restored, Restoring, Told, finish, free_time, old_place};
use super::{Killed, Writer};
use gpukill_proto::units::Timestamp;
use serde_json::{Value, json};
use std::time::{Instant, SystemTime};

impl Writer {
    pub(super) fn restore(&mut self, restoring: Restoring) {
        let Restoring {
            prepared,
            act,
            told,
            answer,
        } = restoring;
        let outcome = match self.acts.row_of(act) {
            Some(row) => self.put_in_place(prepared, row, told),
            None => Err("the act is over".to_owned()),
        };
        // Whoever waited may have gone.
        let _ = answer.send(outcome);
    }

    fn put_in_place(
        &mut self,
        mut prepared: Prepared,
        row: i64,
        copy: Value,
    ) -> Result<Restored, String> {
        let now = Timestamp::from(SystemTime::now());
        let time = free_time(&self.directory, now);
        let set_aside = old_place(&self.directory, &time);
        let Some(audit) = &self.audit else {
            return Err(self.why_no_audit());
        };
        let outcome = json!({
            "restored": copy,
            "set_aside": set_aside.display().to_string(),
        });
        let told = Told {
            row,
            at: now.0,
            outcome: outcome.to_string(),
        };
        let samples = self.samples.as_ref().map(|opened| &opened.connection);
        let under_way = prepared.complete(&audit.connection, samples, &told)?;
        let carried = prepared.carried();
        // Closed before they are renamed, so that their logs are emptied into them.
        (self.samples, self.audit) = (None, None);
        self.retry_at = Instant::now();
        let decided = prepared.decide(&self.directory, &time);
        if decided.is_ok() {
            self.acts.moved(&under_way);
            // What was killed lately is told of by other rows now.
            self.killed = Killed::default();
        }
        let finished = decided.and_then(|()| finish(&self.directory));
        self.open_what_is_closed();
        finished.map(|()| Restored {
            set_aside,
            carried,
            outcome: told.outcome,
        })
    }
}
