//! Keys of `[gpu_policies."GPU"]`, and device selectors.

use super::bounds;
use super::field::{KeyGroup, TableEntry, TableKeys, fields, store};
use super::shared::MEASURES;
use super::value_reader::ValueReader;
use crate::guard::rules::{GpuPolicy, GpuSelector};
use crate::guard::schedule::Hours;
use toml::de::DeValue;

impl TableEntry for GpuPolicy {
    const KEYS: TableKeys<Self> = &[
        &KeyGroup::new(GPU_FIELDS, |draft: &mut Self| draft),
        &KeyGroup::new(MEASURES, |draft: &mut Self| &mut draft.measures),
    ];

    fn with_name(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            ..Self::default()
        }
    }

    fn check(&mut self, at: &mut ValueReader<'_, '_>) {
        at.check_any_name(&self.name);
        if !at.has_key("gpus") {
            store(&mut self.gpus, at.expand_selectors(&self.name));
        }
    }
}

fields! {
    const GPU_FIELDS: GpuPolicy;

    gpu_index = Example("0"),
        "Optional. It must equal the name of the table.",
        |draft, at| {
            let index = at.count(u64::from(u32::MAX));
            if let Some(index) = index
                && index.to_string() != draft.name
            {
                let what = format!("{index} is not the name of its table, \"{}\"", draft.name);
                let suggestion = format!("leave it out, or write gpus = [{index}]");
                at.report_with_suggestion(what, Some(suggestion));
            }
        };
    gpus = Example("[0, \"2-3\", \"GPU-8f3c9d\", \"*H100*\"]"),
        "The GPUs that the policy applies to: indices, UUIDs, PCI addresses, names\n\
         with *. Without it, the name of the table selects them.",
        |draft, at| {
            let gpus = at.gpus();
            if gpus.as_ref().is_some_and(Vec::is_empty) {
                at.report("names no GPU");
            }
            store(&mut draft.gpus, gpus);
        };
    max_memory_gb = Example("40"),
        "Memory of the GPU that one process may hold, in GiB.",
        |draft, at| draft.max_memory = at.gib();
    max_utilization_pct = Example("90"),
        "Mean utilization by all processes together. It only warns, unless action is\n\
         \"terminate\".",
        |draft, at| draft.max_utilization = at.percent();
    reserved_memory_gb = Example("2"),
        "Memory that must stay free, in GiB.",
        |draft, at| draft.reserved_memory = at.gib();
    allowed_users = Example("[\"alice\", \"bob\"]"),
        "The only users who may use the GPU, by name or number. By default all.",
        |draft, at| store(&mut draft.allowed_users, at.users());
    blocked_users = Example("[\"carol\"]"),
        "Users who may not use the GPU, even if another key allows them.",
        |draft, at| store(&mut draft.blocked_users, at.users());
    allowed_processes = Example("[\"python*\"]"),
        "The only processes that may use the GPU, by their whole names with * and ?. By\n\
         default all.",
        |draft, at| store(&mut draft.allowed_processes, at.globs());
    blocked_processes = Example("[\"xmrig\"]"),
        "Processes that may not use the GPU, even if another key allows them.",
        |draft, at| store(&mut draft.blocked_processes, at.globs());
    maintenance_window = Example("{ start_time = \"02:00\", end_time = \"04:00\", days_of_week = [\"Sun\"] }"),
        "When nobody may use the GPU.",
        |draft, at| draft.maintenance = <Hours as TableEntry>::read("", at);
}

impl ValueReader<'_, '_> {
    /// A list of device selectors.
    pub(super) fn gpus(&mut self) -> Option<Vec<GpuSelector>> {
        let gpus = self.list(|at| match at.value.get_ref() {
            DeValue::Integer(_) => {
                let index = at.count(u64::from(u32::MAX))?;
                Some(vec![GpuSelector(index.to_string())])
            }
            _ => {
                let typed = at.text(bounds::MAX_NAME_BYTES)?;
                at.expand_selectors(&typed)
            }
        })?;
        Some(gpus.concat())
    }

    /// The device selectors in a text: they are separated by commas, and ranges of indices
    /// are expanded.
    fn expand_selectors(&mut self, typed: &str) -> Option<Vec<GpuSelector>> {
        let mut selectors = Vec::new();
        for part in typed.split(',').map(str::trim) {
            if part.is_empty() {
                self.report(format!("{typed:?} does not name a GPU"));
                return None;
            }
            match parse_range(part) {
                None => selectors.push(GpuSelector(part.to_owned())),
                Some((first, last)) if first > last => {
                    let suggestion = Some(format!("write \"{last}-{first}\""));
                    self.report_with_suggestion(
                        format!("{part:?} is a reversed range"),
                        suggestion,
                    );
                    return None;
                }
                Some((first, last)) if last - first >= bounds::MAX_RANGE => {
                    let max = bounds::MAX_RANGE;
                    self.report(format!("{part:?} means more than {max} GPUs"));
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

fn parse_range(part: &str) -> Option<(u32, u32)> {
    let (first, last) = part.split_once('-')?;
    Some((first.parse().ok()?, last.parse().ok()?))
}
