//! Actions, as the writing thread records them.

use super::super::actions::{ActionEnd, RecordedKill};
use super::super::queue::{self, ActionIntent};
use super::super::refusals::RefusalRow;
use super::super::{Action, ActionId};
use super::{MAX_PENDING_FOR_REFUSALS, PendingEntry, Writer};
use crate::log_events::event;
use gpukill_proto::units::Timestamp;
use std::time::{Instant, SystemTime};

impl Writer {
    /// Takes the entries of the action queue.
    pub(super) fn process_queue(&mut self) {
        loop {
            let (ends, intent) = queue::lock(&self.queue).take_next();
            for (id, end) in ends {
                self.open_actions.end(id, end);
            }
            self.write_ends();
            let Some(intent) = intent else { break };
            self.handle_intent(intent);
        }
        let due = queue::lock(&self.queue).refusals.take_due(Instant::now());
        self.push_refusals(due);
    }

    /// Either the caller learns that its action is recorded, or the action is not recorded as one
    /// that the caller knows of.
    fn handle_intent(&mut self, intent: ActionIntent) {
        if Instant::now() >= intent.deadline {
            return;
        }
        let answer = match self.begin_action(&intent.action, intent.at) {
            Ok(id) => intent.answer.send(Ok(id)).map_err(|_| Some(id)),
            Err((why, id)) => {
                // A caller that gave up already has another reason.
                let _ = intent.answer.send(Err(why));
                Err(id)
            }
        };
        if let Err(Some(id)) = answer {
            self.open_actions
                .end(id, ActionEnd::unrecorded(SystemTime::now().into()));
            self.write_ends();
        }
    }

    /// Inserts the row of an action.
    ///
    /// # Errors
    /// The reason why it is not recorded, and the id of a row that was written in vain.
    fn begin_action(
        &mut self,
        action: &Action,
        at: Timestamp,
    ) -> Result<ActionId, (String, Option<ActionId>)> {
        if !self.open_actions.has_room() {
            return Err(("too many actions are open".into(), None));
        }
        let result = self.with_audit(|writer, connection| {
            writer.open_actions.begin(connection, action.clone(), at)
        });
        let Some(id) = result else {
            return Err((self.audit_error(), None));
        };
        // The file may have been moved away just before. The next file gets the open actions when
        // it is opened.
        self.close_moved_files();
        self.open_closed_files();
        match self.audit {
            Some(_) => Ok(id),
            None => Err((self.audit_error(), Some(id))),
        }
    }

    pub(super) fn audit_error(&self) -> String {
        let why = self.audit_fault.clone();
        why.unwrap_or_else(|| "the record is not open".into())
    }

    fn write_ends(&mut self) {
        let mut kills = Vec::new();
        self.with_audit(|writer, connection| {
            writer.open_actions.write_ends(connection, &mut kills)
        });
        self.add_kills(&kills);
    }

    /// Marks the runs of the processes that these kills ended. Runs that are not over yet are
    /// marked as soon as they are.
    fn add_kills(&mut self, kills: &[RecordedKill]) {
        if kills.is_empty() {
            return;
        }
        for kill in kills {
            self.killed_runs
                .add(kill.row, kill.at, &kill.ended, Instant::now());
        }
        self.mark_killed_runs();
    }

    /// Before the first sample: adds the processes that an earlier run of the daemon ended before a
    /// sample recorded it.
    pub(super) fn add_earlier_kills(&mut self) {
        let (Some(samples), Some(audit)) = (&self.samples, &self.audit) else {
            return;
        };
        let files = (&audit.connection, &samples.connection);
        let recovered = self
            .killed_runs
            .add_earlier_kills(files, &self.daemon_run, Instant::now());
        if let Err(error) = recovered {
            tracing::warn!(
                %error,
                "earlier kills cannot be read: the ends of their runs stay unknown"
            );
        }
    }

    /// Marks the runs that are over by now.
    pub(super) fn mark_killed_runs(&mut self) {
        if let Some(opened) = &mut self.samples
            && let Err(error) = self
                .killed_runs
                .mark_runs(&mut opened.connection, &self.boot)
        {
            self.close_samples(&error);
        }
    }

    fn push_refusals(&mut self, refused: Vec<RefusalRow>) {
        for row in refused {
            event!(
                ActionRefused,
                action = row.kind.name(),
                caller_uid = row.uid,
                times = row.times,
                request = row.request,
                plan = row.plan.as_deref(),
                why = row.why,
            );
            if self.pending.len() >= MAX_PENDING_FOR_REFUSALS {
                event!(
                    NotRecorded;
                    "too many entries wait for the store: this refusal is not recorded"
                );
                continue;
            }
            self.pending.push_back(PendingEntry::Refused(row));
        }
        self.flush_events();
    }

    /// Writes all pending entries: no more will follow.
    pub(super) fn finish(&mut self) {
        let rest = queue::lock(&self.queue).refusals.drain();
        self.push_refusals(rest);
        while self.audit.is_some() && !self.pending.is_empty() {
            self.flush_events();
        }
        let (now, mut kills) = (SystemTime::now().into(), Vec::new());
        self.with_audit(|writer, connection| {
            writer.open_actions.interrupt(connection, now, &mut kills)
        });
        self.add_kills(&kills);
    }
}
