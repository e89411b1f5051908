//! What is odd about what is said of what processes do.

use super::{Odd, is_same_user, path};
use crate::guard::rules::{Behaviour, Conduct, Members};
use gpukill_proto::guard::GuardAction;
use gpukill_proto::guard::edit::PolicyKind;
use gpukill_proto::rogue::Risk;
use gpukill_proto::units::{Bytes, Percent};
use std::time::Duration;

pub(super) fn check(odd: &mut Odd<'_>) {
    let rules = odd.rules;
    for rule in &rules.behaviours {
        let at = path(PolicyKind::Rule, &rule.name);
        odd.measures(&at, &rule.measures);
        check_conduct(odd, &at, rule);
        if rule.ends_services && rule.measures.action == Some(GuardAction::Warn) {
            let what = "the rule only warns, so that it ends no service either";
            odd.warn(&format!("{at}.services"), what);
        }
        check_members(odd, &at, rule);
    }
}

fn check_conduct(odd: &mut Odd<'_>, at: &str, rule: &Behaviour) {
    let (key, what) = match &rule.conduct {
        Conduct::Duration(Duration::ZERO) => (
            "duration_limit_hours",
            "whatever it is about may not use any GPU",
        ),
        Conduct::Waste {
            below: Percent(0), ..
        } => (
            "waste_below_pct",
            "utilisation is never below 0, so this never holds",
        ),
        Conduct::Runaway {
            above: Percent(100),
            ..
        } => (
            "runaway_above_pct",
            "utilisation is never over 100, so this never holds",
        ),
        Conduct::Growth { by: Bytes(0), .. } => (
            "growth_gb",
            "any growth at all breaks it, and programs do grow",
        ),
        Conduct::Rogue { threats, .. } if threats.is_empty() => {
            ("rogue_threats", "names none, so this never holds")
        }
        Conduct::Rogue {
            from: Risk::Low, ..
        } if rule.measures.action != Some(GuardAction::Warn) => (
            "rogue_risk",
            "a verdict of a low risk is the least sure, and jobs are ended for it",
        ),
        Conduct::Duration(_)
        | Conduct::Idle { .. }
        | Conduct::Waste { .. }
        | Conduct::Runaway { .. }
        | Conduct::Growth { .. }
        | Conduct::Rogue { .. } => return,
    };
    odd.warn(&format!("{at}.{key}"), what);
}

fn check_members(odd: &mut Odd<'_>, at: &str, rule: &Behaviour) {
    let users = &rule.members.users;
    let by_name_alone = Members {
        users: users.clone(),
        ..Members::default()
    };
    if users.is_empty() || rule.members != by_name_alone {
        return;
    }
    let is_excepted = |user: &str| rule.except_users.iter().any(|it| is_same_user(it, user));
    let is_left = |user: &String| !is_excepted(user) && !odd.protects(user);
    if !users.iter().any(is_left) {
        let what = "all of them are in except_users or in [protect], so this never holds";
        odd.warn(&format!("{at}.users"), what);
    }
}
