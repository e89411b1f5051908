//! Late members are processes that joined a job after the plan, or were forked while it is
//! executed. The executor ends them with the planned processes.

use super::Execution;
use super::target::Target;
use gpukill_policy::kill::late_members::{find_forked, find_joined, find_strays};
use gpukill_policy::kill::{ProcessInfo, ProcessTable};
use gpukill_proto::kill::{KillScope, KillTarget, Outcome, PlannedAction};
use gpukill_proto::model::ProcessKey;
use std::collections::BTreeSet;
use std::sync::Arc;

impl Execution<'_> {
    /// Adds processes that joined the job since the plan, which may be minutes old. False where
    /// there are none.
    pub(super) fn add_joined(&mut self) -> bool {
        let first = Arc::clone(&self.initial_table);
        self.add_late_members(find_joined(self.plan, &first), &first)
    }

    /// Adds processes that members have forked. False where there are none.
    pub(super) fn add_forked(&mut self) -> bool {
        if !self.is_wide() {
            return false;
        }
        let table = self.reread_table();
        let scope = self.plan.request.scope;
        self.add_late_members(
            find_forked(&self.observed, scope, &self.initial_table, &table),
            &table,
        )
    }

    /// Reads all processes again. Only the minimum is read: while a slow command line is read, other
    /// processes fork or stay stopped.
    fn reread_table(&mut self) -> ProcessTable {
        let (reader, users) = (
            &self.environment.process_tables,
            &self.environment.authority.users,
        );
        match reader.reread_all(&self.initial_table, users) {
            Ok(later) => {
                self.missing = later.missing;
                later.table
            }
            Err(error) => {
                self.missing = Some(format!("cannot read the process table: {error}"));
                ProcessTable::default()
            }
        }
    }

    /// Reports why processes of the job may be left that nobody has seen, where any signal was sent.
    /// Processes that the last scan missed can belong to this job only if its processes came or went
    /// during the kill.
    pub(super) fn report_unchecked(&mut self) {
        let has_changed =
            self.members.len() > self.plan.targets.len() || self.reporter.has_gone_targets();
        if !self.targets.is_empty() && has_changed {
            self.reporter.set_unchecked(self.missing.take());
        }
    }

    /// Reports processes that may be part of the job and got no signal, where any signal was sent.
    pub(super) fn report_strays(&mut self) {
        if self.targets.is_empty() || self.plan.request.scope != KillScope::Job {
            return;
        }
        let table = self.reread_table();
        for key in find_strays(self.plan, &self.observed, &table) {
            if let Some(stray) = table.get(&key.pid) {
                let why = "it started during the kill in the same process group and its parent has \
                           ended: it may be part of the job";
                self.reporter
                    .add_unsignalled(&self.late_target(stray), Outcome::Unclear(why.into()));
            }
        }
        self.reporter.publish();
    }

    /// Adds late members that may get a signal. False where all of them are known already. A late
    /// member that has ended by now still counts as new: it may have children.
    fn add_late_members(&mut self, keys: BTreeSet<ProcessKey>, table: &ProcessTable) -> bool {
        let mut any = false;
        for key in keys {
            let Some(member) = table.get(&key.pid) else {
                continue;
            };
            let users = self.authorization.late_member_users.as_ref();
            if users.is_some_and(|users| !users.include(member)) || !self.members.insert(key) {
                continue;
            }
            any = true;
            self.observed.insert(key, member.clone());
            let member = self.late_target(member);
            match self.open_target(&member) {
                Ok(mut open) => {
                    // Stopped at once: its recheck has just been done.
                    let stops = |step| open.needs_stop(step, self.has_forked);
                    if self.stopping_for_step.is_some_and(stops) {
                        open.stop(&self.environment.stopped_processes);
                    }
                    self.targets.push(open);
                }
                // A process that lived for a moment is not reported.
                Err(Outcome::Gone | Outcome::Zombie(_)) => {}
                Err(outcome) => self.reporter.add_unsignalled(&member, outcome),
            }
        }
        any
    }

    /// A late member as a target: from this step on it gets the same signals as the others.
    fn late_target(&self, process: &ProcessInfo) -> KillTarget {
        let signals = self.targets.iter().map(Target::signals);
        let signals = signals.max_by_key(|signals| signals.len());
        KillTarget {
            key: process.lineage.key,
            name: process.lineage.name.clone(),
            command: process.command.clone(),
            uid: process.uids.clone().map(|uids| uids.real),
            owner: process.owner.clone(),
            holds: Vec::new(),
            named: false,
            job: process.job.clone(),
            action: PlannedAction::End(signals.unwrap_or_default().to_vec()),
            overridden: None,
        }
    }
}
