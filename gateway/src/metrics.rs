//! `/metrics`: everything is made from the newest snapshot at each request, so that what is gone has
//! no series. A value that is unknown or stale has no series either; without current data there are
//! only the gateway's own metrics, and `gpukill_up` is 0.

mod counters;
mod daemon;
mod encoder;
mod gpus;
mod jobs;
mod people;
pub(crate) mod traffic;
mod views;

use crate::access::Access;
use crate::document::weighted;
use crate::gateway::Gateway;
use crate::parameters::{Parameter, ParameterKind, Parameters, Place};
use crate::settings::Settings;
use crate::upstream::DaemonView;
use axum::body::Body;
use axum::http::header::{ACCEPT, CONTENT_TYPE, VARY};
use axum::http::{HeaderMap, HeaderValue};
use axum::response::Response;
use encoder::TextFormat;
pub(crate) use encoder::{Encoder, Family, Kind, Sample};
use gpukill_proto::units::Timestamp;
use views::OtherNames;

/// The parameter of [`respond`].
pub(crate) const VIEW: Parameter = Parameter {
    name: "view",
    place: Place::Query,
    kind: ParameterKind::Choice(&["gpukill", "dcgm", "gpumon"]),
    summary: "the names of the metrics: gpukill's own, those of dcgm-exporter, or those of GPM; the \
              last two only in the text format of Prometheus",
};

/// The metrics of this moment, under the names that the request wants; without people and processes
/// for a caller that may see only numbers.
pub(crate) fn respond(
    gateway: &Gateway,
    view: &DaemonView,
    parameters: &Parameters,
    headers: &HeaderMap,
    access: Access,
) -> Response {
    let names = match parameters.text(VIEW.name) {
        Some("dcgm") => Some(OtherNames::Dcgm),
        Some("gpumon") => Some(OtherNames::Gpumon),
        Some(_) | None => None,
    };
    let (format, text) = match names {
        // Their counters have no suffix, which OpenMetrics demands.
        Some(names) => (TextFormat::Prometheus, render_other(view, names)),
        None => {
            let format = preferred_format(headers);
            (format, render(gateway, view, format, access))
        }
    };
    let mut response = Response::new(Body::from(text));
    let own = response.headers_mut();
    own.insert(CONTENT_TYPE, HeaderValue::from_static(format.media_type()));
    own.insert(VARY, HeaderValue::from_static("Accept"));
    response
}

fn render(gateway: &Gateway, view: &DaemonView, format: TextFormat, access: Access) -> String {
    let mut encoder = Encoder::new(format);
    let series = OptionalSeries::from_settings(&gateway.settings).for_access(access);
    encode_daemon(&mut encoder, view, series);
    traffic::encode(&mut encoder, gateway, view);
    encoder.finish()
}

/// The series that are there only for some callers, or if the settings want them.
#[derive(Debug, Clone, Copy)]
pub(crate) struct OptionalSeries {
    people: bool,
    processes: bool,
    jobs: bool,
}

impl OptionalSeries {
    pub(crate) const fn from_settings(settings: &Settings) -> Self {
        Self {
            people: true,
            processes: settings.process_metrics,
            jobs: settings.job_metrics,
        }
    }

    /// Without people, their processes and jobs for a caller that may see only numbers.
    fn for_access(self, access: Access) -> Self {
        let sees_people = access >= Access::Metrics;
        Self {
            people: sees_people,
            processes: sees_people && self.processes,
            jobs: sees_people && self.jobs,
        }
    }
}

/// Adds the metrics of a unit that pushes them: those of the daemon, and those of this process,
/// which started at `started`.
pub(crate) fn encode_pushed(
    encoder: &mut Encoder,
    view: &DaemonView,
    series: OptionalSeries,
    started: Timestamp,
) {
    encode_daemon(encoder, view, series);
    traffic::encode_process(encoder, started);
}

/// Adds everything that is known of the daemon, its GPUs and their processes.
fn encode_daemon(encoder: &mut Encoder, view: &DaemonView, series: OptionalSeries) {
    let current = view.current().ok();
    encode_up(encoder, current.is_some());
    if let Some(frame) = current {
        gpus::encode(encoder, frame);
        if series.people {
            people::encode(encoder, frame, series.processes);
        }
        if series.jobs {
            jobs::encode(encoder, frame);
        }
        daemon::encode_snapshot(encoder, frame);
        if let Some(status) = &view.status {
            daemon::encode_status(encoder, status, frame);
        }
    }
}

/// The metrics of GPUs under the names of another exporter.
fn render_other(view: &DaemonView, names: OtherNames) -> String {
    let mut encoder = Encoder::new(TextFormat::Prometheus);
    let current = view.current().ok();
    // So that no scrape is empty.
    encode_up(&mut encoder, current.is_some());
    if let Some(frame) = current {
        views::encode(&mut encoder, names, frame, view.status.as_deref());
    }
    encoder.finish()
}

