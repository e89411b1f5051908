//! The call that reports the status of the daemon and the rights of the caller.

use super::Session;
use crate::rules_file::RulesMistake;
use crate::store::RuleSetKind;
use gpukill_policy::access::rights;
use gpukill_policy::alert::alert_values;
use gpukill_proto::PROTOCOL_VERSION;
use gpukill_proto::guard::GuardReport;
use gpukill_proto::reading::Reading;
use gpukill_proto::status::{CallerReport, CountersReport, DaemonStatus, DeviceEnergy};

impl Session {
    /// The status, with the name of the caller if the name service answers in a moment.
    pub(crate) async fn status_report(&self) -> DaemonStatus {
        self.wait_for_names(&[self.caller.uid]).await;
        let is_file_changed = self.shared.guard.is_file_changed().await;
        let shared = &self.shared;
        let published = shared.state.borrow().clone();
        let config = shared.authority.config.borrow().clone();
        DaemonStatus {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            protocol: PROTOCOL_VERSION,
            host: published.snapshot.host.clone(),
            started_at: shared.started_at,
            now: shared.clock.now(),
            caller: self.caller_report(),
            personal: config.personal,
            will_not_act: shared.disabled_reason.clone(),
            backends: published.snapshot.backends.clone(),
            faults: published.snapshot.faults.clone(),
            alerts: alert_values(&config.alerts, &published.snapshot),
            polling: published.polling,
            store: shared.store.report(),
            guard: self.guard_report(is_file_changed),
            rogue: self.rogue_report(&published.snapshot),
            settings: config.changed_settings(),
            counters: self.counters(&published.energy),
        }
    }

    /// The counters. The decisions of the guard are counted for all users together, so they are only
    /// for a caller who may see all users.
    fn counters(&self, energy: &[DeviceEnergy]) -> CountersReport {
        let roles = self.shared.roles();
        let report = self.shared.store.counters().report(energy.to_vec());
        match self.visibility(&roles).sees_all_users() {
            true => report,
            false => CountersReport {
                decisions: Reading::Withheld,
                ..report
            },
        }
    }

    /// The status report of the guard. It counts only violations, warnings and ends that the caller
    /// may see; a mistake quotes the file only to callers who may edit it.
    fn guard_report(&self, is_file_changed: Option<bool>) -> GuardReport {
        let (guard, roles) = (&self.shared.guard, self.shared.roles());
        let (visibility, status) = (self.visibility(&roles), guard.status());
        let mut report = guard.report();
        let today = visibility.today_counts(status.counts.done());
        let simulated = visibility.today_counts(status.counts.simulated());
        if self.may_edit_rules(RuleSetKind::Guard).is_err() {
            let wrong = guard.in_force().mistakes;
            report.mistakes = wrong.iter().map(RulesMistake::position).collect();
        }
        GuardReport {
            open: visibility.count_visible(&status.open),
            would_have_ended: visibility.count_simulated(&status.simulated),
            warned_today: today.warned,
            ended_today: today.ended,
            simulated_warned_today: simulated.warned,
            simulated_ended_today: simulated.ended,
            idle_services: visibility.idle_services(&status.open, &guard.in_force().rules.compiled),
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
