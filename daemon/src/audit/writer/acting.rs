//! What people have the daemon do, written down by the thread that writes.

use super::super::acts::{End, Kill};
use super::super::inbox::{self, Intent};
use super::super::refusals::Refused;
use super::super::{Act, ActId};
use super::{MOST_BEFORE_REFUSALS, Pending, Writer};
use crate::catalogue::tell;
use gpukill_proto::units::Timestamp;
use std::time::{Instant, SystemTime};

impl Writer {
    /// Takes what is in the inbox.
    pub(super) fn look(&mut self) {
        loop {
            let (ends, intent) = inbox::open(&self.inbox).fetch();
            for (id, end) in ends {
                self.acts.end(id, end);
            }
            self.write_ends();
            let Some(intent) = intent else { break };
            self.intend(intent);
        }
        let due = inbox::open(&self.inbox).refusals.due(Instant::now());
        self.refuse(due);
    }

    /// Whoever asked knows that an act is recorded, or else it is not recorded as
    /// one that they know of.
    fn intend(&mut self, intent: Intent) {
        if Instant::now() >= intent.deadline {
            return;
        }
        let answer = match self.begin(&intent.act, intent.at) {
            Ok(id) => intent.answer.send(Ok(id)).map_err(|_| Some(id)),
            Err((why, id)) => {
                // Whoever gave up has another reason already.
                let _ = intent.answer.send(Err(why));
                Err(id)
            }
        };
        if let Err(Some(id)) = answer {
            self.acts.end(id, End::unrecorded(SystemTime::now().into()));
            self.write_ends();
        }
    }

    /// Records an act; or says why not, and what was recorded in vain.
    fn begin(&mut self, act: &Act, at: Timestamp) -> Result<ActId, (String, Option<ActId>)> {
        if !self.acts.have_room() {
            return Err(("too many acts are under way".into(), None));
        }
        let begun =
            self.on_audit(|writer, connection| writer.acts.begin(connection, act.clone(), at));
        let Some(id) = begun else {
            return Err((self.why_no_audit(), None));
        };
        // It may have been moved away just before. The next one gets what is
        // under way as it is opened.
        self.close_what_was_taken_away();
        self.open_what_is_closed();
        match self.audit {
            Some(_) => Ok(id),
            None => Err((self.why_no_audit(), Some(id))),
        }
    }

    pub(super) fn why_no_audit(&self) -> String {
        let why = self.audit_fault.clone();
        why.unwrap_or_else(|| "the record is not open".into())
    }

    fn write_ends(&mut self) {
        let mut kills = Vec::new();
        self.on_audit(|writer, connection| writer.acts.write_ends(connection, &mut kills));
        self.mark_killed(&kills);
    }

    /// The runs of processes that these kills ended are told to be killed. Those that
    /// are not over yet are as soon as they are.
    fn mark_killed(&mut self, kills: &[Kill]) {
        if kills.is_empty() {
            return;
        }
        for kill in kills {
            self.killed
                .take(kill.row, kill.at, &kill.ended, Instant::now());
        }
        self.mark();
    }

    /// Before the first sample: whom an earlier run of the daemon ended, and no
    /// sample told of.
    pub(super) fn recall_kills(&mut self) {
        let (Some(samples), Some(audit)) = (&self.samples, &self.audit) else {
            return;
        };
        let files = (&audit.connection, &samples.connection);
        let recalled = self.killed.recall(files, &self.daemon_run, Instant::now());
        if let Err(error) = recalled {
            tracing::warn!(%error, "kills of before are not known: their ends stay unseen");
        }
    }

    /// Marks the runs that are over by now.
    pub(super) fn mark(&mut self) {
        if let Some(opened) = &mut self.samples
            && let Err(error) = self.killed.mark(&mut opened.connection, &self.boot)
        {
            self.close_samples(&error);
        }
    }

    fn refuse(&mut self, refused: Vec<Refused>) {
        for it in refused {
            tell!(
                ActRefused,
                action = it.kind.name(),
                caller_uid = it.uid,
                times = it.times,
                asked = it.asked,
                plan = it.plan.as_deref(),
                why = it.why,
            );
            if self.pending.len() >= MOST_BEFORE_REFUSALS {
                tell!(NotRecorded; "too much waits for the store: this refusal is not recorded");
                continue;
            }
            self.pending.push_back(Pending::Refused(it));
        }
        self.flush_events();
    }

    /// Writes what is left: nothing comes after it.
    pub(super) fn finish(&mut self) {
        let rest = inbox::open(&self.inbox).refusals.rest();
        self.refuse(rest);
        while self.audit.is_some() && !self.pending.is_empty() {
            self.flush_events();
        }
        let (now, mut kills) = (SystemTime::now().into(), Vec::new());
        self.on_audit(|writer, connection| writer.acts.interrupt(connection, now, &mut kills));
        self.mark_killed(&kills);
    }
}
