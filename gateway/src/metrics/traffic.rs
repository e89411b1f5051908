//! The gateway's own metrics: its requests, connections and streams, and its process.

use super::encoder::{Encoder, Kind, Sample};
use super::gpus::{count, from_count, seconds};
use crate::gateway::Gateway;
use crate::live::DroppedFrames;
use crate::upstream::DaemonView;
use axum::http::Method;
use gpukill_proto::units::Timestamp;
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime};

/// The upper bounds of the buckets for the duration of requests, in seconds: from a document in
/// memory to a scan of a month.
const BUCKETS: [(f64, &str); 6] = [
    (0.001, "0.001"),
    (0.01, "0.01"),
    (0.1, "0.1"),
    (1.0, "1.0"),
    (10.0, "10.0"),
    (60.0, "60.0"),
];

/// Counts of the gateway since its start.
#[derive(Debug)]
pub(crate) struct Traffic {
    started: Timestamp,
    requests: Mutex<BTreeMap<RequestKind, Durations>>,
    dropped_frames: DroppedFrames,
}

impl Default for Traffic {
    fn default() -> Self {
        Self {
            started: SystemTime::now().into(),
            requests: Mutex::default(),
            dropped_frames: DroppedFrames::default(),
        }
    }
}

/// The labels of requests. Each has few values.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct RequestKind {
    route: &'static str,
    method: &'static str,
    code: u16,
}

/// How long requests took.
#[derive(Debug, Clone, Copy, Default)]
struct Durations {
    /// The number of requests in each bucket, not those of the buckets below.
    buckets: [u64; BUCKETS.len()],
    requests: u64,
    seconds: f64,
}

impl Traffic {
    /// Counts a request and its duration: of a stream, until it begins.
    pub(crate) fn count_request(
        &self,
        route: &'static str,
        method: &Method,
        code: u16,
        took: Duration,
    ) {
        let kind = RequestKind {
            route,
            method: known_method(method),
            code,
        };
        let took = took.as_secs_f64();
        let mut requests = self.requests.lock().unwrap_or_else(PoisonError::into_inner);
        let durations = requests.entry(kind).or_default();
        durations.requests += 1;
        durations.seconds += took;
        let bounds = BUCKETS.iter().zip(&mut durations.buckets);
        if let Some((_, bucket)) = bounds.into_iter().find(|((bound, _), _)| took <= *bound) {
            *bucket += 1;
        }
    }

    /// Counts snapshots that a slow client did not get.
    pub(crate) fn count_dropped_frames(&self, frames: u64) {
        self.dropped_frames.add(frames);
    }

    /// The number of snapshots that slow clients did not get.
    pub(crate) fn dropped_frames(&self) -> u64 {
        self.dropped_frames.get()
    }
}

/// A method of the standard, or `other`: clients may send any word.
fn known_method(method: &Method) -> &'static str {
    let known = ["GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH"];
    let known = known.into_iter().find(|known| *known == method.as_str());
    known.unwrap_or("other")
}

/// Adds the gateway's own metrics.
pub(super) fn encode(encoder: &mut Encoder, gateway: &Gateway, view: &DaemonView) {
    let traffic = &gateway.traffic;
    encoder.family(
        "gpukill_build_info",
        Kind::Gauge,
        "Version of the gateway as a label; always 1.",
        [Sample::new(
            vec![("version", env!("CARGO_PKG_VERSION").to_owned())],
            1.0,
        )],
    );
    let requests = traffic
        .requests
        .lock()
        .unwrap_or_else(PoisonError::into_inner);
    let requests: Vec<(RequestKind, Durations)> =
        requests.iter().map(|(kind, it)| (*kind, *it)).collect();
    encode_requests(encoder, &requests);
    let streams = gateway
        .settings
        .max_streams
        .saturating_sub(gateway.streams.available_permits());
    let gauges = [
        (
            "gpukill_gateway_connections",
            "Open connections.",
            gateway.slots.count(),
        ),
        ("gpukill_gateway_streams", "Live streams.", streams),
    ];
    for (name, help, value) in gauges {
        encoder.family(name, Kind::Gauge, help, [Sample::plain(from_count(value))]);
    }
    let counters = [
        (
            "gpukill_gateway_connections_refused_total",
            "Connections that were one too many, or that were closed for others.",
            gateway.slots.refused(),
        ),
        (
            "gpukill_gateway_stream_lag_total",
            "Snapshots that slow clients did not get.",
            traffic.dropped_frames(),
        ),
        (
            "gpukill_gateway_daemon_connections_total",
            "Connections to gpukilld for the snapshots.",
            view.connections,
        ),
    ];
    for (name, help, value) in counters {
        encoder.family(
            name,
            Kind::Counter,
            help,
            count(Some(value)).map(Sample::plain),
        );
    }
    encode_process(encoder, traffic.started);
}

