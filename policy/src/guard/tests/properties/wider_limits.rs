//! Rules that allow more.

use super::*;

/// The widened limit and the change.
pub(super) type Widening = (&'static str, fn(&mut RuleSet));

/// Widens each limit by itself.
pub(super) fn widenings() -> Vec<Widening> {
    vec![
        ("memory", |it| it.defaults.memory = gib(60)),
        ("no memory", |it| it.defaults.memory = None),
        ("utilization", |it| {
            it.defaults.utilization = Some(Percent(60))
        }),
        ("duration", |it| it.defaults.duration = Some(minutes(2))),
        ("processes", |it| it.defaults.processes = Some(2)),
        ("idle", |it| it.defaults.idle = Some(minutes(1))),
        ("idle memory", |it| it.defaults.idle_min_memory = gib(20)),
        ("bob's memory", |it| it.users[0].limits.memory = gib(30)),
        ("bob's devices", |it| it.users[0].blocked_gpus.clear()),
        ("total memory", |it| it.groups[0].total_memory = gib(60)),
        ("total work", |it| {
            it.groups[0].total_utilization = Some(Percent(80))
        }),
        ("total processes", |it| {
            it.groups[0].total_processes = Some(3)
        }),
        ("process memory", |it| it.gpus[0].max_memory = gib(35)),
        ("gpu work", |it| it.gpus[0].max_utilization = None),
        ("reserved", |it| it.gpus[0].reserved_memory = gib(40)),
        ("blocked users", |it| it.gpus[0].blocked_users.clear()),
        ("blocked processes", |it| {
            it.gpus[0].blocked_processes.clear()
        }),
        ("of the time", |it| it.times[0].limits.memory = gib(60)),
        ("rogues' risk", |it| {
            it.behaviours[3].behaviour = ForbiddenBehaviour::Rogue(RogueParams {
                from: Risk::High,
                threats: Threat::ALL.to_vec(),
            })
        }),
        ("rogues' threats", |it| {
            it.behaviours[3].behaviour = ForbiddenBehaviour::Rogue(RogueParams {
                from: Risk::Medium,
                threats: vec![Threat::CryptoMiner],
            })
        }),
        ("waste", |it| it.behaviours.truncate(0)),
        ("protected", |it| it.protect.users.push("carol".into())),
    ]
}