fn encode_up(encoder: &mut Encoder, is_up: bool) {
    encoder.family(
        "gpukill_up",
        Kind::Gauge,
        "Whether the gateway has current data of gpukilld.",
        [Sample::plain(f64::from(u8::from(is_up)))],
    );
}

/// The format that `Accept` prefers.
fn preferred_format(headers: &HeaderMap) -> TextFormat {
    let items = headers.get_all(ACCEPT).iter();
    let mut open = 0.0_f32;
    let mut text = 0.0_f32;
    for item in items
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
    {
        match weighted(item) {
            ("application/openmetrics-text", weight) => open = open.max(weight),
            ("text/plain" | "text/*" | "*/*", weight) => text = text.max(weight),
            _ => {}
        }
    }
    match open > 0.0 && open >= text {
        true => TextFormat::OpenMetrics,
        false => TextFormat::Prometheus,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::upstream::tests::view;
    use std::collections::BTreeSet;
    use std::sync::Arc;
    use std::time::Duration;
    use tokio::sync::watch;

    fn scrape(view: &DaemonView, format: TextFormat) -> String {
        let (_sender, receiver) = watch::channel(Arc::new(view.clone()));
        let (_stop, stopped) = watch::channel(false);
        let gateway = Gateway::new(Settings::default(), receiver, stopped);
        render(&gateway, view, format, Access::Look)
    }

    #[test]
    fn only_fresh_values_have_series() {
        let text = scrape(&view(Duration::from_secs(1)), TextFormat::Prometheus);
        let labels = "{uuid=\"GPU-1\",gpu=\"0\"}";
        for line in [
            "gpukill_up 1".to_owned(),
            format!("gpukill_gpu_utilization_ratio{labels} 0.5"),
            format!("gpukill_gpu_memory_total_bytes{labels} 85899345920"),
            format!("gpukill_gpu_stale_readings{labels} 1"),
            "gpukill_gpu_state{uuid=\"GPU-1\",gpu=\"0\",state=\"ok\"} 1".to_owned(),
        ] {
            assert!(text.lines().any(|it| it == line), "{line}\n{text}");
        }
        for name in ["memory_used", "power_watts", "temperature", "processes{"] {
            assert!(
                !text.contains(&format!("gpukill_gpu_{name}")),
                "{name}\n{text}"
            );
        }
    }

    #[test]
    fn without_current_data_there_are_only_own_metrics() {
        let text = scrape(&view(Duration::from_secs(60)), TextFormat::Prometheus);
        assert!(text.contains("\ngpukill_up 0\n"), "{text}");
        assert!(text.contains("\ngpukill_build_info{"), "{text}");
        assert!(!text.contains("gpukill_gpu_"), "{text}");
        assert!(!text.contains("gpukill_snapshot_"), "{text}");
    }

    #[test]
    fn other_names_have_no_series_without_current_data() {
        for names in [OtherNames::Dcgm, OtherNames::Gpumon] {
            let text = render_other(&view(Duration::from_secs(1)), names);
            assert!(text.contains("\ngpukill_up 1\n"), "{text}");
            assert!(
                text.contains("UTIL{") || text.contains("_percent{"),
                "{text}"
            );
            let text = render_other(&view(Duration::from_secs(60)), names);
            assert_eq!(text.lines().last(), Some("gpukill_up 0"), "{text}");
        }
    }

    #[test]
    fn series_are_unique_and_families_are_together() {
        for format in [TextFormat::Prometheus, TextFormat::OpenMetrics] {
            let text = scrape(&view(Duration::from_secs(1)), format);
            let mut families = BTreeSet::new();
            let mut series = BTreeSet::new();
            for line in text.lines() {
                if let Some(family) = line.strip_prefix("# TYPE ") {
                    assert!(families.insert(family.to_owned()), "{line}");
                } else if !line.starts_with('#') {
                    let (name, value) = line.rsplit_once(' ').unwrap();
                    assert!(series.insert(name.to_owned()), "{line}");
                    assert!(value.parse::<f64>().unwrap().is_finite(), "{line}");
                }
            }
            assert!(series.len() > 10);
        }
    }

    #[test]
    fn openmetrics_is_preferred_by_accept() {
        for (accept, expected) in [
            (
                "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.4",
                TextFormat::OpenMetrics,
            ),
            ("application/openmetrics-text", TextFormat::OpenMetrics),
            ("application/openmetrics-text;q=0", TextFormat::Prometheus),
            (
                "text/plain;q=0.5,application/openmetrics-text;q=0.1",
                TextFormat::Prometheus,
            ),
            ("*/*", TextFormat::Prometheus),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(ACCEPT, HeaderValue::from_static(accept));
            assert_eq!(preferred_format(&headers), expected, "{accept}");
        }
        assert_eq!(preferred_format(&HeaderMap::new()), TextFormat::Prometheus);
    }
}
