//! Lints for rules on the behaviour of processes.

use super::{Linter, is_same_user, policy_path};
use crate::guard::rules::{
    BehaviourRule, ForbiddenBehaviour, GrowthParams, Members, RogueParams, RunawayParams,
    WasteParams,
};
use gpukill_proto::guard::GuardAction;
use gpukill_proto::guard::edit::PolicyKind;
use gpukill_proto::rogue::Risk;
use gpukill_proto::units::{Bytes, Percent};
use std::time::Duration;

pub(super) fn check(linter: &mut Linter<'_>) {
    let rules = linter.rules;
    for rule in &rules.behaviours {
        let at = policy_path(PolicyKind::Rule, &rule.name);
        linter.check_mode(&at, &rule.measures);
        check_behaviour(linter, &at, rule);
        check_members(linter, &at, rule);
    }
}

fn check_behaviour(linter: &mut Linter<'_>, at: &str, rule: &BehaviourRule) {
    let (key, what) = match &rule.behaviour {
        ForbiddenBehaviour::Duration(Duration::ZERO) => (
            "duration_limit_hours",
            "the selected processes may not use any GPU",
        ),
        ForbiddenBehaviour::Waste(WasteParams {
            below: Percent(0), ..
        }) => (
            "waste_below_pct",
            "utilization is never below 0, so this never matches",
        ),
        ForbiddenBehaviour::Runaway(RunawayParams {
            above: Percent(100),
            ..
        }) => (
            "runaway_above_pct",
            "utilization never exceeds 100, so this never matches",
        ),
        ForbiddenBehaviour::Growth(GrowthParams { by: Bytes(0), .. }) => {
            ("growth_gb", "any growth breaks it, and most programs grow")
        }
        ForbiddenBehaviour::Rogue(RogueParams { threats, .. }) if threats.is_empty() => {
            ("rogue_threats", "lists no threat, so this never matches")
        }
        ForbiddenBehaviour::Rogue(RogueParams {
            from: Risk::Low, ..
        }) if rule.measures.action != Some(GuardAction::Warn) => (
            "rogue_risk",
            "jobs are ended for verdicts of low risk, the least certain ones",
        ),
        ForbiddenBehaviour::Duration(_)
        | ForbiddenBehaviour::Idle(_)
        | ForbiddenBehaviour::Waste(_)
        | ForbiddenBehaviour::Runaway(_)
        | ForbiddenBehaviour::Growth(_)
        | ForbiddenBehaviour::Rogue(_) => return,
    };
    linter.warn(&format!("{at}.{key}"), what);
}

fn check_members(linter: &mut Linter<'_>, at: &str, rule: &BehaviourRule) {
    let users = &rule.members.users;
    let by_name_alone = Members {
        users: users.clone(),
        ..Members::default()
    };
    if users.is_empty() || rule.members != by_name_alone {
        return;
    }
    let is_exempt = |user: &str| rule.except_users.iter().any(|it| is_same_user(it, user));
    let is_left = |user: &String| !is_exempt(user) && !linter.is_protected(user);
    if !users.iter().any(is_left) {
        let what = "all users are in except_users or in [protect], so this never matches";
        linter.warn(&format!("{at}.users"), what);
    }
}
