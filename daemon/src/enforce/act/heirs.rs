//! Those that were not planned and are ended with the planned ones: they came
//! since the plan was made, or were born while it is carried out.

use super::Act;
use super::target::Target;
use gpukill_policy::kill::newcomers::{joined, newborn, strays};
use gpukill_policy::kill::{Candidate, Crowd};
use gpukill_proto::kill::{Ending, Fate, KillScope, KillTarget};
use gpukill_proto::snapshot::ProcessKey;
use std::collections::BTreeSet;
use std::sync::Arc;

impl Act<'_> {
    /// Makes targets of what came to what is ended since it was planned: a person
    /// may have thought about it for minutes.
    /// False where nothing came.
    pub(super) fn take_in_the_joined(&mut self) -> bool {
        let first = Arc::clone(&self.first);
        self.take_in(joined(self.plan, &first), &first)
    }

    /// Makes targets of what was born to members; false where nothing was.
    pub(super) fn take_in_the_newborn(&mut self) -> bool {
        if !self.is_wide() {
            return false;
        }
        let (crowds, users) = (&self.means.crowds, &self.means.authority.users);
        // At once: while somebody's command line is waited for, others fork, or stay
        // stopped.
        let Ok(crowd) = crowds.everybody_since(&self.first, users) else {
            return false;
        };
        let scope = self.plan.request.scope;
        self.take_in(newborn(&self.seen, scope, &self.first, &crowd), &crowd)
    }

    /// Names those that may be part of the job and got no signal, where any was sent.
    pub(super) fn look_for_strays(&mut self) {
        if self.targets.is_empty() || self.plan.request.scope != KillScope::Job {
            return;
        }
        let (crowds, users) = (&self.means.crowds, &self.means.authority.users);
        let Ok(crowd) = crowds.everybody_since(&self.first, users) else {
            return;
        };
        for key in strays(self.plan, &self.seen, &crowd) {
            if let Some(stray) = crowd.get(&key.pid) {
                let why = "it began meanwhile in the same process group, and its parent has \
                           ended: it may be part of the job";
                self.told
                    .ends(&self.heir(stray), Ending::Unclear(why.into()));
            }
        }
        self.told.publish();
    }

    /// Makes targets of those that were not planned and may get a signal; false where
    /// all are known already. One that has ended by now is new all the same: it may have
    /// children.
    fn take_in(&mut self, heirs: BTreeSet<ProcessKey>, crowd: &Crowd) -> bool {
        let mut any = false;
        for key in heirs {
            let Some(heir) = crowd.get(&key.pid) else {
                continue;
            };
            let users = self.word.users.as_ref();
            if users.is_some_and(|users| !users.have(heir)) || !self.members.insert(key) {
                continue;
            }
            any = true;
            self.seen.insert(key, heir.clone());
            let heir = self.heir(heir);
            match self.open(&heir) {
                Ok(mut open) => {
                    // At once, as it was looked at just now.
                    let stops = |step| open.awaits_stop(step, self.forks);
                    if self.stops_before.is_some_and(stops) {
                        open.stop(&self.means.frozen);
                    }
                    self.targets.push(open);
                }
                // One that lived for a moment is nobody's news.
                Err(Ending::Gone | Ending::Zombie(_)) => {}
                Err(ending) => self.told.ends(&heir, ending),
            }
        }
        any
    }

    /// A newborn as a target: it gets what the others get, from this step on.
    fn heir(&self, born: &Candidate) -> KillTarget {
        let signals = self.targets.iter().map(Target::signals);
        let signals = signals.max_by_key(|signals| signals.len());
        KillTarget {
            key: born.kin.key,
            name: born.kin.name.clone(),
            command: born.command.clone(),
            uid: born.uids.clone().map(|uids| uids.real),
            owner: born.owner.clone(),
            holds: Vec::new(),
            named: false,
            job: born.job.clone(),
            fate: Fate::End(signals.unwrap_or_default().to_vec()),
            overridden: None,
        }
    }
}
