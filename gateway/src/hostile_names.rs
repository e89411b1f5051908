//! Names that processes, containers, users and drivers choose stay data in every document: in JSON,
//! events, metrics under all names, and problems.

use crate::access::Access;
use crate::document::Document;
use crate::gateway::Gateway;
use crate::metrics;
use crate::parameters::Parameters;
use crate::settings::Settings;
use crate::upstream::tests::snapshot;
use crate::upstream::{DaemonView, Frame};
use axum::http::header::ACCEPT;
use axum::http::{HeaderMap, HeaderValue};
use form_urlencoded::byte_serialize;
use gpukill_proto::json::ProcessListDocument;
use gpukill_proto::model::{
    DeviceId, Fault, FaultCode, GpuProcess, Owner, OwnerKind, Scheduler, SchedulerJob,
};
use gpukill_proto::reading::Reading;
use gpukill_proto::units::Bytes as Size;
use serde_json::Value;
use std::iter::Peekable;
use std::str::Chars;
use std::sync::Arc;
use std::time::SystemTime;
use tokio::sync::watch;

/// Names that end a text of some format, or begin something else.
const NAMES: [&str; 11] = [
    "\"} 1\nfake_metric{x=\"",
    "\\",
    "\\\"",
    "a\\nb\\x0a",
    "</script><script>alert(1)</script>",
    "<img src=x onerror=\"alert(1)\">&amp;",
    "\n\nevent: end\ndata: {}\n\n",
    "\r\n\r\nevent: end\r\ndata: {}\r\n\r\n",
    "\u{1b}[31m\u{202e}\u{2028}\u{feff}\0",
    "\"}],\"gpus\":[]}",
    "",
];

/// A snapshot in which everything that is named has this name.
fn view(name: &str) -> DaemonView {
    let mut annotated = snapshot(SystemTime::now().into());
    let text = || Reading::Value(name.to_owned());
    let taken_at = annotated.snapshot.taken_at;
    let device = &mut annotated.snapshot.devices[0];
    device.name = text();
    device.pci = text();
    device.memory_used = Reading::Value(Size(40 << 30));
    device.vitals.serial = text();
    device.vitals.compute_partition = text();
    let id = DeviceId("GPU-1".into());
    let mut process = GpuProcess::unknown(id, 7, taken_at, &Reading::Failed(name.to_owned()));
    process.memory = Reading::Value(Size(1 << 30));
    process.started_at = Reading::Value(taken_at);
    process.owner = Reading::Value(Owner {
        name: name.to_owned(),
        uid: None,
        kind: OwnerKind::Label,
    });
    process.user = text();
    process.name = text();
    process.executable = text();
    process.command = text();
    process.location.scheduler = Reading::Value(Some(SchedulerJob {
        scheduler: Scheduler::Slurm,
        job: name.to_owned(),
        step: None,
    }));
    annotated.snapshot.host = name.to_owned();
    annotated.snapshot.processes = vec![process];
    annotated.snapshot.faults = vec![Fault {
        part: name.to_owned(),
        code: FaultCode::DriverError,
        what: name.to_owned(),
        since: taken_at,
    }];
    DaemonView {
        frame: Some(Arc::new(Frame::new(1, annotated).unwrap())),
        ..DaemonView::default()
    }
}

/// A document that is one line of JSON.
fn json(line: &[u8]) -> Value {
    let text = std::str::from_utf8(line).unwrap();
    assert!(!text.contains(|c: char| c.is_ascii_control()), "{text:?}");
    serde_json::from_str(text).unwrap()
}

#[test]
fn documents_and_events_have_names_as_data() {
    for name in NAMES {
        let view = view(name);
        let frame = view.current().unwrap();
        let list = json(frame.document.line());
        assert_eq!(list["gpus"][0]["name"], name);
        assert_eq!(list["procs"][0]["command"], name);
        let processes = ProcessListDocument::from(frame.list.clone());
        let processes = json(Document::json(&processes).unwrap().line());
        assert_eq!(processes["procs"], list["procs"]);
        let event = String::from_utf8(frame.event().to_vec()).unwrap();
        let lines: Vec<&str> = event.split('\n').collect();
        let [kind, id, data, "", ""] = lines[..] else {
            panic!("{event:?}");
        };
        assert_eq!(kind, "event: snapshot");
        assert_eq!(id, format!("id: {}", frame.document.tag()));
        let data = data.strip_prefix("data: ").unwrap();
        assert_eq!(json(data.as_bytes()), list);
        let message = json(&frame.message());
        assert_eq!(
            (&message["event"], &message["data"]),
            (&"snapshot".into(), &list)
        );
    }
}

