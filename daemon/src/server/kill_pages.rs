//! Cuts plans and reports of kills into pages that fit a frame, and hides what this caller may not
//! see.

use super::snapshot_pages::take_page;
use gpukill_policy::access::{Caller, Roles, may_read_command};
use gpukill_proto::kill::{
    KillPlan, KillPlanPage, KillReport, KillReportPage, KillTarget, PlanId, PlannedAction,
    ProcessOutcome,
};
use gpukill_proto::reading::Reading;
use gpukill_proto::transport::codec::PageRoom;
use serde::Serialize;

/// The maximum size of the list of jobs that continue, on each page of a plan: about a thousand
/// jobs.
const MAX_REST_BYTES: u64 = 1 << 20;

/// The page of a plan of this caller that starts with target `start`.
pub(super) fn plan_page(
    id: Option<PlanId>,
    plan: &KillPlan,
    start: usize,
    caller: &Caller,
    roles: &Roles,
) -> KillPlanPage {
    let shown = |target: &KillTarget| KillTarget {
        command: if may_read_target(target, caller, roles) {
            target.command.clone()
        } else {
            Reading::Withheld
        },
        ..target.clone()
    };
    let (targets, next) = take_page(&plan.targets, start, shown);
    let plan = KillPlan {
        youngest_start_ticks: plan.youngest_start_ticks,
        at: plan.at,
        request: plan.request.clone(),
        targets,
        undetermined: plan.undetermined,
        remaining_jobs: take_rest(&plan.remaining_jobs),
    };
    KillPlanPage { id, plan, next }
}

/// The page of a report on this plan that starts with outcome `start`. `is_own`: the caller made
/// the plan.
pub(super) fn report_page(
    report: &KillReport,
    plan: &KillPlan,
    is_own: bool,
    start: usize,
    caller: &Caller,
    roles: &Roles,
) -> KillReportPage {
    let shown = |outcome: &ProcessOutcome| {
        // Outcomes are sorted by pid, as the plan is.
        let planned = plan.targets.binary_search_by_key(&outcome.key, |it| it.key);
        let planned = planned.ok().and_then(|at| plan.targets.get(at));
        let may_read = match planned {
            Some(target) if is_own => may_read_target(target, caller, roles),
            Some(target) => may_read_owner(target.uid.known().copied(), caller, roles),
            // The process started after the plan.
            None => may_read_owner(None, caller, roles),
        };
        ProcessOutcome {
            command: if may_read {
                outcome.command.clone()
            } else {
                Reading::Withheld
            },
            ..outcome.clone()
        }
    };
    let (outcomes, next) = take_page(&report.outcomes, start, shown);
    let report = KillReport {
        version: report.version,
        stage: report.stage,
        outcomes,
        memory: report.memory.clone(),
        respawned: take_rest(&report.respawned),
        unchecked: report.unchecked.clone(),
        unrecorded: report.unrecorded.clone(),
    };
    KillReportPage { report, next }
}

/// A caller who may end a process may read its command line: the process belongs to the caller or
/// runs in a user namespace of the caller, which the plan does not record.
fn may_read_target(target: &KillTarget, caller: &Caller, roles: &Roles) -> bool {
    matches!(target.action, PlannedAction::End(_))
        || may_read_owner(target.uid.known().copied(), caller, roles)
}

fn may_read_owner(owner: Option<u32>, caller: &Caller, roles: &Roles) -> bool {
    may_read_command(caller, (owner, None), roles)
}

/// The first items, as far as [`MAX_REST_BYTES`] last.
fn take_rest<T: Serialize + Clone>(all: &[T]) -> Vec<T> {
    let mut room = PageRoom::new(usize::MAX, MAX_REST_BYTES);
    let some = all.iter().take_while(|it| room.take(it));
    some.cloned().collect()
}

#[cfg(test)]
mod tests {
    use super::super::snapshot_pages::MAX_PAGE_BYTES;
    use super::*;
    use gpukill_policy::access::LimitGroup;
    use gpukill_proto::kill::{KillSignal, Outcome, Stage};
    use gpukill_proto::model::ProcessKey;
    use gpukill_proto::transport::codec::encoded_size;
    use gpukill_proto::units::Timestamp;

    const ALICE: u32 = 1000;
    const BOB: u32 = 1001;

    fn key(pid: u32) -> ProcessKey {
        ProcessKey {
            pid,
            start_ticks: 5,
        }
    }

    fn target(pid: u32, uid: u32, action: PlannedAction) -> KillTarget {
        KillTarget {
            key: key(pid),
            name: "python".into(),
            command: Reading::Value("x".repeat(512)),
            uid: Reading::Value(uid),
            owner: Reading::Value("somebody".into()),
            holds: Vec::new(),
            named: true,
            job: Reading::Unsupported,
            action,
            overridden: None,
        }
    }

