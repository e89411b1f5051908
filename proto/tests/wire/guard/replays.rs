//! Samples of replays.

use super::{AT, records};
use gpukill_proto::audit::Gap;
use gpukill_proto::guard::{
    ReplayReport, ReplayRequest, RuleKind, RuleName, RuleOutcome, RuleSetSource, RuleSource,
    UnevaluatedTime, ViolationSubject,
};
use gpukill_proto::units::Timestamp;

pub(crate) fn requests() -> [ReplayRequest; 2] {
    [RuleSetSource::InForce, RuleSetSource::Offered].map(|rules| ReplayRequest {
        rules,
        since: Timestamp(-1),
        until: AT,
    })
}

pub(crate) fn replay_report() -> ReplayReport {
    let rule = RuleName {
        source: RuleSource::Default,
        kind: RuleKind::Idle,
    };
    ReplayReport {
        since: Timestamp(1),
        until: AT,
        evaluated: 300,
        samples_since: Some(AT),
        people: 1,
        runs: 70_000,
        rules: 2,
        outcomes: vec![RuleOutcome {
            rule: rule.clone(),
            violated: 1,
            warned: 2,
            ended: 3,
            ended_busy: 4,
            left: 5,
            services: 6,
            freed_ms: 1 << 36,
        }],
        records: records().into_iter().take(1).collect(),
        more_records: 7,
        open: Vec::new(),
        gaps: vec![Gap {
            from: Timestamp(1),
            until: AT,
        }],
        not_evaluated: vec![UnevaluatedTime {
            rule: Some(rule),
            why: "its memory is not known".into(),
            subject: ViolationSubject::Group("ml".into()),
            subjects: 1,
            for_ms: 300,
        }],
    }
}
