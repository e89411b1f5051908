//! Parts of the newest snapshot, without any call of the daemon.

use super::{GPU, PID, USER, number};
use crate::access::Access;
use crate::document::{Document, RouteAnswer};
use crate::parameters::{Parameter, Parameters, Place, text};
use crate::problem::Problem;
use crate::upstream::Frame;
use gpukill_policy::select::{SnapshotFilter, compile_pattern, filter_snapshot};
use gpukill_proto::json::{CellsDocument, GpuListDocument, ListDocument, ProcessListDocument};
use gpukill_proto::refusal::Refusal;

const PROCESS: Parameter = Parameter {
    place: Place::Query,
    summary: "only this process",
    ..PID
};

/// The parameters of [`processes`].
pub(crate) const PROCESS_PARAMETERS: &[Parameter] = &[
    GPU,
    USER,
    PROCESS,
    text(
        "name",
        "only processes with a name that matches this regular expression",
    ),
];

/// The selected GPUs; without their largest process for a caller that may see only numbers.
pub(super) fn gpus(frame: &Frame, parameters: &Parameters, access: Access) -> RouteAnswer {
    let mut list = GpuListDocument::from(select(frame, parameters)?);
    if access < Access::Look {
        for gpu in &mut list.gpus {
            gpu.top_proc = None;
            let why = "withheld: this needs a token with the scope \"look\"";
            gpu.reasons.insert("top_proc", why.to_owned());
        }
    }
    Document::json(&list)
}

/// The GPUs in columns.
pub(super) fn cells(frame: &Frame, _: &Parameters, _: Access) -> RouteAnswer {
    Document::json(&CellsDocument::from(&frame.list))
}

/// The selected processes.
pub(super) fn processes(frame: &Frame, parameters: &Parameters, _: Access) -> RouteAnswer {
    Document::json(&ProcessListDocument::from(select(frame, parameters)?))
}

fn select(frame: &Frame, parameters: &Parameters) -> Result<ListDocument, Problem> {
    let name = parameters.text("name").map(compile_pattern).transpose();
    let filter = SnapshotFilter {
        gpu: parameters.owned("gpu"),
        vendors: Vec::new(),
        pids: number(parameters, PROCESS).into_iter().collect(),
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
        match gpus(view.current().unwrap(), &parameters, Access::Look) {
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
