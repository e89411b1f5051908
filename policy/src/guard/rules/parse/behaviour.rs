//! Keys of `[[rules]]`: the behaviour that processes must not show.

use super::bounds;
use super::field::{KeyGroup, TableEntry, TableKeys, fields, store};
use super::shared::{MEASURES, MEMBERS};
use super::value::TimeUnit;
use super::value_reader::ValueReader;
use crate::guard::evaluate::has_grace;
use crate::guard::rules::{
    BehaviourRule, ForbiddenBehaviour, Glob, GpuSelector, GrowthParams, IdleParams, Measures,
    Members, Pattern, RogueParams, RunawayParams, WasteParams,
};
use crate::usage::CPU_STEPS;
use gpukill_proto::collect::IntoSet as _;
use gpukill_proto::rogue::{Risk, Threat};
use gpukill_proto::units::{Bytes, Percent};
use std::collections::BTreeSet;
use std::time::Duration;

/// A rule before the check that it is about exactly one behaviour.
#[derive(Debug, Clone, Default)]
pub(super) struct BehaviourDraft {
    name: String,
    members: Members,
    except_users: Vec<String>,
    gpus: Vec<GpuSelector>,
    processes: Vec<Glob>,
    command: Option<Pattern>,
    measures: Measures,
    behaviour: Option<ForbiddenBehaviour>,
    duration: Option<Duration>,
    idle: Option<Duration>,
    idle_min_memory: Bytes,
    idle_with_connections: bool,
    idle_cpu_below: Option<Percent>,
    waste_below: Option<Percent>,
    waste_min_memory: Bytes,
    waste_hours: Option<Duration>,
    runaway_above: Option<Percent>,
    runaway_limit: Option<Duration>,
    runaway_orphaned: bool,
    growth: Option<Bytes>,
    growth_hours: Option<Duration>,
    rogue_risk: Option<Risk>,
    rogue_threats: Option<Vec<Threat>>,
    ends_services: bool,
}

const HOUR: Duration = Duration::from_secs(3_600);

/// The example of a runaway in the documentation: five minutes of full load.
const DEFAULT_RUNAWAY_LIMIT: Duration = Duration::from_secs(300);

/// Threats that have no business on a GPU. The others may be honest work.
const DEFAULT_THREATS: [Threat; 2] = [Threat::CryptoMiner, Threat::SuspiciousProcess];

/// The words for risks.
const RISKS: [(&str, Risk); 4] = [
    (Risk::Low.name(), Risk::Low),
    (Risk::Medium.name(), Risk::Medium),
    (Risk::High.name(), Risk::High),
    (Risk::Critical.name(), Risk::Critical),
];

/// The words for threats.
const THREATS: [(&str, Threat); 4] = [
    (Threat::CryptoMiner.name(), Threat::CryptoMiner),
    (Threat::SuspiciousProcess.name(), Threat::SuspiciousProcess),
    (Threat::ResourceAbuser.name(), Threat::ResourceAbuser),
    (Threat::DataExfiltrator.name(), Threat::DataExfiltrator),
];

impl BehaviourDraft {
    /// The rule. `None` if it is not about one behaviour, which is already reported.
    pub(super) fn into_rule(self) -> Option<BehaviourRule> {
        Some(BehaviourRule {
            behaviour: self.behaviour?,
            name: self.name,
            members: self.members,
            except_users: self.except_users,
            gpus: self.gpus,
            processes: self.processes,
            command: self.command,
            ends_services: self.ends_services,
            measures: self.measures,
        })
    }

    /// All behaviours that the rule forbids.
    fn forbidden_behaviours(&self) -> Vec<ForbiddenBehaviour> {
        let duration = self.duration.map(ForbiddenBehaviour::Duration);
        let idle = self.idle.map(|limit| IdleParams {
            limit,
            min_memory: self.idle_min_memory,
            with_connections: self.idle_with_connections,
            cpu_below: self.idle_cpu_below,
        });
        let waste = self.waste_below.map(|below| WasteParams {
            below,
            min_memory: self.waste_min_memory,
            hours: self.waste_hours.unwrap_or(HOUR),
        });
        let runaway = self.runaway_above.map(|above| RunawayParams {
            above,
            limit: self.runaway_limit.unwrap_or(DEFAULT_RUNAWAY_LIMIT),
            orphaned: self.runaway_orphaned,
        });
        let growth = self.growth.map(|by| GrowthParams {
            by,
            within: self.growth_hours.unwrap_or(HOUR),
        });
        let threats = self.rogue_threats.as_deref().unwrap_or(&DEFAULT_THREATS);
        let rogue = self.rogue_risk.map(|from| RogueParams {
            from,
            threats: threats.to_vec(),
        });
        let all = [
            duration,
            idle.map(ForbiddenBehaviour::Idle),
            waste.map(ForbiddenBehaviour::Waste),
            runaway.map(ForbiddenBehaviour::Runaway),
            growth.map(ForbiddenBehaviour::Growth),
            rogue.map(ForbiddenBehaviour::Rogue),
        ];
        all.into_iter().flatten().collect()
    }
}

