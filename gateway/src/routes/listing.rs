//! Parts of the newest snapshot, without any call of the daemon.

use super::{GPU, USER};
use crate::document::Document;
use crate::parameters::{Parameter, ParameterKind, Parameters, Place, text};
use crate::problem::Problem;
use crate::upstream::Frame;
use gpukill_policy::select::{SnapshotFilter, compile_pattern, filter_snapshot};
use gpukill_proto::json::{BackendDocument, GpuDocument, ListDocument, ProcessDocument, SCHEMA};
use gpukill_proto::refusal::Refusal;
use serde::Serialize;

const PROCESS: Parameter = Parameter {
    name: "pid",
    place: Place::Query,
    kind: ParameterKind::Number {
        min: 1,
        max: u32::MAX as u64,
        default: None,
    },
    summary: "only this process",
};

/// The parameters of [`processes`].
pub(super) const PROCESS_PARAMETERS: &[Parameter] = &[
    GPU,
    USER,
    PROCESS,
    text(
        "name",
        "only processes with a name that matches this regular expression",
    ),
];

/// The members that both parts have in common with the whole.
#[derive(Serialize)]
struct ListHead<'a> {
    schema: u32,
    host: &'a str,
    ts: &'a str,
    polls: u64,
    /// Whether an empty list means "none".
    backends: &'a [BackendDocument],
}

#[derive(Serialize)]
struct GpuList<'a> {
    #[serde(flatten)]
    head: ListHead<'a>,
    gpus: &'a [GpuDocument],
}

#[derive(Serialize)]
struct ProcessList<'a> {
    #[serde(flatten)]
    head: ListHead<'a>,
    procs: &'a [ProcessDocument],
}

/// The selected GPUs.
pub(super) fn gpus(frame: &Frame, parameters: &Parameters) -> Result<Document, Problem> {
    let list = select(frame, parameters)?;
    Document::json(&GpuList {
        head: head(&list),
        gpus: &list.gpus,
    })
}

/// The selected processes.
pub(super) fn processes(frame: &Frame, parameters: &Parameters) -> Result<Document, Problem> {
    let list = select(frame, parameters)?;
    Document::json(&ProcessList {
        head: head(&list),
        procs: &list.procs,
    })
}

fn head(list: &ListDocument) -> ListHead<'_> {
    ListHead {
        schema: SCHEMA,
        host: &list.host,
        ts: &list.ts,
        polls: list.polls,
        backends: &list.backends,
    }
}

fn select(frame: &Frame, parameters: &Parameters) -> Result<ListDocument, Problem> {
    let name = parameters.text("name").map(compile_pattern).transpose();
    let pid = parameters.number(PROCESS);
    let filter = SnapshotFilter {
        gpu: parameters.owned("gpu"),
        vendors: Vec::new(),
        pids: pid
            .and_then(|pid| u32::try_from(pid).ok())
            .into_iter()
            .collect(),
        user: parameters.owned("user"),
        name: name.map_err(Problem::bad_request)?,
    };
    if filter.is_empty() {
        return Ok(frame.list.clone());
    }
    let annotated = &frame.annotated;
    let selected = filter_snapshot(annotated.snapshot.clone(), &filter).map_err(Refusal::from)?;
    Ok(ListDocument::new(
        &selected,
        &annotated.guard,
        &annotated.verdicts,
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::upstream::tests::view;
    use std::time::Duration;

    fn gpus_of(query: &str) -> Result<serde_json::Value, serde_json::Value> {
        let view = view(Duration::from_secs(1));
        let parameters = Parameters::parse(&[GPU], [], query).unwrap();
        let json = |text: &[u8]| serde_json::from_slice(text).unwrap();
        match gpus(view.current().unwrap(), &parameters) {
            Ok(document) => Ok(json(document.line())),
            Err(problem) => Err(json(&problem.body())),
        }
    }

    #[test]
    fn gpus_are_those_of_the_list() {
        let whole = gpus_of("").unwrap();
        assert_eq!(whole["gpus"][0]["util_pct"], 50);
        assert_eq!(whole["polls"], 7);
        assert!(whole.get("procs").is_none());
        assert_eq!(gpus_of("gpu=0").unwrap()["gpus"], whole["gpus"]);
    }

    #[test]
    fn unknown_gpu_is_a_problem() {
        let problem = gpus_of("gpu=5").unwrap_err();
        assert_eq!(problem["status"], 400);
        assert_eq!(problem["exit_code"], 3);
    }
}
