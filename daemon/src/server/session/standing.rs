//! How the daemon stands, and what this caller may do.

use super::Session;
use crate::rules_file::Wrong;
use gpukill_policy::access::rights;
use gpukill_policy::alert::values;
use gpukill_proto::PROTOCOL_VERSION;
use gpukill_proto::guard::GuardReport;
use gpukill_proto::status::{CallerReport, Status};
use std::time::Duration;

/// How long an answer waits for the names of people, and how often it looks.
const NAME_PATIENCE: Duration = Duration::from_millis(100);
const NAME_STEP: Duration = Duration::from_millis(2);

impl Session {
    /// Gives the name service a moment to say what the caller is called.
    pub(super) async fn learn_own_name(&self) {
        self.learn_names(&[self.caller.uid]).await;
    }

    /// The same for the names of these.
    pub(super) async fn learn_names(&self, uids: &[u32]) {
        let users = &self.shared.authority.users;
        let mut waited = Duration::ZERO;
        while uids.iter().any(|uid| users.is_asking_for(*uid)) && waited < NAME_PATIENCE {
            tokio::time::sleep(NAME_STEP).await;
            waited += NAME_STEP;
        }
    }

    /// What is told.
    pub(super) fn report(&self, is_file_changed: Option<bool>) -> Status {
        let shared = &self.shared;
        let published = shared.state.borrow().clone();
        let config = shared.authority.config.borrow().clone();
        Status {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            protocol: PROTOCOL_VERSION,
            host: published.snapshot.host.clone(),
            started_at: shared.started_at,
            now: shared.clock.now(),
            caller: self.caller_report(),
            personal: config.personal,
            will_not_act: shared.will_not_act.clone(),
            backends: published.snapshot.backends.clone(),
            faults: published.snapshot.faults.clone(),
            alerts: values(&config.alerts, &published.snapshot),
            polling: published.polling,
            store: shared.store.report(),
            guard: self.guard_report(is_file_changed),
            rogue: self.rogue_report(&published.snapshot),
            settings: config.changed(),
        }
    }

    /// How the guard stands. Of violations and of whom was warned and ended those count
    /// that the caller may see, and what a mistake quotes of the file is for whoever may
    /// change it.
    fn guard_report(&self, is_file_changed: Option<bool>) -> GuardReport {
        let (guard, roles) = (&self.shared.guard, self.shared.roles());
        let (sight, standing) = (self.sight(&roles), guard.standing());
        let mut report = guard.report();
        let today = sight.today(standing.today.done());
        let simulated = sight.today(standing.today.simulated());
        if self.may_edit_rules().is_err() {
            let wrong = guard.in_force().mistakes;
            report.mistakes = wrong.iter().map(Wrong::place).collect();
        }
        GuardReport {
            open: sight.count(&standing.open),
            would_have_ended: sight.count_simulated(&standing.simulated),
            warned_today: today.warned,
            ended_today: today.ended,
            simulated_warned_today: simulated.warned,
            simulated_ended_today: simulated.ended,
            idle_services: sight.idle_services(&standing.open, &guard.in_force().rules.book),
            is_file_changed,
            ..report
        }
    }

    fn caller_report(&self) -> CallerReport {
        let shared = &self.shared;
        let user = shared.authority.users.name(self.caller.uid);
        let access = &shared.authority.config.borrow().access;
        let groups = [&access.operator_group, &access.admin_group];
        let log_in_again_for = groups.into_iter().find(|name| {
            let group = shared.authority.users.group(name);
            group.zip(user.known()).is_some_and(|(group, user)| {
                group.members.contains(user) && !self.caller.groups.contains(&group.gid)
            })
        });
        CallerReport {
            uid: self.caller.uid,
            rights: rights(&self.caller, &shared.roles()),
            log_in_again_for: log_in_again_for.cloned(),
            user,
        }
    }
}
