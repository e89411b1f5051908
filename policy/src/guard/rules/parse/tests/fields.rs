//! Every key and its meaning.

use super::*;
use crate::guard::rules::{
    BehaviourRule, EnforcementMode, EnforcementSettings, ForbiddenBehaviour, Glob, GpuPolicy,
    GroupPolicy, GrowthParams, IdleParams, Limits, Measures, Members, Pattern, ProtectRules,
    RogueParams, RunawayParams, TimeOverride, TimePolicy, UserPolicy, WasteParams,
};
use crate::guard::schedule::{Hours, Weekday};
use crate::select;
use gpukill_proto::guard::{GuardAction, GuardMode};
use gpukill_proto::rogue::{Risk, Threat};
use gpukill_proto::units::{Bytes, Percent};
use std::time::Duration;

const EVERY_FIELD: &str = include_str!("every_field.toml");
const DOCUMENTED: &str = include_str!("documented.toml");

fn gib(n: u64) -> Option<Bytes> {
    Some(Bytes::mib(n * 1024))
}

fn minutes(n: u64) -> Duration {
    Duration::from_secs(n * 60)
}

fn hours(n: u64) -> Duration {
    minutes(n * 60)
}

fn globs(patterns: &[&str]) -> Vec<Glob> {
    let glob = |typed: &&str| Glob {
        typed: typed.to_string(),
        regex: select::compile_glob(typed).unwrap(),
    };
    patterns.iter().map(glob).collect()
}

fn pattern(typed: &str) -> Option<Pattern> {
    Some(Pattern {
        typed: typed.to_owned(),
        regex: select::compile_pattern(typed).unwrap(),
    })
}

#[test]
fn empty_file_has_the_defaults() {
    assert_eq!(parse_valid(""), RuleSet::default());
    assert_eq!(RuleSet::default().mode, GuardMode::DryRun);
}

