//! The calls that end processes: plan, execute, follow.

use super::super::kill_pages::{plan_page, report_page};
use super::Session;
use gpukill_proto::kill::{
    KillPlan, KillPlanPage, KillReport, KillReportPage, KillRequest, KillSignal, MAX_PIDS,
    MAX_SIGNAL_TIMEOUT_MS, OperationId, PlanId,
};
use gpukill_proto::refusal::Refusal;
use gpukill_proto::service::MAX_WAIT;
use std::sync::{Arc, Mutex, PoisonError};

/// The maximum length of a condition, in bytes.
const MAX_CONDITION_BYTES: usize = 1_024;

/// The plan and the report that a connection may read more pages of.
#[derive(Clone, Default)]
pub(crate) struct PendingKillPages {
    plan: PendingPages<Arc<KillPlan>>,
    report: PendingPages<(OperationId, Arc<KillReport>)>,
}

/// Kept while there are more pages.
type PendingPages<T> = Arc<Mutex<Option<T>>>;

impl Session {
    /// Makes a plan, and returns its first page.
    pub(crate) async fn kill_plan(&self, request: KillRequest) -> Result<KillPlanPage, Refusal> {
        let request = validate(request)?;
        let (id, plan) = self.shared.enforcer.plan(&self.caller, request).await?;
        let page = plan_page(id, &plan, 0, &self.caller, &self.shared.roles());
        // A plan without an id can only be read on this connection.
        let more = page.next.filter(|_| id.is_none()).map(|_| plan);
        *lock(&self.pending_kill.plan) = more;
        Ok(page)
    }

    /// Returns another page of a plan.
    pub(crate) async fn kill_plan_page(
        &self,
        plan: PlanId,
        start: u32,
    ) -> Result<KillPlanPage, Refusal> {
        let (id, plan) = if plan == PlanId::LAST {
            let kept = lock(&self.pending_kill.plan).clone();
            (None, kept.ok_or(Refusal::Expired)?)
        } else {
            let kept = self.shared.enforcer.get_plan(&self.caller, plan)?;
            (Some(plan), kept)
        };
        let roles = self.shared.roles();
        Ok(plan_page(id, &plan, start as usize, &self.caller, &roles))
    }

    /// Starts the execution of a plan.
    pub(crate) async fn start_kill(&self, plan: PlanId) -> Result<OperationId, Refusal> {
        self.shared.enforcer.execute(&self.caller, plan)
    }

    /// Returns a page of the current report.
    pub(crate) async fn kill_report_page(
        &self,
        operation: OperationId,
        after: Option<u64>,
        start: u32,
    ) -> Result<KillReportPage, Refusal> {
        let mut followed = self.shared.enforcer.follow(&self.caller, operation)?;
        let report = if start == 0 {
            if let Some(after) = after {
                let newer = followed.report.wait_for(|report| report.version > after);
                // On a timeout, or at the end of the operation, the current report is the answer.
                let _ = tokio::time::timeout(MAX_WAIT, newer).await;
            }
            Arc::clone(&followed.report.borrow())
        } else {
            // The same report as the previous page: outcomes are inserted in between.
            let kept = lock(&self.pending_kill.report).clone();
            let kept = kept.filter(|(of, _)| *of == operation);
            kept.map(|(_, report)| report).ok_or(Refusal::Expired)?
        };
        let page = report_page(
            &report,
            &followed.plan,
            followed.is_own,
            start as usize,
            &self.caller,
            &self.shared.roles(),
        );
        // Kept only while there are more pages.
        *lock(&self.pending_kill.report) = page.next.map(|_| (operation, report));
        Ok(page)
    }
}

fn lock<T>(of: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    // Only values are stored under it, so that nothing panics.
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Checks the limits that any client respects; whether the targets are valid is decided in
/// `policy`.
fn validate(request: KillRequest) -> Result<KillRequest, Refusal> {
    let selector = &request.selector;
    if selector.pids.len() > MAX_PIDS {
        let pids = selector.pids.len();
        return Err(Refusal::Invalid(format!(
            "{pids} pids exceed the maximum of {MAX_PIDS}"
        )));
    }
    let texts = [
        ("--filter", &selector.filter),
        ("--command", &selector.command),
        ("--gpu", &selector.gpu),
        ("--user", &selector.user),
        ("--container", &selector.container),
        ("--image", &selector.image),
        ("--job", &selector.job),
    ];
    for (option, text) in texts {
        if text
            .as_ref()
            .is_some_and(|text| text.len() > MAX_CONDITION_BYTES)
        {
            return Err(Refusal::Invalid(format!(
                "{option}: it is longer than {MAX_CONDITION_BYTES} bytes"
            )));
        }
    }
    let timeout_ms = request.signal_timeout_ms;
    if !(1..=MAX_SIGNAL_TIMEOUT_MS).contains(&timeout_ms) {
        let max_secs = MAX_SIGNAL_TIMEOUT_MS / 1_000;
        return Err(Refusal::Invalid(format!(
            "{timeout_ms} ms: the signal timeout must be 1 ms to {max_secs} s"
        )));
    }
    if request.signal == Some(KillSignal::Kill) && !request.force {
        return Err(Refusal::Invalid("SIGKILL requires --force".to_owned()));
    }
    Ok(request)
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpukill_proto::kill::KillSelector;

    fn request() -> KillRequest {
        KillRequest {
            selector: KillSelector {
                pids: vec![7],
                ..KillSelector::default()
            },
            signal_timeout_ms: 5_000,
            ..KillRequest::default()
        }
    }

    fn invalid(why: &str) -> Result<KillRequest, Refusal> {
        Err(Refusal::Invalid(why.to_owned()))
    }

    #[test]
    fn request_within_limits_is_unchanged() {
        let forced = KillRequest {
            signal: Some(KillSignal::Kill),
            force: true,
            ..request()
        };
        let patient = |patience_ms| KillRequest {
            signal_timeout_ms: patience_ms,
            ..request()
        };
        for fine in [
            request(),
            forced,
            patient(1),
            patient(MAX_SIGNAL_TIMEOUT_MS),
        ] {
            assert_eq!(validate(fine.clone()), Ok(fine));
        }
    }

    #[test]
    fn request_beyond_limits_names_the_limit() {
        let selecting = |selector| KillRequest {
            selector,
            ..request()
        };
        let patient = |patience_ms| KillRequest {
            signal_timeout_ms: patience_ms,
            ..request()
        };
        let pids = (1..=1_025).collect();
        let many = selecting(KillSelector {
            pids,
            ..KillSelector::default()
        });
        assert_eq!(
            validate(many),
            invalid("1025 pids exceed the maximum of 1024")
        );
        let image = Some("x".repeat(1_025));
        let long = selecting(KillSelector {
            image,
            ..KillSelector::default()
        });
        let why = "--image: it is longer than 1024 bytes";
        assert_eq!(validate(long), invalid(why));
        let why = "0 ms: the signal timeout must be 1 ms to 600 s";
        assert_eq!(validate(patient(0)), invalid(why));
        let why = "600001 ms: the signal timeout must be 1 ms to 600 s";
        assert_eq!(validate(patient(600_001)), invalid(why));
        let kill = KillRequest {
            signal: Some(KillSignal::Kill),
            ..request()
        };
        let why = "SIGKILL requires --force";
        assert_eq!(validate(kill), invalid(why));
    }
}
