//! Those that were not planned and are ended with the planned ones: they came
//! since the plan was made, or were born while it is carried out.

use super::Act;
use super::target::Target;
use gpukill_policy::kill::Candidate;
use gpukill_policy::kill::belongs::{joined, newborn};
use gpukill_proto::kill::{Ending, Fate, KillTarget};

impl Act<'_> {
    /// Makes targets of what came to what is ended since it was planned: a person
    /// may have thought about it for minutes.
    pub(super) fn take_in_the_joined(&mut self) {
        let first = std::mem::take(&mut self.first);
        let joined = joined(self.plan, &first);
        let joined: Vec<&Candidate> = joined
            .iter()
            .filter_map(|key| first.get(&key.pid))
            .collect();
        let heirs: Vec<KillTarget> = joined.into_iter().map(|one| self.heir(one)).collect();
        self.first = first;
        for heir in heirs {
            if self.members.insert(heir.key) {
                self.take_in(&heir);
            }
        }
    }

    /// Makes targets of what was born to members; false where nothing was.
    pub(super) fn take_in_the_newborn(&mut self) -> bool {
        if !self.is_wide() {
            return false;
        }
        let Ok(crowd) = self.means.crowds.everybody(&self.means.authority.users) else {
            return false;
        };
        let scope = self.plan.request.scope;
        let born = newborn(&self.members, scope, &self.first, &crowd);
        let mut any = false;
        for key in born {
            if !self.members.insert(key) {
                continue;
            }
            let Some(candidate) = crowd.get(&key.pid) else {
                continue;
            };
            let target = self.heir(candidate);
            any |= self.take_in(&target);
        }
        any
    }

    /// Makes a target of one that was not planned, where it may get a signal.
    fn take_in(&mut self, heir: &KillTarget) -> bool {
        match self.open(heir) {
            Ok(open) => {
                self.targets.push(open);
                return true;
            }
            // One that lived for a moment is nobody's news.
            Err(Ending::Gone | Ending::Zombie(_)) => {}
            Err(ending) => self.told.ends(heir, ending),
        }
        false
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
        }
    }
}
