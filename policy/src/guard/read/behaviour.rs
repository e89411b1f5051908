//! Keys of `[[rules]]`: what processes must not do.

use super::at::At;
use super::bounds;
use super::field::{Entry, Field, Keys, Of, Shown, put};
use super::shared::{MEASURES, MEMBERS};
use super::value::Unit;
use crate::guard::judge::has_grace;
use crate::guard::rules::{Behaviour, Conduct, Glob, GpuSelector, Measures, Members, Pattern};
use crate::usage::CPU_STEPS;
use gpukill_proto::collect::IntoSet as _;
use gpukill_proto::rogue::{Risk, Threat};
use gpukill_proto::units::{Bytes, Percent};
use std::collections::BTreeSet;
use std::time::Duration;

/// A rule, before it is known to be about one thing.
#[derive(Debug, Clone, Default)]
pub(super) struct Draft {
    name: String,
    members: Members,
    except_users: Vec<String>,
    gpus: Vec<GpuSelector>,
    processes: Vec<Glob>,
    command: Option<Pattern>,
    measures: Measures,
    conduct: Option<Conduct>,
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

/// Five minutes of full load are what the runaway of the documentation's example is.
const RUNAWAY: Duration = Duration::from_secs(300);

/// Who has no business on a GPU; the other threats may be somebody's honest work.
const ROGUES: [Threat; 2] = [Threat::CryptoMiner, Threat::SuspiciousProcess];

/// The words for how much of a threat somebody is.
const RISKS: [(&str, Risk); 4] = [
    (Risk::Low.name(), Risk::Low),
    (Risk::Medium.name(), Risk::Medium),
    (Risk::High.name(), Risk::High),
    (Risk::Critical.name(), Risk::Critical),
];

/// The words for what somebody may be.
const THREATS: [(&str, Threat); 4] = [
    (Threat::CryptoMiner.name(), Threat::CryptoMiner),
    (Threat::SuspiciousProcess.name(), Threat::SuspiciousProcess),
    (Threat::ResourceAbuser.name(), Threat::ResourceAbuser),
    (Threat::DataExfiltrator.name(), Threat::DataExfiltrator),
];

impl Draft {
    /// The rule. `None` where it is not about one thing, which is told already.
    pub(super) fn behaviour(self) -> Option<Behaviour> {
        Some(Behaviour {
            conduct: self.conduct?,
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

    /// All that it says must not be done.
    fn conducts(&self) -> Vec<Conduct> {
        let duration = self.duration.map(Conduct::Duration);
        let idle = self.idle.map(|limit| Conduct::Idle {
            limit,
            min_memory: self.idle_min_memory,
            with_connections: self.idle_with_connections,
            cpu_below: self.idle_cpu_below,
        });
        let waste = self.waste_below.map(|below| Conduct::Waste {
            below,
            min_memory: self.waste_min_memory,
            hours: self.waste_hours.unwrap_or(HOUR),
        });
        let runaway = self.runaway_above.map(|above| Conduct::Runaway {
            above,
            limit: self.runaway_limit.unwrap_or(RUNAWAY),
            orphaned: self.runaway_orphaned,
        });
        let growth = self.growth.map(|by| Conduct::Growth {
            by,
            within: self.growth_hours.unwrap_or(HOUR),
        });
        let rogue = self.rogue_risk.map(|from| Conduct::Rogue {
            from,
            threats: self.rogue_threats.as_deref().unwrap_or(&ROGUES).to_vec(),
        });
        let all = [duration, idle, waste, runaway, growth, rogue];
        all.into_iter().flatten().collect()
    }
}

/// Each conduct's own key, and those that say more of it.
pub(super) const CONDUCTS: [(&str, &[&str]); 6] = [
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

impl Entry for Draft {
    const KEYS: Keys<Self> = &[
        &Of::new(NAME, |it: &mut Self| it),
        &Of::new(MEMBERS, |it: &mut Self| &mut it.members),
        &Of::new(WHICH, |it: &mut Self| it),
        &Of::new(CONDUCT, |it: &mut Self| it),
        &Of::new(MEASURES, |it: &mut Self| &mut it.measures),
    ];

    fn called(_: &str) -> Self {
        Self::default()
    }

    fn check(&mut self, at: &mut At<'_, '_>) {
        at.check_named();
        let said = CONDUCTS.iter().filter(|(key, _)| at.has(key));
        let said: Vec<&str> = said.map(|(key, _)| *key).collect();
        let mores: BTreeSet<&str> = CONDUCTS
            .iter()
            .flat_map(|(_, more)| *more)
            .copied()
            .into_set();
        for more in mores {
            let has_it = CONDUCTS.iter().filter(|(_, all)| all.contains(&more));
            let keys: Vec<&str> = has_it.map(|(key, _)| *key).collect();
            if at.has(more) && !keys.iter().any(|key| said.contains(key)) {
                at.wrong(format!("says {more}, and no {}", keys.join(" or ")));
            }
        }
        let all = CONDUCTS.map(|(key, _)| key).join(", ");
        match said.as_slice() {
            [] => at.wrong_with(
                "does not say what must not be done",
                Some(format!("write one of {all}")),
            ),
            [key] => {
                let mut conducts = self.conducts();
                self.conduct = conducts.pop();
                let guesses = self.conduct.as_ref();
                let guesses = guesses.is_some_and(|conduct| has_grace(conduct.kind()));
                if guesses && self.measures.grace == Some(Duration::ZERO) {
                    at.wrong_with(
                        format!("{key} has no grace: somebody who is about to work is not warned"),
                        Some(
                            "write a grace of a minute or more, or none for the default".to_owned(),
                        ),
                    );
                }
            }
            [..] => at.wrong_with(
                format!("is about several things: {}", said.join(", ")),
                Some("write a rule for each".to_owned()),
            ),
        }
    }
}

const NAME: &[Field<Draft>] = &[
    Field {
        name: "name",
        shown: Shown::Example("\"notebooks\""),
        help: "What it is called.",
        set: |it, at| put(&mut it.name, at.name()),
    },
    Field {
        name: "users",
        shown: Shown::Example("[\"alice\", \"bob\"]"),
        help: "Whose jobs it is about, by name or number. This and the next four add up; where\n\
               there is none of them, it is about everybody's.",
        set: |it, at| put(&mut it.members.users, at.users()),
    },
];

const WHICH: &[Field<Draft>] = &[
    Field {
        name: "except_users",
        shown: Shown::Example("[\"carol\"]"),
        help: "Whose jobs it is not about.",
        set: |it, at| put(&mut it.except_users, at.users()),
    },
    Field {
        name: "gpus",
        shown: Shown::Example("[0, 1]"),
        help: "Only about what uses these GPUs.",
        set: |it, at| put(&mut it.gpus, at.gpus()),
    },
    Field {
        name: "processes",
        shown: Shown::Example("[\"jupyter*\", \"ipykernel*\"]"),
        help: "Only about processes of these whole names, with * and ?.",
        set: |it, at| put(&mut it.processes, at.globs()),
    },
    Field {
        name: "command",
        shown: Shown::Example("\"ipykernel_launcher\""),
        help: "Only about processes whose command line matches this regular expression.",
        set: |it, at| it.command = at.pattern(),
    },
];

/// One of these, with those that say more of it.
const CONDUCT: &[Field<Draft>] = &[
    Field {
        name: "duration_limit_hours",
        shown: Shown::Example("48"),
        help: "They hold a GPU for longer.",
        set: |it, at| {
            it.duration = at.duration(Unit::Hours, Duration::ZERO, bounds::LONGEST);
        },
    },
    Field {
        name: "idle_limit_minutes",
        shown: Shown::Example("120"),
        help: "They do nothing for so long.",
        set: |it, at| {
            it.idle = at.duration(Unit::Minutes, bounds::SHORTEST, bounds::WINDOW);
        },
    },
    Field {
        name: "idle_min_memory_gb",
        shown: Shown::Example("1"),
        help: "While they hold as much.",
        set: |it, at| put(&mut it.idle_min_memory, at.gib()),
    },
    Field {
        name: "idle_with_connections",
        shown: Shown::Example("true"),
        help: "Also where clients are connected to them.",
        set: |it, at| put(&mut it.idle_with_connections, at.truth()),
    },
    Field {
        name: "idle_cpu_below_pct",
        shown: Shown::Example("10"),
        help: "While they take less of a processor core than this at all times: 1, 2, 5, 10, 20, 50\n\
               or 100. It counts the processes that hold a GPU; what is not known is not idle.",
        set: |it, at| it.idle_cpu_below = at.percent_of(&CPU_STEPS),
    },
    Field {
        name: "waste_below_pct",
        shown: Shown::Example("10"),
        help: "Their mean utilisation is below this.",
        set: |it, at| it.waste_below = at.percent(),
    },
    Field {
        name: "waste_min_memory_gb",
        shown: Shown::Example("20"),
        help: "While they hold as much.",
        set: |it, at| put(&mut it.waste_min_memory, at.gib()),
    },
    Field {
        name: "waste_hours",
        shown: Shown::Example("4"),
        help: "For so long; an hour where nothing is said.",
        set: |it, at| {
            it.waste_hours = at.duration(Unit::Hours, bounds::SHORTEST, bounds::WINDOW);
        },
    },
    Field {
        name: "services",
        shown: Shown::Example("\"end\""),
        help: "What comes of idle or wasteful jobs that others can reach over TCP: \"warn\", which\n\
               holds where nothing is said, or \"end\", as for other jobs.",
        set: |it, at| {
            put(
                &mut it.ends_services,
                at.word(&[("warn", false), ("end", true)]),
            )
        },
    },
    Field {
        name: "runaway_above_pct",
        shown: Shown::Example("95"),
        help: "Their utilisation is over this all the time, and their memory does not fall.",
        set: |it, at| it.runaway_above = at.percent(),
    },
    Field {
        name: "runaway_minutes",
        shown: Shown::Example("30"),
        help: "For so long; five minutes where nothing is said.",
        set: |it, at| {
            it.runaway_limit = at.duration(Unit::Minutes, bounds::SHORTEST, bounds::WINDOW);
        },
    },
    Field {
        name: "runaway_orphaned",
        shown: Shown::Example("true"),
        help: "Only those whose parent has ended.",
        set: |it, at| put(&mut it.runaway_orphaned, at.truth()),
    },
    Field {
        name: "growth_gb",
        shown: Shown::Example("4"),
        help: "Their memory grows by as much, and in each quarter of the time.",
        set: |it, at| it.growth = at.gib(),
    },
    Field {
        name: "growth_hours",
        shown: Shown::Example("6"),
        help: "Within so long; an hour where nothing is said.",
        set: |it, at| {
            it.growth_hours = at.duration(Unit::Hours, bounds::SHORTEST, bounds::WINDOW);
        },
    },
    Field {
        name: "rogue_risk",
        shown: Shown::Example("\"critical\""),
        help: "The watch for rogues takes them for a threat of this risk or a greater one: \"low\",\n\
               \"medium\", \"high\" or \"critical\". Only a verdict on signs of two kinds counts, one\n\
               of them near a proof.",
        set: |it, at| it.rogue_risk = at.word(&RISKS),
    },
    Field {
        name: "rogue_threats",
        shown: Shown::Example("[\"crypto_miner\"]"),
        help: "Only for these: \"crypto_miner\", \"suspicious_process\", \"resource_abuser\",\n\
               \"data_exfiltrator\". The first two where nothing is said.",
        set: |it, at| it.rogue_threats = at.list(|at| at.word(&THREATS)),
    },
];
