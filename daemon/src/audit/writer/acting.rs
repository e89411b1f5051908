//! What people have the daemon do, written down by the thread that writes.

use super::super::acts::End;
use super::super::inbox::{self, Intent};
use super::super::refusals::Refused;
use super::super::{Act, ActId};
use super::{MOST_BEFORE_REFUSALS, Pending, Writer};
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
        let answer = match self.begin(intent.act, intent.at) {
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
    fn begin(&mut self, act: Act, at: Timestamp) -> Result<ActId, (String, Option<ActId>)> {
        if !self.acts.have_room() {
            return Err(("too many acts are under way".into(), None));
        }
        let Some(opened) = &self.audit else {
            return Err((self.why_no_audit(), None));
        };
        match self.acts.begin(&opened.connection, act, at) {
            Ok(id) => {
                // It may have been moved away just before. The next one gets what
                // is under way as it is opened.
                self.close_what_was_taken_away();
                self.open_what_is_closed();
                match self.audit {
                    Some(_) => Ok(id),
                    None => Err((self.why_no_audit(), Some(id))),
                }
            }
            Err(error) => {
                self.close_audit(&error);
                Err((self.why_no_audit(), None))
            }
        }
    }

    fn why_no_audit(&self) -> String {
        let why = self.audit_fault.clone();
        why.unwrap_or_else(|| "the record is not open".into())
    }

    fn write_ends(&mut self) {
        if let Some(opened) = &self.audit
            && let Err(error) = self.acts.write_ends(&opened.connection)
        {
            self.close_audit(&error);
        }
    }

    fn refuse(&mut self, refused: Vec<Refused>) {
        for it in refused {
            let (kind, uid, times) = (it.kind.name(), it.uid, it.times);
            let (asked, plan, why) = (&it.asked, it.plan.as_deref(), &it.why);
            tracing::info!(kind, uid, times, asked, plan, why, "an act was refused");
            if self.pending.len() >= MOST_BEFORE_REFUSALS {
                tracing::error!("too much waits for the store: this refusal is not recorded");
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
        self.flush_events();
        if let Some(opened) = &self.audit
            && let Err(error) = self
                .acts
                .interrupt(&opened.connection, SystemTime::now().into())
        {
            self.close_audit(&error);
        }
    }
}
