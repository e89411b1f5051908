//! Previews of rules: what the guard would do next if an edit was made. The guard evaluates the
//! rules on a copy of its state, and each job that it would end is planned as for its end.

use super::rules::GuardRuleSet;
use super::worker::{GuardCommand, GuardWorker};
use super::{Guard, SNOOZE_TIMEOUT};
use crate::kill::KillService;
use gpukill_policy::guard::preview::{PreviewedViolation, preview};
use gpukill_policy::guard::restarted::count_restarted;
use gpukill_proto::collect::SortIndirect as _;
use gpukill_proto::guard::{AffectedViolation, GuardAction, GuardMode, MAX_AFFECTED_VIOLATIONS};
use std::sync::mpsc::{SyncSender, sync_channel};

/// A request for the thread of the guard.
pub(super) struct PreviewCommand {
    rules: GuardRuleSet,
    /// Whether the edit resumes a guard that has stopped, and confirms rules in doubt.
    resumes: bool,
    answer: SyncSender<Preview>,
}

struct Preview {
    /// The violations that the rules begin or restart.
    violations: Vec<PreviewedViolation>,
    /// Makes the plans; `None` while the daemon starts.
    service: Option<KillService>,
}

impl GuardWorker {
    pub(super) fn preview(&mut self, command: &PreviewCommand) {
        let held = self.effective_rules();
        let mut state = self.state.state.clone();
        let is_doubted = state.doubt().is_some_and(|doubt| doubt.only_warn);
        if command.resumes {
            state.resume();
        }
        let rules = match state.tripped_at() {
            Some(_) => &command.rules.dry_run,
            None => &command.rules.compiled,
        };
        let mut violations = preview(rules, &state, &self.recent);
        violations.retain(|PreviewedViolation { open, .. }| {
            let is_confirmed = command.resumes && is_doubted && open.rule.kind.is_behaviour();
            is_confirmed
                || !self.state.state.has_violation(open)
                || count_restarted(std::slice::from_ref(open), &held, rules) > 0
        });
        let service = self.enforcer.as_ref().map(|armed| armed.enforcer.clone());
        // The caller may have gone.
        let _ = command.answer.send(Preview {
            violations,
            service,
        });
    }
}

impl Guard {
    /// The violations that these rules would begin or restart, those that end a job first. Waits
    /// for the guard; `None` if it does not answer in time.
    pub(super) fn affected_violations(
        &self,
        rules: &GuardRuleSet,
        resumes: bool,
    ) -> Option<Vec<AffectedViolation>> {
        if rules.compiled.rules().mode == GuardMode::Disabled {
            return Some(Vec::new());
        }
        let (answer, answered) = sync_channel(1);
        let command = PreviewCommand {
            rules: rules.clone(),
            resumes,
            answer,
        };
        let command = GuardCommand::Preview(Box::new(command));
        self.commands.try_send(command).ok()?;
        let preview = answered.recv_timeout(SNOOZE_TIMEOUT).ok()?;
        let mut violations = preview.violations;
        if let Some(service) = preview.service {
            service.veto_previewed(&mut violations, rules.compiled.rules());
        }
        violations.sort_indirect_by_key(ends_none);
        let affected = violations.into_iter().take(MAX_AFFECTED_VIOLATIONS);
        let affected = affected
            .map(|PreviewedViolation { open, exempt, .. }| AffectedViolation { open, exempt });
        Some(affected.collect())
    }
}

/// Whether no job is ended for it.
fn ends_none(previewed: &PreviewedViolation) -> bool {
    previewed.exempt.is_some() || previewed.open.action == GuardAction::Warn
}