#[test]
fn parses_every_field() {
    let measures = Measures {
        action: Some(GuardAction::Terminate),
        mode: Some(GuardMode::Soft),
        grace: Some(minutes(10)),
        max_snoozes: Some(2),
        message: Some("ask in #gpus".into()),
    };
    let limits = |n: u64| Limits {
        memory: gib(n),
        utilization: Some(Percent(70)),
        duration: Some(hours(n)),
        processes: Some(3),
        idle: Some(minutes(n)),
        idle_min_memory: Some(Bytes::mib(512)),
    };
    let night = Hours {
        from: 20 * 60,
        to: 8 * 60 + 30,
        days: vec![Weekday::Monday, Weekday::Friday],
    };
    let members = Members {
        users: texts(&["alice", "1001"]),
        unix_groups: texts(&["students"]),
        slurm_accounts: texts(&["vision"]),
        kubernetes_namespaces: texts(&["training"]),
        images: globs(&["*/pytorch:*"]),
    };
    let rule = |name: &str, behaviour: ForbiddenBehaviour| BehaviourRule {
        name: name.into(),
        members: Members::default(),
        except_users: Vec::new(),
        gpus: Vec::new(),
        processes: Vec::new(),
        command: None,
        behaviour,
        measures: Measures::default(),
        ends_services: false,
    };
    let expected = RuleSet {
        mode: GuardMode::Enforce,
        armed_mode: EnforcementMode::Enforce,
        switch_conflict: None,
        defaults: limits(16),
        enforcement: EnforcementSettings {
            grace: Duration::from_secs(90),
            max_warnings: 7,
            utilization_window: minutes(15),
            idle_below: Percent(2),
            settled_after: minutes(20),
            max_snoozes: 4,
            snooze: minutes(45),
            cooldown: Duration::from_secs(75),
            max_ended: 8,
        },
        protect: ProtectRules {
            users: texts(&["gdm", "120"]),
            processes: globs(&["Xorg", "gnome-*"]),
            command: pattern("--production"),
            images: globs(&["*/triton:*"]),
            units: globs(&["inference.service", "vllm@*.service"]),
        },
        users: vec![UserPolicy {
            name: "alice".into(),
            limits: limits(8),
            priority: Some(9),
            allowed_gpus: gpus(&["0", "2", "3", "GPU-8f3c"]),
            blocked_gpus: gpus(&["*A100*", "0000:1b:00.0"]),
            overrides: vec![TimeOverride {
                hours: night.clone(),
                limits: limits(64),
            }],
            measures: measures.clone(),
        }],
        groups: vec![GroupPolicy {
            name: "researchers".into(),
            members: members.clone(),
            total_memory: gib(32),
            total_utilization: Some(Percent(80)),
            total_processes: Some(10),
            limits: limits(4),
            priority: Some(3),
            allowed_gpus: gpus(&["0", "1"]),
            blocked_gpus: gpus(&["7"]),
            measures: measures.clone(),
        }],
        gpus: vec![
            GpuPolicy {
                name: "0".into(),
                gpus: gpus(&["0"]),
                max_memory: gib(24),
                max_utilization: Some(Percent(90)),
                reserved_memory: gib(2),
                allowed_users: texts(&["alice", "bob"]),
                blocked_users: texts(&["carol"]),
                allowed_processes: globs(&["python*"]),
                blocked_processes: globs(&["xmrig"]),
                maintenance: Some(night.clone()),
                measures: measures.clone(),
            },
            GpuPolicy {
                name: "big".into(),
                gpus: gpus(&["1", "*H100*"]),
                ..GpuPolicy::default()
            },
        ],
        times: vec![TimePolicy {
            name: "business_hours".into(),
            hours: night,
            limits: limits(12),
            allowed_users: texts(&["alice"]),
            blocked_users: texts(&["bob"]),
            gpus: gpus(&["0"]),
            measures: measures.clone(),
        }],
        behaviours: vec![
            BehaviourRule {
                name: "long".into(),
                members,
                except_users: texts(&["carol"]),
                gpus: gpus(&["1"]),
                processes: globs(&["jupyter*"]),
                command: pattern("ipykernel"),
                behaviour: ForbiddenBehaviour::Duration(hours(48)),
                measures,
                ends_services: false,
            },
            BehaviourRule {
                ends_services: true,
                ..rule(
                    "idle",
                    ForbiddenBehaviour::Idle(IdleParams {
                        limit: minutes(120),
                        min_memory: Bytes::mib(1024),
                        with_connections: true,
                        cpu_below: Some(Percent(10)),
                    }),
                )
            },
            rule(
                "waste",
                ForbiddenBehaviour::Waste(WasteParams {
                    below: Percent(10),
                    min_memory: Bytes::mib(20 * 1024),
                    hours: hours(4),
                }),
            ),
            rule(
                "runaway",
                ForbiddenBehaviour::Runaway(RunawayParams {
                    above: Percent(95),
                    limit: minutes(30),
                    orphaned: true,
                }),
            ),
            rule(
                "growth",
                ForbiddenBehaviour::Growth(GrowthParams {
                    by: Bytes::mib(4096),
                    within: hours(6),
                }),
            ),
            rule(
                "rogues",
                ForbiddenBehaviour::Rogue(RogueParams {
                    from: Risk::Critical,
                    threats: vec![Threat::DataExfiltrator, Threat::CryptoMiner],
                }),
            ),
        ],
        positions: BTreeMap::new(),
    };
    assert_eq!(parse_valid(EVERY_FIELD), expected);
}