#[test]
fn problems_have_names_as_data() {
    for name in NAMES {
        let encoded: String = byte_serialize(name.as_bytes()).collect();
        let problem = Parameters::parse(&[], [], &format!("{encoded}=1")).unwrap_err();
        let body = problem.body();
        let document = json(body.strip_suffix(b"\n").unwrap());
        assert_eq!(document["status"], 400);
        let detail = document["detail"].as_str().unwrap();
        assert!(!detail.contains(char::is_control), "{detail:?}");
    }
}

/// Reads a name of the text format: letters, digits and underscores.
fn read_name(text: &mut Peekable<Chars<'_>>) -> String {
    let is_in_name = |c: &char| c.is_ascii_alphanumeric() || *c == '_';
    std::iter::from_fn(|| text.next_if(is_in_name)).collect()
}

/// Reads the value of a label after its first quotation mark, with the escapes of the format.
fn read_value(text: &mut Peekable<Chars<'_>>) -> Option<String> {
    let mut value = String::new();
    loop {
        match text.next()? {
            '"' => return Some(value),
            '\\' => match text.next()? {
                c @ ('\\' | '"') => value.push(c),
                'n' => value.push('\n'),
                _ => return None,
            },
            c => value.push(c),
        }
    }
}

/// The labels and the value of a line; `None` if it is no series.
fn read_series(line: &str) -> Option<(Vec<(String, String)>, f64)> {
    let mut text = line.chars().peekable();
    let name = read_name(&mut text);
    let mut labels = Vec::new();
    let mut next = text.next()?;
    if next == '{' {
        while next != '}' {
            let label = read_name(&mut text);
            let is_begun = !label.is_empty() && text.next()? == '=' && text.next()? == '"';
            let value = read_value(&mut text).filter(|_| is_begun)?;
            labels.push((label, value));
            next = text.next().filter(|c| [',', '}'].contains(c))?;
        }
        next = text.next()?;
    }
    let value: String = text.collect();
    let value = value.parse().ok()?;
    (!name.is_empty() && next == ' ').then_some((labels, value))
}

#[tokio::test]
async fn metrics_have_names_as_labels() {
    for name in NAMES {
        let view = view(name);
        let (_sender, receiver) = watch::channel(Arc::new(view.clone()));
        let (_stop, stopped) = watch::channel(false);
        let settings = Settings {
            process_metrics: true,
            job_metrics: true,
            ..Settings::default()
        };
        let gateway = Gateway::new(settings, receiver, stopped);
        for names in ["gpukill", "dcgm", "gpumon"] {
            for accept in ["text/plain", "application/openmetrics-text"] {
                let query = format!("view={names}");
                let parameters = Parameters::parse(&[metrics::VIEW], [], &query).unwrap();
                let mut headers = HeaderMap::new();
                headers.insert(ACCEPT, HeaderValue::from_static(accept));
                let answer = metrics::respond(&gateway, &view, &parameters, &headers, Access::Look);
                let body = axum::body::to_bytes(answer.into_body(), 1 << 20).await;
                let text = String::from_utf8(body.unwrap().to_vec()).unwrap();
                let mut found = 0;
                for line in text.split('\n').filter(|line| !line.starts_with('#')) {
                    if line.is_empty() {
                        continue;
                    }
                    let series = read_series(line);
                    let (labels, value) = series.unwrap_or_else(|| panic!("{line:?}"));
                    assert!(value.is_finite(), "{line:?}");
                    for (_, value) in labels {
                        assert!(!value.contains(char::is_control), "{line:?}");
                        assert!(value.len() <= 128, "{line:?}");
                    }
                    found += 1;
                }
                assert!(found >= 2 && !text.contains("\nfake_metric"), "{text}");
            }
        }
    }
}
