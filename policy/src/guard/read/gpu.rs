//! Keys of `[gpu_policies."GPU"]`, and how devices are called.

use super::at::At;
use super::bounds;
use super::field::{Entry, Field, Keys, Of, Shown, put};
use super::shared::MEASURES;
use crate::guard::rules::{GpuPolicy, GpuSelector};
use crate::guard::schedule::Hours;
use toml::de::DeValue;

impl Entry for GpuPolicy {
    const KEYS: Keys<Self> = &[
        &Of::new(GPU, |it: &mut Self| it),
        &Of::new(MEASURES, |it: &mut Self| &mut it.measures),
    ];

    fn called(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            ..Self::default()
        }
    }

    fn check(&mut self, at: &mut At<'_, '_>) {
        at.check_written(&self.name);
        if !at.has("gpus") {
            put(&mut self.gpus, at.selectors(&self.name));
        }
    }
}

const GPU: &[Field<GpuPolicy>] = &[
    Field {
        name: "gpu_index",
        shown: Shown::Example("0"),
        help: "The same as the table's name, if it is there.",
        set: |it, at| {
            let index = at.count(u64::from(u32::MAX));
            if let Some(index) = index
                && index.to_string() != it.name
            {
                let what = format!("{index} is not the name of its table, \"{}\"", it.name);
                let suggestion = format!("leave it out, or write gpus = [{index}]");
                at.wrong_with(what, Some(suggestion));
            }
        },
    },
    Field {
        name: "gpus",
        shown: Shown::Example("[0, \"2-3\", \"GPU-8f3c9d\", \"*H100*\"]"),
        help: "The GPUs it is about: indices, UUIDs, PCI addresses, names with *. Where there is\n\
               none, the table's name says which.",
        set: |it, at| {
            let gpus = at.gpus();
            if gpus.as_ref().is_some_and(Vec::is_empty) {
                at.wrong("names no GPU");
            }
            put(&mut it.gpus, gpus);
        },
    },
    Field {
        name: "max_memory_gb",
        shown: Shown::Example("40"),
        help: "Memory that one process may hold of it, in GiB.",
        set: |it, at| it.max_memory = at.gib(),
    },
    Field {
        name: "max_utilization_pct",
        shown: Shown::Example("90"),
        help: "Mean utilisation by all together. It only warns, unless action says otherwise.",
        set: |it, at| it.max_utilization = at.percent(),
    },
    Field {
        name: "reserved_memory_gb",
        shown: Shown::Example("2"),
        help: "Memory that stays free, in GiB.",
        set: |it, at| it.reserved_memory = at.gib(),
    },
    Field {
        name: "allowed_users",
        shown: Shown::Example("[\"alice\", \"bob\"]"),
        help: "The only users who may use it, by name or number. All where there is none.",
        set: |it, at| put(&mut it.allowed_users, at.users()),
    },
    Field {
        name: "blocked_users",
        shown: Shown::Example("[\"carol\"]"),
        help: "Users who may not, whatever allows them.",
        set: |it, at| put(&mut it.blocked_users, at.users()),
    },
    Field {
        name: "allowed_processes",
        shown: Shown::Example("[\"python*\"]"),
        help: "The only processes that may use it, by their whole names with * and ?. All where\n\
               there is none.",
        set: |it, at| put(&mut it.allowed_processes, at.globs()),
    },
    Field {
        name: "blocked_processes",
        shown: Shown::Example("[\"xmrig\"]"),
        help: "Processes that may not, whatever allows them.",
        set: |it, at| put(&mut it.blocked_processes, at.globs()),
    },
    Field {
        name: "maintenance_window",
        shown: Shown::Example(
            "{ start_time = \"02:00\", end_time = \"04:00\", days_of_week = [\"Sun\"] }",
        ),
        help: "When nobody may use it.",
        set: |it, at| it.maintenance = <Hours as Entry>::read("", at),
    },
];

impl At<'_, '_> {
    /// Devices, as they can be called.
    pub(super) fn gpus(&mut self) -> Option<Vec<GpuSelector>> {
        let gpus = self.list(|at| match at.value.get_ref() {
            DeValue::Integer(_) => {
                let index = at.count(u64::from(u32::MAX))?;
                Some(vec![GpuSelector(index.to_string())])
            }
            _ => {
                let typed = at.text(bounds::NAME)?;
                at.selectors(&typed)
            }
        })?;
        Some(gpus.concat())
    }

    /// What a text names: with commas between them, and ranges of indices taken
    /// apart.
    fn selectors(&mut self, typed: &str) -> Option<Vec<GpuSelector>> {
        let mut selectors = Vec::new();
        for part in typed.split(',').map(str::trim) {
            if part.is_empty() {
                self.wrong(format!("{typed:?} does not name a GPU"));
                return None;
            }
            match range(part) {
                None => selectors.push(GpuSelector(part.to_owned())),
                Some((first, last)) if first > last => {
                    let suggestion = Some(format!("write \"{last}-{first}\""));
                    self.wrong_with(format!("{part:?} is a range backwards"), suggestion);
                    return None;
                }
                Some((first, last)) if last - first >= bounds::RANGE => {
                    let most = bounds::RANGE;
                    self.wrong(format!("{part:?} means more than {most} GPUs"));
                    return None;
                }
                Some((first, last)) => {
                    let indices = first..=last;
                    selectors.extend(indices.map(|index| GpuSelector(index.to_string())));
                }
            }
        }
        Some(selectors)
    }
}

fn range(part: &str) -> Option<(u32, u32)> {
    let (first, last) = part.split_once('-')?;
    Some((first.parse().ok()?, last.parse().ok()?))
}