fn encode_requests(encoder: &mut Encoder, requests: &[(RequestKind, Durations)]) {
    let labels = |kind: &RequestKind| {
        vec![
            ("route", kind.route.to_owned()),
            ("method", kind.method.to_owned()),
            ("code", kind.code.to_string()),
        ]
    };
    encoder.family(
        "gpukill_gateway_requests_total",
        Kind::Counter,
        "Requests by route, method and status; route is none for paths and hosts that do not exist.",
        requests.iter().filter_map(|(kind, it)| Some(Sample::new(labels(kind), count(Some(it.requests))?))),
    );
    // By route alone: with all labels there would be eight times as many series.
    let mut by_route: BTreeMap<&str, Durations> = BTreeMap::new();
    for (kind, durations) in requests {
        let sum = by_route.entry(kind.route).or_default();
        sum.requests += durations.requests;
        sum.seconds += durations.seconds;
        for (sum, bucket) in sum.buckets.iter_mut().zip(durations.buckets) {
            *sum += bucket;
        }
    }
    let samples = by_route.into_iter().flat_map(|(route, durations)| {
        let route = || ("route", route.to_owned());
        let whole = |value: u64| count(Some(value)).unwrap_or_default();
        let mut below = 0;
        let mut samples = Vec::new();
        for ((_, bound), bucket) in BUCKETS.iter().zip(durations.buckets) {
            below += bucket;
            let labels = vec![route(), ("le", (*bound).to_owned())];
            samples.push(Sample::new(labels, whole(below)).with_suffix("_bucket"));
        }
        let labels = vec![route(), ("le", "+Inf".to_owned())];
        let all = whole(durations.requests);
        samples.push(Sample::new(labels, all).with_suffix("_bucket"));
        samples.push(Sample::new(vec![route()], durations.seconds).with_suffix("_sum"));
        samples.push(Sample::new(vec![route()], all).with_suffix("_count"));
        samples
    });
    encoder.family(
        "gpukill_gateway_request_duration_seconds",
        Kind::Histogram,
        "Time until a request was answered; of a stream, until it began.",
        samples,
    );
}

/// Adds the metrics that every process should have, as far as the kernel says them.
pub(super) fn encode_process(encoder: &mut Encoder, started: Timestamp) {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // The name of the program, in parentheses, may contain blanks.
    let fields = stat
        .rsplit_once(')')
        .map(|(_, rest)| rest.split_whitespace().collect::<Vec<_>>());
    let fields = fields.unwrap_or_default();
    // proc(5) counts from 1, and the first field after the name is number 3.
    let field = |number: usize| fields.get(number - 3)?.parse::<u64>().ok();
    let ticks = count(Some(rustix::param::clock_ticks_per_second())).filter(|ticks| *ticks > 0.0);
    let cpu = field(14)
        .zip(field(15))
        .map(|(user, system)| user.saturating_add(system));
    let cpu = count(cpu).zip(ticks).map(|(cpu, ticks)| cpu / ticks);
    encoder.family(
        "process_cpu_seconds_total",
        Kind::Counter,
        "Processor time of the gateway.",
        cpu.map(Sample::plain),
    );
    let page = u64::try_from(rustix::param::page_size()).ok();
    let resident = field(24)
        .zip(page)
        .map(|(pages, page)| pages.saturating_mul(page));
    let descriptors = std::fs::read_dir("/proc/self/fd")
        .ok()
        .map(|open| from_count(open.count()));
    let gauges = [
        (
            "process_resident_memory_bytes",
            "Resident memory of the gateway.",
            count(resident),
        ),
        (
            "process_open_fds",
            "Open file descriptors of the gateway.",
            descriptors,
        ),
        (
            "process_start_time_seconds",
            "Time at which the gateway started.",
            Some(seconds(started.0)),
        ),
    ];
    for (name, help, value) in gauges {
        encoder.family(name, Kind::Gauge, help, value.map(Sample::plain));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::encoder::TextFormat;

    #[test]
    fn requests_are_counted_by_route_method_and_code() {
        let traffic = Traffic::default();
        for milliseconds in [0, 50, 120_000] {
            let took = Duration::from_millis(milliseconds);
            traffic.count_request("/x", &Method::GET, 200, took);
        }
        let invented = Method::from_bytes(b"EVIL").unwrap();
        traffic.count_request("/x", &invented, 405, Duration::ZERO);
        let requests = traffic.requests.lock().unwrap();
        let requests: Vec<_> = requests.iter().map(|(kind, it)| (*kind, *it)).collect();
        let mut encoder = Encoder::new(TextFormat::Prometheus);
        encode_requests(&mut encoder, &requests);
        let text = encoder.finish();
        let lines: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
        let name = "gpukill_gateway_request_duration_seconds";
        assert_eq!(
            lines[..5],
            [
                "gpukill_gateway_requests_total{route=\"/x\",method=\"GET\",code=\"200\"} 3"
                    .to_owned(),
                "gpukill_gateway_requests_total{route=\"/x\",method=\"other\",code=\"405\"} 1"
                    .to_owned(),
                format!("{name}_bucket{{route=\"/x\",le=\"0.001\"}} 2"),
                format!("{name}_bucket{{route=\"/x\",le=\"0.01\"}} 2"),
                format!("{name}_bucket{{route=\"/x\",le=\"0.1\"}} 3"),
            ]
        );
        assert_eq!(
            lines[8],
            format!("{name}_bucket{{route=\"/x\",le=\"+Inf\"}} 4")
        );
        assert_eq!(lines[9], format!("{name}_sum{{route=\"/x\"}} 120.05"));
        assert_eq!(lines[10], format!("{name}_count{{route=\"/x\"}} 4"));
    }
}