#[test]
fn rule_defaults_match_the_reference() {
    let text = "rules = [{ name = 'i', idle_limit_minutes = 5 }, { name = 'w', waste_below_pct = 5 },\n\
                { name = 'r', runaway_above_pct = 95 }, { name = 'g', growth_gb = 1 },\n\
                { name = 't', rogue_risk = 'medium' }]\n";
    let conducts: Vec<ForbiddenBehaviour> = parse_valid(text)
        .behaviours
        .into_iter()
        .map(|it| it.behaviour)
        .collect();
    let expected = [
        ForbiddenBehaviour::Idle(IdleParams {
            limit: minutes(5),
            min_memory: Bytes(0),
            with_connections: false,
            cpu_below: None,
        }),
        ForbiddenBehaviour::Waste(WasteParams {
            below: Percent(5),
            min_memory: Bytes(0),
            hours: hours(1),
        }),
        ForbiddenBehaviour::Runaway(RunawayParams {
            above: Percent(95),
            limit: minutes(5),
            orphaned: false,
        }),
        ForbiddenBehaviour::Growth(GrowthParams {
            by: Bytes::mib(1024),
            within: hours(1),
        }),
        ForbiddenBehaviour::Rogue(RogueParams {
            from: Risk::Medium,
            threats: vec![Threat::CryptoMiner, Threat::SuspiciousProcess],
        }),
    ];
    assert_eq!(conducts, expected);
}

#[test]
fn parses_the_documented_policies() {
    let rules = parse_valid(DOCUMENTED);
    let developer = UserPolicy {
        name: "developer".into(),
        limits: Limits {
            memory: gib(8),
            utilization: Some(Percent(70)),
            duration: Some(hours(12)),
            processes: Some(3),
            ..Limits::default()
        },
        priority: Some(5),
        ..UserPolicy::default()
    };
    assert_eq!(rules.users, [developer]);
    let researchers = GroupPolicy {
        name: "researchers".into(),
        members: Members {
            users: texts(&["alice", "bob", "charlie"]),
            ..Members::default()
        },
        total_memory: gib(32),
        total_utilization: Some(Percent(80)),
        total_processes: Some(10),
        priority: Some(3),
        allowed_gpus: gpus(&["0", "1"]),
        ..GroupPolicy::default()
    };
    assert_eq!(rules.groups, [researchers]);
    let first = GpuPolicy {
        name: "0".into(),
        gpus: gpus(&["0"]),
        max_memory: gib(24),
        max_utilization: Some(Percent(90)),
        reserved_memory: gib(2),
        allowed_users: texts(&["alice", "bob"]),
        ..GpuPolicy::default()
    };
    assert_eq!(rules.gpus, [first]);
    let business = TimePolicy {
        name: "business_hours".into(),
        hours: Hours {
            from: 9 * 60,
            to: 17 * 60,
            days: Weekday::ALL[..5].to_vec(),
        },
        limits: Limits {
            memory: gib(16),
            utilization: Some(Percent(80)),
            processes: Some(5),
            ..Limits::default()
        },
        ..TimePolicy::default()
    };
    assert_eq!(rules.times, [business]);
}

#[test]
fn four_switches_set_the_mode() {
    use GuardMode::{Disabled, DryRun, Enforce, Soft};
    for (switches, mode, armed_mode) in [
        ("", DryRun, EnforcementMode::Soft),
        (
            "global.enabled = false\nglobal.dry_run = false",
            Disabled,
            EnforcementMode::Soft,
        ),
        ("global.dry_run = false", Soft, EnforcementMode::Soft),
        (
            "enforcement.hard_enforcement = true",
            DryRun,
            EnforcementMode::Enforce,
        ),
        (
            "global.dry_run = false\nenforcement.hard_enforcement = true",
            Enforce,
            EnforcementMode::Enforce,
        ),
        (
            "global.dry_run = false\nenforcement = { hard_enforcement = true, soft_enforcement = true }",
            Soft,
            EnforcementMode::Soft,
        ),
        (
            "global.dry_run = false\nenforcement = { hard_enforcement = true, soft_enforcement = false }",
            Enforce,
            EnforcementMode::Enforce,
        ),
        (
            "global.dry_run = false\nenforcement = { soft_enforcement = false }",
            DryRun,
            EnforcementMode::Soft,
        ),
    ] {
        let rules = parse_valid(switches);
        assert_eq!(
            (rules.mode, rules.armed_mode),
            (mode, armed_mode),
            "{switches}"
        );
    }
}