/// The main key of each behaviour, and its additional keys.
pub(super) const BEHAVIOUR_KEYS: [(&str, &[&str]); 6] = [
    ("duration_limit_hours", &[]),
    (
        "idle_limit_minutes",
        &[
            "idle_min_memory_gb",
            "idle_with_connections",
            "idle_cpu_below_pct",
            "services",
        ],
    ),
    (
        "waste_below_pct",
        &["waste_min_memory_gb", "waste_hours", "services"],
    ),
    (
        "runaway_above_pct",
        &["runaway_minutes", "runaway_orphaned"],
    ),
    ("growth_gb", &["growth_hours"]),
    ("rogue_risk", &["rogue_threats"]),
];

impl TableEntry for BehaviourDraft {
    const KEYS: TableKeys<Self> = &[
        &KeyGroup::new(NAME_FIELDS, |draft: &mut Self| draft),
        &KeyGroup::new(MEMBERS, |draft: &mut Self| &mut draft.members),
        &KeyGroup::new(SELECTION_FIELDS, |draft: &mut Self| draft),
        &KeyGroup::new(BEHAVIOUR_FIELDS, |draft: &mut Self| draft),
        &KeyGroup::new(MEASURES, |draft: &mut Self| &mut draft.measures),
    ];

    fn with_name(_: &str) -> Self {
        Self::default()
    }

    fn check(&mut self, at: &mut ValueReader<'_, '_>) {
        at.check_has_name();
        let present_keys = BEHAVIOUR_KEYS.iter().filter(|(key, _)| at.has_key(key));
        let present_keys: Vec<&str> = present_keys.map(|(key, _)| *key).collect();
        let behaviour_keys: BTreeSet<&str> = BEHAVIOUR_KEYS
            .iter()
            .flat_map(|(_, more)| *more)
            .copied()
            .into_set();
        for more in behaviour_keys {
            let has_it = BEHAVIOUR_KEYS.iter().filter(|(_, all)| all.contains(&more));
            let keys: Vec<&str> = has_it.map(|(key, _)| *key).collect();
            if at.has_key(more) && !keys.iter().any(|key| present_keys.contains(key)) {
                at.report(format!("has {more} without {}", keys.join(" or ")));
            }
        }
        let all = BEHAVIOUR_KEYS.map(|(key, _)| key).join(", ");
        match present_keys.as_slice() {
            [] => at.report_with_suggestion(
                "does not forbid any behaviour",
                Some(format!("write one of {all}")),
            ),
            [key] => {
                let mut behaviours = self.forbidden_behaviours();
                self.behaviour = behaviours.pop();
                let guesses = self.behaviour.as_ref();
                let guesses = guesses.is_some_and(|behaviour| has_grace(behaviour.kind()));
                if guesses && self.measures.grace == Some(Duration::ZERO) {
                    at.report_with_suggestion(
                        format!(
                            "{key} needs a grace period: the owner may be about to use the GPU"
                        ),
                        Some(
                            "write a grace of a minute or more, or omit it for the \
                            default"
                                .to_owned(),
                        ),
                    );
                }
            }
            [..] => at.report_with_suggestion(
                format!("forbids several behaviours: {}", present_keys.join(", ")),
                Some("write a rule for each".to_owned()),
            ),
        }
    }
}

fields! {
    const NAME_FIELDS: BehaviourDraft;

    name = Example("\"notebooks\""),
        "The name of the rule.",
        |draft, at| store(&mut draft.name, at.name());
    users = Example("[\"alice\", \"bob\"]"),
        "The rule applies to jobs of these users, by name or number. This and the next four\n\
         add up. Without any of them, the rule applies to everybody.",
        |draft, at| store(&mut draft.members.users, at.users());
}

