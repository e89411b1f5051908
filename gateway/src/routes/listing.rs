//! Parts of the newest snapshot, without any call of the daemon.

use super::now::selected_devices;
use super::{GPU, PID, USER, number};
use crate::access::Access;
use crate::document::{Document, RouteAnswer};
use crate::parameters::{Parameter, Parameters, Place, text};
use crate::problem::Problem;
use crate::upstream::Frame;
use gpukill_policy::select::{SnapshotFilter, compile_pattern};
use gpukill_proto::json::{BackendDocument, CellsDocument, GpuListDocument, ProcessDocument};
use gpukill_proto::model::DeviceId;
use serde::Serialize;

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
    let snapshot = &frame.annotated.snapshot;
    let selected = parameters.text("gpu");
    let selected = selected.map(|typed| selected_devices(snapshot, typed));
    let selected = selected.transpose()?;
    let is_selected = |id: &DeviceId| selected.as_ref().is_none_or(|all| all.contains(id));
    let gpus = snapshot.devices.iter().zip(&frame.list.gpus);
    let gpus = gpus.filter(|(device, _)| is_selected(&device.id));
    let gpus = gpus.map(|(_, gpu)| gpu.clone()).collect();
    let mut list = GpuListDocument::new(&frame.list, gpus);
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

/// [`ProcessListDocument`](gpukill_proto::json::ProcessListDocument) without a copy of the rows, of
/// which there may be very many.
#[derive(Serialize)]
struct ProcessRows<'a> {
    schema: u32,
    host: &'a str,
    ts: &'a str,
    polls: u64,
    backends: &'a [BackendDocument],
    procs: Vec<&'a ProcessDocument>,
}

/// The selected processes.
pub(super) fn processes(frame: &Frame, parameters: &Parameters, _: Access) -> RouteAnswer {
    let snapshot = &frame.annotated.snapshot;
    let selected = parameters.text("gpu");
    let selected = selected.map(|typed| selected_devices(snapshot, typed));
    let selected = selected.transpose()?;
    let is_selected = |id: &DeviceId| selected.as_ref().is_none_or(|all| all.contains(id));
    let name = parameters.text("name").map(compile_pattern).transpose();
    let filter = SnapshotFilter {
        gpu: None,
        vendors: Vec::new(),
        pids: number(parameters, PROCESS).into_iter().collect(),
        user: parameters.owned("user"),
        name: name.map_err(Problem::bad_request)?,
    };
    let procs = snapshot.processes.iter().zip(&frame.list.procs);
    let procs = procs.filter(|(it, _)| is_selected(&it.device) && filter.accepts(it));
    let list = &frame.list;
    Document::json(&ProcessRows {
        schema: list.schema,
        host: &list.host,
        ts: &list.ts,
        polls: list.polls,
        backends: &list.backends,
        procs: procs.map(|(_, row)| row).collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::upstream::tests::{snapshot, view};
    use gpukill_proto::json::ProcessListDocument;
    use gpukill_proto::model::GpuProcess;
    use gpukill_proto::reading::Reading;
    use gpukill_proto::units::Timestamp;
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
    fn processes_are_those_of_the_list() {
        let mut annotated = snapshot(Timestamp(0));
        let device = annotated.snapshot.devices[0].id.clone();
        let process =
            |pid| GpuProcess::unknown(device.clone(), pid, Timestamp(0), &Reading::Unsupported);
        annotated.snapshot.processes = [7, 8].map(process).to_vec();
        let frame = Frame::new(1, annotated).unwrap();
        let listed = |query| {
            let parameters = Parameters::parse(PROCESS_PARAMETERS, [], query).unwrap();
            let document = processes(&frame, &parameters, Access::Look).unwrap();
            document.line().to_vec()
        };
        let mut expected = ProcessListDocument::from(frame.list.clone());
        for query in ["", "gpu=0"] {
            let whole = serde_json::to_vec(&expected).unwrap();
            assert_eq!(listed(query), whole, "{query}");
        }
        expected.procs.remove(0);
        assert_eq!(listed("pid=8"), serde_json::to_vec(&expected).unwrap());
        expected.procs.clear();
        assert_eq!(listed("user=x"), serde_json::to_vec(&expected).unwrap());
    }

    #[test]
    fn unknown_gpu_is_a_problem() {
        let problem = gpus_of("gpu=5").unwrap_err();
        assert_eq!(problem["status"], 400);
        assert_eq!(problem["exit_code"], 3);
    }
}
