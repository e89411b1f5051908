//! The JSON of lists: the entries of a period, parts of `list`, and rules as text.

use super::schema::described;
use super::{
    ActionDocument, AuditDocument, BackendDocument, GapDocument, GpuDocument, GpuState,
    ListDocument, ProcessDocument, RunDocument, SCHEMA, TimelineDocument,
};
use crate::units::Timestamp;
use std::collections::BTreeMap;

described! {
    /// The period that a list covers.
    pub struct PeriodDocument {
        /// The version of the JSON shape.
        pub schema: u32,
        pub since: String as Timestamp,
        pub until: String as Timestamp,
    }
}

impl PeriodDocument {
    /// From the first moment of a period to the first one after it.
    #[must_use]
    pub fn new(since: Timestamp, until: Timestamp) -> Self {
        Self {
            schema: SCHEMA,
            since: since.to_rfc3339(),
            until: until.to_rfc3339(),
        }
    }
}

described! {
    /// The runs of a period, as `gpukillctl audit -o json` prints them.
    pub struct RunsDocument {
        #[serde(flatten)]
        pub period: PeriodDocument,
        pub runs: Vec<RunDocument>,
        /// Times without samples, the oldest first.
        pub gaps: Vec<GapDocument>,
        /// The oldest record that is kept.
        pub recorded_since: Option<String> as Option<Timestamp>,
        /// Whether there are more runs.
        pub more: bool,
    }
}

described! {
    /// The samples of a period, as `gpukillctl audit --samples -o json` prints them.
    pub struct SamplesDocument {
        #[serde(flatten)]
        pub period: PeriodDocument,
        pub records: Vec<AuditDocument>,
        /// Times without samples, the oldest first; `null` if they could not be found.
        pub gaps: Option<Vec<GapDocument>>,
        /// The oldest record that is kept.
        pub recorded_since: Option<String> as Option<Timestamp>,
        /// Whether there are more records.
        pub more: bool,
    }
}

described! {
    /// The actions of a period, as `gpukillctl audit actions -o json` prints them.
    pub struct ActionsDocument {
        #[serde(flatten)]
        pub period: PeriodDocument,
        pub actions: Vec<ActionDocument>,
        /// Whether there are more actions.
        pub more: bool,
    }
}

described! {
    /// The events of a period, as `gpukillctl audit timeline -o json` prints them.
    pub struct EventsDocument {
        #[serde(flatten)]
        pub period: PeriodDocument,
        pub entries: Vec<TimelineDocument>,
        /// Whether busy and idle stretches are left out.
        pub stretches_omitted: bool,
        /// Whether there are more entries.
        pub more: bool,
    }
}

described! {
    /// The GPUs of `list`.
    pub struct GpuListDocument {
        /// The version of the JSON shape.
        pub schema: u32,
        pub host: String,
        /// The start of the poll, in UTC.
        pub ts: String as Timestamp,
        pub polls: u64,
        /// The state of the backend of each vendor: whether an empty list means "none".
        pub backends: Vec<BackendDocument>,
        pub gpus: Vec<GpuDocument>,
    }
}

impl GpuListDocument {
    /// Some GPUs of a list.
    #[must_use]
    pub fn new(list: &ListDocument, gpus: Vec<GpuDocument>) -> Self {
        Self {
            schema: list.schema,
            host: list.host.clone(),
            ts: list.ts.clone(),
            polls: list.polls,
            backends: list.backends.clone(),
            gpus,
        }
    }
}

described! {
    /// The processes of `list`.
    pub struct ProcessListDocument {
        /// The version of the JSON shape.
        pub schema: u32,
        pub host: String,
        /// The start of the poll, in UTC.
        pub ts: String as Timestamp,
        pub polls: u64,
        /// The state of the backend of each vendor: whether an empty list means "none".
        pub backends: Vec<BackendDocument>,
        pub procs: Vec<ProcessDocument>,
    }
}

impl From<ListDocument> for ProcessListDocument {
    fn from(list: ListDocument) -> Self {
        Self {
            schema: list.schema,
            host: list.host,
            ts: list.ts,
            polls: list.polls,
            backends: list.backends,
            procs: list.procs,
        }
    }
}

described! {
    /// Some readings of each GPU in columns, for a map of many GPUs. Each column has an entry for
    /// each GPU.
    pub struct CellsDocument {
        /// The version of the JSON shape.
        pub schema: u32,
        pub host: String,
        /// The start of the poll, in UTC.
        pub ts: String as Timestamp,
        pub polls: u64,
        pub gpu_index: Vec<u32>,
        pub state: Vec<&'static str> as Vec<GpuState>,
        pub util_pct: Vec<Option<u32>>,
        /// Used memory as a share of all memory.
        pub mem_pct: Vec<Option<u64>>,
        pub temp_c: Vec<Option<i32>>,
        /// Positions in `models`.
        pub model: Vec<Option<usize>>,
        /// Positions in `vendors`.
        pub vendor: Vec<Option<usize>>,
        /// Positions in `owners`, of the owner of the process that holds the most memory.
        pub owner: Vec<Option<usize>>,
        pub models: Vec<String>,
        pub vendors: Vec<String>,
        pub owners: Vec<String>,
    }
}

impl From<&ListDocument> for CellsDocument {
    fn from(list: &ListDocument) -> Self {
        let gpus = &list.gpus;
        let models = gpus.iter().map(|gpu| gpu.name.as_deref());
        let (models, model) = number_names(models);
        let (vendors, vendor) = number_names(gpus.iter().map(|gpu| Some(gpu.vendor)));
        let owners = gpus
            .iter()
            .map(|gpu| gpu.top_proc.as_ref()?.owner.as_deref());
        let (owners, owner) = number_names(owners);
        let share = |gpu: &GpuDocument| {
            let used = gpu.mem_used_bytes?.checked_mul(100)?;
            used.checked_div(gpu.mem_total_bytes?)
        };
        Self {
            schema: list.schema,
            host: list.host.clone(),
            ts: list.ts.clone(),
            polls: list.polls,
            gpu_index: gpus.iter().map(|gpu| gpu.gpu_index).collect(),
            state: gpus.iter().map(|gpu| gpu.state).collect(),
            util_pct: gpus.iter().map(|gpu| gpu.util_pct).collect(),
            mem_pct: gpus.iter().map(share).collect(),
            temp_c: gpus.iter().map(|gpu| gpu.temp_c).collect(),
            model,
            vendor,
            owner,
            models,
            vendors,
            owners,
        }
    }
}

/// Each name once, and for each entry the position of its name.
fn number_names<'a>(
    names: impl Iterator<Item = Option<&'a str>>,
) -> (Vec<String>, Vec<Option<usize>>) {
    let mut known: BTreeMap<&str, usize> = BTreeMap::new();
    let mut all = Vec::new();
    let numbers = names.map(|name| {
        let name = name?;
        Some(*known.entry(name).or_insert_with(|| {
            all.push(name.to_owned());
            all.len() - 1
        }))
    });
    let numbers = numbers.collect();
    (all, numbers)
}

described! {
    /// The rules in force as text.
    pub struct RulesTextDocument {
        /// The version of the JSON shape.
        pub schema: u32,
        pub file: String,
        /// `null` without a file: the built-in rules apply.
        pub revision: Option<String>,
        pub text: String,
    }
}