fields! {
    const SELECTION_FIELDS: BehaviourDraft;

    except_users = Example("[\"carol\"]"),
        "The rule does not apply to jobs of these users.",
        |draft, at| store(&mut draft.except_users, at.users());
    gpus = Example("[0, 1]"),
        "Only jobs that use these GPUs.",
        |draft, at| store(&mut draft.gpus, at.gpus());
    processes = Example("[\"jupyter*\", \"ipykernel*\"]"),
        "Only processes with these whole names, with * and ?.",
        |draft, at| store(&mut draft.processes, at.globs());
    command = Example("\"ipykernel_launcher\""),
        "Only processes with a command line that matches this regular expression.",
        |draft, at| draft.command = at.pattern();
}

fields! {
    /// The main keys of behaviours, each with its additional keys.
    const BEHAVIOUR_FIELDS: BehaviourDraft;

    duration_limit_hours = Example("48"),
        "The longest time that a process may hold a GPU.",
        |draft, at| draft.duration = at.length(TimeUnit::Hours, bounds::MAX_DURATION);
    idle_limit_minutes = Example("120"),
        "A job may not be idle for this long.",
        |draft, at| draft.idle = at.window(TimeUnit::Minutes);
    idle_min_memory_gb = Example("1"),
        "Only while the job holds at least this much memory, in GiB.",
        |draft, at| store(&mut draft.idle_min_memory, at.gib());
    idle_with_connections = Example("true"),
        "Also while clients are connected to the job.",
        |draft, at| store(&mut draft.idle_with_connections, at.boolean());
    idle_cpu_below_pct = Example("10"),
        "Only while the job uses less of a processor core than this at all times: 1, 2,\n\
         5, 10, 20, 50 or 100. Only processes that hold a GPU count. An unknown value\n\
         does not count as idle.",
        |draft, at| draft.idle_cpu_below = at.percent_among(&CPU_STEPS);
    waste_below_pct = Example("10"),
        "The mean utilization of a job may not be below this.",
        |draft, at| draft.waste_below = at.percent();
    waste_min_memory_gb = Example("20"),
        "Only while the job holds at least this much memory, in GiB.",
        |draft, at| store(&mut draft.waste_min_memory, at.gib());
    waste_hours = Example("4"),
        "Over this time; one hour by default.",
        |draft, at| draft.waste_hours = at.window(TimeUnit::Hours);
    services = Example("\"end\""),
        "What is done about idle or wasteful jobs that others can reach over TCP: \"warn\",\n\
         the default, or \"end\", as for other jobs.",
        |draft, at| store(&mut draft.ends_services, at.keyword(&[("warn", false), ("end", true)]));
    runaway_above_pct = Example("95"),
        "A process may not stay above this utilization while its memory does not fall.",
        |draft, at| draft.runaway_above = at.percent();
    runaway_minutes = Example("30"),
        "For this long; five minutes by default.",
        |draft, at| draft.runaway_limit = at.window(TimeUnit::Minutes);
    runaway_orphaned = Example("true"),
        "Only processes with a parent that has ended.",
        |draft, at| store(&mut draft.runaway_orphaned, at.boolean());
    growth_gb = Example("4"),
        "The memory of a process may not grow by this much, in GiB, with growth in each\n\
         quarter of the time.",
        |draft, at| draft.growth = at.gib();
    growth_hours = Example("6"),
        "Within this time; one hour by default.",
        |draft, at| draft.growth_hours = at.window(TimeUnit::Hours);
    rogue_risk = Example("\"critical\""),
        "A process may not have a rogue verdict of this risk or a greater one: \"low\",\n\
         \"medium\", \"high\" or \"critical\". Only a verdict with indicators of two\n\
         families counts, one of them near-proof.",
        |draft, at| draft.rogue_risk = at.keyword(&RISKS);
    rogue_threats = Example("[\"crypto_miner\"]"),
        "Only these threats: \"crypto_miner\", \"suspicious_process\", \"resource_abuser\",\n\
         \"data_exfiltrator\". By default the first two.",
        |draft, at| draft.rogue_threats = at.list(|at| at.keyword(&THREATS));
}
