//! The calls that end processes: plan, carry out, follow.

use super::super::kill_pages::{plan_page, report_page};
use super::Session;
use gpukill_proto::kill::{
    KillPlan, KillPlanPage, KillReport, KillReportPage, KillRequest, KillSignal,
    LONGEST_PATIENCE_MS, MOST_PIDS, OperationId, PlanId,
};
use gpukill_proto::refusal::Refusal;
use gpukill_proto::service::LONGEST_WAIT;
use std::sync::{Arc, Mutex, PoisonError};

/// The longest text of a condition, in bytes.
const LONGEST_TEXT: usize = 1_024;

/// The acts of which a connection may ask for more.
#[derive(Clone, Default)]
pub(super) struct Asked {
    plan: Kept<Arc<KillPlan>>,
    report: Kept<(OperationId, Arc<KillReport>)>,
}

/// While there is more to ask for.
type Kept<T> = Arc<Mutex<Option<T>>>;

impl Session {
    /// Makes a plan, and its first page.
    pub(super) async fn kill_plan(&self, request: KillRequest) -> Result<KillPlanPage, Refusal> {
        let request = checked(request)?;
        let (id, plan) = self.shared.enforcer.plan(&self.caller, request).await?;
        let page = plan_page(id, &plan, 0, &self.caller, &self.shared.roles());
        // One without a name can only be asked for on this connection.
        let more = page.next.filter(|_| id.is_none()).map(|_| plan);
        *lock(&self.acts_asked_last.plan) = more;
        Ok(page)
    }

    /// Another page of a plan.
    pub(super) async fn kill_plan_page(
        &self,
        plan: PlanId,
        start: u32,
    ) -> Result<KillPlanPage, Refusal> {
        let (id, plan) = if plan == PlanId::LAST {
            let kept = lock(&self.acts_asked_last.plan).clone();
            (None, kept.ok_or(Refusal::Expired)?)
        } else {
            let kept = self.shared.enforcer.kept(&self.caller, plan)?;
            (Some(plan), kept)
        };
        let roles = self.shared.roles();
        Ok(plan_page(id, &plan, start as usize, &self.caller, &roles))
    }

    /// Begins what was planned.
    pub(super) async fn begin_kill(&self, plan: PlanId) -> Result<OperationId, Refusal> {
        self.shared.enforcer.carry_out(&self.caller, plan)
    }

    /// How it stands.
    pub(super) async fn kill_report_page(
        &self,
        operation: OperationId,
        after: Option<u64>,
        start: u32,
    ) -> Result<KillReportPage, Refusal> {
        let mut followed = self.shared.enforcer.follow(&self.caller, operation)?;
        let report = if start == 0 {
            if let Some(after) = after {
                let newer = followed.report.wait_for(|report| report.version > after);
                // Too long, or it is over: answer with what there is.
                let _ = tokio::time::timeout(LONGEST_WAIT, newer).await;
            }
            Arc::clone(&followed.report.borrow())
        } else {
            // Of the same moment as the page before: outcomes are added in between.
            let kept = lock(&self.acts_asked_last.report).clone();
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
        // Kept only while there is more to ask for.
        *lock(&self.acts_asked_last.report) = page.next.map(|_| (operation, report));
        Ok(page)
    }
}

fn lock<T>(of: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    // Only values are put there: nothing panics meanwhile.
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What any client keeps to; whom it names is for policy to say.
fn checked(request: KillRequest) -> Result<KillRequest, Refusal> {
    let selector = &request.selector;
    if selector.pids.len() > MOST_PIDS {
        let pids = selector.pids.len();
        return Err(Refusal::Invalid(format!(
            "{pids} pids are more than {MOST_PIDS}"
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
        if text.as_ref().is_some_and(|text| text.len() > LONGEST_TEXT) {
            return Err(Refusal::Invalid(format!(
                "{option}: it is longer than {LONGEST_TEXT} bytes"
            )));
        }
    }
    let patience = request.patience_ms;
    if !(1..=LONGEST_PATIENCE_MS).contains(&patience) {
        let most = LONGEST_PATIENCE_MS / 1_000;
        return Err(Refusal::Invalid(format!(
            "{patience} ms: a signal is given 1 ms to {most} s"
        )));
    }
    if request.signal == Some(KillSignal::Kill) && !request.force {
        return Err(Refusal::Invalid(
            "SIGKILL is sent only with --force".to_owned(),
        ));
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
            patience_ms: 5_000,
            ..KillRequest::default()
        }
    }

    fn invalid(why: &str) -> Result<KillRequest, Refusal> {
        Err(Refusal::Invalid(why.to_owned()))
    }

    #[test]
    fn a_request_within_its_bounds_is_passed_on_as_it_is() {
        let forced = KillRequest {
            signal: Some(KillSignal::Kill),
            force: true,
            ..request()
        };
        let patient = |patience_ms| KillRequest {
            patience_ms,
            ..request()
        };
        for fine in [request(), forced, patient(1), patient(LONGEST_PATIENCE_MS)] {
            assert_eq!(checked(fine.clone()), Ok(fine));
        }
    }

    #[test]
    fn a_request_beyond_its_bounds_says_which() {
        let selecting = |selector| KillRequest {
            selector,
            ..request()
        };
        let patient = |patience_ms| KillRequest {
            patience_ms,
            ..request()
        };
        let pids = (1..=1_025).collect();
        let many = selecting(KillSelector {
            pids,
            ..KillSelector::default()
        });
        assert_eq!(checked(many), invalid("1025 pids are more than 1024"));
        let image = Some("x".repeat(1_025));
        let long = selecting(KillSelector {
            image,
            ..KillSelector::default()
        });
        let why = "--image: it is longer than 1024 bytes";
        assert_eq!(checked(long), invalid(why));
        let why = "0 ms: a signal is given 1 ms to 600 s";
        assert_eq!(checked(patient(0)), invalid(why));
        let why = "600001 ms: a signal is given 1 ms to 600 s";
        assert_eq!(checked(patient(600_001)), invalid(why));
        let kill = KillRequest {
            signal: Some(KillSignal::Kill),
            ..request()
        };
        let why = "SIGKILL is sent only with --force";
        assert_eq!(checked(kill), invalid(why));
    }
}
