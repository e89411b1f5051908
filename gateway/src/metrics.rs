//! `/metrics`: everything is made from the newest snapshot at each request, so that what is gone has
//! no series. A value that is unknown or stale has no series either; without current data there are
//! only the gateway's own metrics, and `gpukill_up` is 0.

mod daemon;
mod encoder;
mod gpus;
mod people;
pub(crate) mod traffic;

use crate::document::weighted;
use crate::gateway::Gateway;
use crate::upstream::DaemonView;
use axum::body::Body;
use axum::http::header::{ACCEPT, CONTENT_TYPE, VARY};
use axum::http::{HeaderMap, HeaderValue};
use axum::response::Response;
use encoder::{Encoder, Kind, Sample, TextFormat};

/// The metrics of this moment.
pub(crate) fn respond(gateway: &Gateway, view: &DaemonView, headers: &HeaderMap) -> Response {
    let format = preferred_format(headers);
    let mut response = Response::new(Body::from(render(gateway, view, format)));
    let own = response.headers_mut();
    own.insert(CONTENT_TYPE, HeaderValue::from_static(format.media_type()));
    own.insert(VARY, HeaderValue::from_static("Accept"));
    response
}

fn render(gateway: &Gateway, view: &DaemonView, format: TextFormat) -> String {
    let mut encoder = Encoder::new(format);
    let current = view.current().ok();
    encoder.family(
        "gpukill_up",
        Kind::Gauge,
        "Whether the gateway has current data of gpukilld.",
        [Sample::plain(f64::from(u8::from(current.is_some())))],
    );
    if let Some(frame) = current {
        gpus::encode(&mut encoder, frame);
        people::encode(&mut encoder, frame, gateway.settings.process_metrics);
        daemon::encode_snapshot(&mut encoder, frame);
        if let Some(status) = &view.status {
            daemon::encode_status(&mut encoder, status, frame);
        }
    }
    traffic::encode(&mut encoder, gateway, view);
    encoder.finish()
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
    use crate::settings::Settings;
    use crate::upstream::tests::view;
    use std::collections::BTreeSet;
    use std::sync::Arc;
    use std::time::Duration;
    use tokio::sync::watch;

    fn scrape(view: &DaemonView, format: TextFormat) -> String {
        let (_sender, receiver) = watch::channel(Arc::new(view.clone()));
        let (_stop, stopped) = watch::channel(false);
        let gateway = Gateway::new(Settings::default(), receiver, stopped);
        render(&gateway, view, format)
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