    fn end_action() -> PlannedAction {
        PlannedAction::End(vec![KillSignal::Terminate])
    }

    fn plan(targets: Vec<KillTarget>) -> KillPlan {
        KillPlan {
            at: Timestamp(1),
            targets,
            undetermined: 3,
            ..KillPlan::default()
        }
    }

    fn report(pids: impl IntoIterator<Item = u32>) -> KillReport {
        let outcome = |pid| ProcessOutcome {
            key: key(pid),
            name: "python".into(),
            command: Reading::Value("x".repeat(512)),
            outcome: Outcome::Ended(KillSignal::Terminate, 3),
        };
        KillReport {
            version: 4,
            stage: Stage::Reclaiming,
            outcomes: pids.into_iter().map(outcome).collect(),
            memory: Vec::new(),
            respawned: Vec::new(),
            unchecked: None,
            unrecorded: None,
        }
    }

    fn caller(uid: u32) -> Caller {
        Caller {
            uid,
            groups: [uid].into(),
            contained: false,
            limit_group: LimitGroup::Person(uid),
        }
    }

    fn hiding_roles() -> Roles {
        Roles {
            hide_other_users: true,
            ..Roles::default()
        }
    }

    fn withheld(commands: impl IntoIterator<Item = Reading<String>>) -> Vec<bool> {
        let commands = commands.into_iter();
        commands
            .map(|command| command == Reading::Withheld)
            .collect()
    }

    #[test]
    fn thousands_of_targets_fit_pages() {
        let all: Vec<u32> = (1..=3_000).collect();
        let targets = all.iter().map(|pid| target(*pid, ALICE, end_action()));
        let (plan, report) = (plan(targets.collect()), report(all.clone()));
        let (caller, roles) = (caller(ALICE), Roles::default());
        let (mut start, mut targets) = (Some(0), Vec::new());
        while let Some(at) = start {
            let page = plan_page(Some(PlanId(7)), &plan, at as usize, &caller, &roles);
            assert!(encoded_size(&page).unwrap() < 2 * MAX_PAGE_BYTES);
            assert_eq!((page.id, page.plan.undetermined), (Some(PlanId(7)), 3));
            targets.extend(page.plan.targets);
            start = page.next;
        }
        assert_eq!(targets, plan.targets);
        let (mut start, mut outcomes) = (Some(0), Vec::new());
        while let Some(at) = start {
            let page = report_page(&report, &plan, true, at as usize, &caller, &roles);
            assert!(encoded_size(&page).unwrap() < 2 * MAX_PAGE_BYTES);
            assert_eq!(page.report.version, 4);
            outcomes.extend(page.report.outcomes);
            start = page.next;
        }
        assert_eq!(outcomes, report.outcomes);
        let page = plan_page(None, &plan, 5_000, &caller, &roles);
        assert_eq!((page.plan.targets.len(), page.next), (0, None));
    }

    #[test]
    fn commands_of_others_are_hidden() {
        let plan = plan(vec![
            target(1, ALICE, end_action()),
            target(2, BOB, PlannedAction::Denied("bob".into())),
            target(
                3,
                ALICE,
                PlannedAction::Protected(gpukill_proto::kill::ProtectionReason::always(
                    "it is process 1",
                )),
            ),
            // In a user namespace of the caller.
            target(4, 100_000, end_action()),
        ]);
        let commands = |roles: &Roles, uid| {
            let page = plan_page(None, &plan, 0, &caller(uid), roles);
            withheld(page.plan.targets.into_iter().map(|target| target.command))
        };
        assert_eq!(
            commands(&hiding_roles(), ALICE),
            [false, true, false, false]
        );
        assert_eq!(commands(&Roles::default(), ALICE), [false; 4]);
        assert_eq!(commands(&hiding_roles(), 0), [false; 4]);
        let commands = |uid, is_own| {
            let report = report(1..=5);
            let page = report_page(&report, &plan, is_own, 0, &caller(uid), &hiding_roles());
            let outcomes = page.report.outcomes.into_iter();
            withheld(outcomes.map(|outcome| outcome.command))
        };
        // The last process started later, and its owner is unknown.
        assert_eq!(commands(ALICE, true), [false, true, false, false, true]);
        // A caller who follows the kill of another user gets only what the caller may read anyway.
        assert_eq!(commands(BOB, false), [true, false, true, true, true]);
        assert_eq!(commands(0, false), [false; 5]);
    }
}
