//! What the guard decided.

use super::*;

/// Every kind of step, the newest first.
pub(super) fn records() -> Vec<GuardRecord> {
    let (idle, too_much, not_allowed, gone) = (idle(), too_much(), not_allowed(), gone());
    let warned = |times, deadline| GuardStep::Warned { times, deadline };
    let all = OpenViolation {
        rule: rule(RuleSource::Gpu("0".into()), RuleKind::ReservedMemory),
        subject: Subject::Device(id(0)),
        ..too_much.clone()
    };
    let group = OpenViolation {
        rule: rule(RuleSource::Group("ml".into()), RuleKind::TotalProcesses),
        subject: Subject::Group("ml".into()),
        mode: GuardMode::Enforce,
        evidence: Evidence {
            measured: Some(Measured {
                value: 13,
                limit: 12,
            }),
            ..too_much.evidence.clone()
        },
        ..too_much.clone()
    };
    let of_erin = Victim {
        job: job(person("erin", 1003), "session-4.scope"),
        runs: gone.evidence.runs.clone(),
        count: 1,
        ..victim(Some(false), None)
    };
    vec![
        step(&too_much, 240, warned(1, too_much.deadline)),
        step(&too_much, 240, GuardStep::Violated),
        step(&group, 2_900, GuardStep::Tripped { ended: 5 }),
        step(
            &group,
            2_990,
            GuardStep::Acted(Acted {
                job: job(person("dana", 1002), "docker/vllm"),
                ended: 11,
                left: 1,
                why: Some("process 60003 is stuck in the kernel".into()),
            }),
        ),
        step(&group, 3_000, GuardStep::Ended(victim(Some(true), None))),
        step(
            &all,
            4_000,
            GuardStep::Spared("docker/vllm: it is protected".into()),
        ),
        step(&not_allowed, 5_000, GuardStep::Over),
        step(
            &idle,
            5_390,
            GuardStep::Doubted(RulesDoubt {
                since: NOW,
                people: 5,
                of: 8,
                only_warn: false,
            }),
        ),
        step(&gone, 5_400, GuardStep::Ended(of_erin)),
        step(
            &idle,
            8_000,
            GuardStep::Snoozed {
                by: 1001,
                owner: 1001,
                until: idle.deadline.unwrap_or(NOW),
                left: 1,
            },
        ),
        step(&idle, 9_000, warned(2, idle.deadline)),
        step(
            &group,
            90_000,
            GuardStep::Ended(victim(None, Some("scancel 1234"))),
        ),
    ]
}
