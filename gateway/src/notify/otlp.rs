//! Pushes the metrics to a server by OTLP over HTTP. At most one push is under way, and each sends
//! the newest values: a push that failed is not repeated with old ones.

mod conventions;
mod messages;
mod translation;

use super::http_client::{HttpAnswer, HttpClient};
use super::retry::{Backoff, is_retryable, retry_after};
use super::secret_headers::SecretHeaders;
use super::stopped;
use crate::log;
use crate::metrics::{Encoder, Family, Kind, OptionalSeries, Sample, encode_pushed};
use crate::settings::{HttpUrl, METRICS_PATH, Settings};
use crate::upstream::{DaemonView, is_same_reason};
use axum::http::StatusCode;
use axum::http::header::{CONTENT_TYPE, HeaderMap, HeaderValue};
use bytes::Bytes;
use conventions::SCHEMA_URL;
use gpukill_proto::settings::value::format_duration;
use gpukill_proto::text::sanitize;
use gpukill_proto::units::Timestamp;
use messages::{
    InstrumentationScope, KeyValue, MetricsRequest, MetricsResponse, Resource, ResourceMetrics,
    RpcStatus, ScopeMetrics,
};
use prost::Message as _;
use std::mem::discriminant;
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until, timeout};
use translation::{Moments, Translator, count_points};

/// The type of the messages.
const PROTOBUF: &str = "application/x-protobuf";

/// How long the first push waits for the first snapshot.
const FIRST_DATA_TIMEOUT: Duration = Duration::from_secs(10);

/// How long the last push may take.
const LAST_PUSH_TIMEOUT: Duration = Duration::from_secs(5);

/// The longest request, in bytes: what the specification of OTLP recommends.
const MAX_REQUEST: usize = 64 << 20;

/// The longest text of a server that is logged, in bytes.
const MAX_SERVER_TEXT: usize = 300;

/// The answers that may be about headers such as a token.
const SECRET_STATUSES: [StatusCode; 4] = [
    StatusCode::BAD_REQUEST,
    StatusCode::UNAUTHORIZED,
    StatusCode::FORBIDDEN,
    StatusCode::PROXY_AUTHENTICATION_REQUIRED,
];

/// Pushes the metrics.
pub(crate) struct OtlpChannel {
    url: HttpUrl,
    headers: SecretHeaders,
    client: HttpClient,
    interval: Duration,
    series: OptionalSeries,
    resource: Resource,
    /// When this process started.
    started: Timestamp,
    translator: Translator,
    backoff: Backoff,
    counts: PushCounts,
    /// The outcome that was logged last; `None` before the first push.
    logged: Option<PushOutcome>,
}

/// What became of a push.
#[derive(Debug, Clone, PartialEq, Eq)]
enum PushResult {
    /// The server has everything.
    Accepted,
    /// The server answered that it has everything or a part, and what is wrong.
    Partial(String),
    /// The server refused it, and would again.
    Refused(String),
    /// There is no answer, or one that asks to try again, after this time.
    Failed(String, Option<Duration>),
}

impl PushResult {
    /// The mistake; `None` if there is none.
    fn mistake(&self) -> Option<&str> {
        match self {
            Self::Accepted => None,
            Self::Partial(what) | Self::Refused(what) | Self::Failed(what, _) => Some(what),
        }
    }
}

/// What became of a push, and the status of the server's answer if there is one.
#[derive(Debug, Clone)]
struct PushOutcome {
    result: PushResult,
    status: Option<StatusCode>,
}

impl PushOutcome {
    /// Whether this is the mistake of another push again. A server may say it in other words each time;
    /// without an answer, the words are those of this program.
    fn is_mistake_of(&self, other: &Self) -> bool {
        let (Some(one), Some(before)) = (self.result.mistake(), other.result.mistake()) else {
            return false;
        };
        discriminant(&self.result) == discriminant(&other.result)
            && self.status == other.status
            && (self.status.is_some() || is_same_reason(one, before))
    }
}

/// The results of pushes since the start.
#[derive(Debug, Default)]
struct PushCounts {
    accepted: u32,
    partial: u32,
    refused: u32,
    failed: u32,
}

impl PushCounts {
    fn add(&mut self, result: &PushResult) {
        let count = match result {
            PushResult::Accepted => &mut self.accepted,
            PushResult::Partial(_) => &mut self.partial,
            PushResult::Refused(_) => &mut self.refused,
            PushResult::Failed(..) => &mut self.failed,
        };
        *count = count.saturating_add(1);
    }

    fn encode(&self, encoder: &mut Encoder) {
        let counts = [
            ("accepted", self.accepted),
            ("partial", self.partial),
            ("refused", self.refused),
            ("failed", self.failed),
        ];
        encoder.family(
            "gpukill_notify_pushes_total",
            Kind::Counter,
            "Pushes before this one by their result.",
            counts.map(|(result, count)| {
                Sample::new(vec![("result", result.to_owned())], f64::from(count))
            }),
        );
    }
}

impl OtlpChannel {
    /// The channel of these settings; `None` if they name no server.
    ///
    /// # Errors
    /// What is wrong with the headers or with the trusted authorities.
    pub(crate) fn new(settings: &Settings) -> Result<Option<Self>, String> {
        let Some(endpoint) = &settings.otlp_endpoint else {
            return Ok(None);
        };
        let headers = settings.otlp_headers_file.as_deref();
        let headers = headers.map(SecretHeaders::load).transpose();
        let headers = headers.map_err(|mistake| format!("otlp.headers_file: {mistake}"))?;
        let client =
            HttpClient::new(endpoint).map_err(|mistake| format!("otlp.endpoint: {mistake}"))?;
        Ok(Some(Self {
            url: endpoint.join(METRICS_PATH),
            headers: headers.unwrap_or_default(),
            client,
            interval: settings.otlp_interval,
            series: OptionalSeries::from_settings(settings),
            resource: resource(&settings.otlp_attributes),
            started: SystemTime::now().into(),
            translator: Translator::default(),
            backoff: Backoff::default(),
            counts: PushCounts::default(),
            logged: None,
        }))
    }

    /// Pushes until the unit stops, and then once more.
    pub(crate) async fn run(
        mut self,
        mut view: watch::Receiver<Arc<DaemonView>>,
        mut stop: watch::Receiver<bool>,
    ) {
        if !self.url.is_encrypted() && !self.headers.is_empty() && !is_own_host(self.url.host()) {
            log::warn(&format!(
                "the headers of otlp.headers_file are sent to {} unencrypted",
                self.url
            ));
        }
        tokio::select! {
            () = wait_for_data(&mut view) => {}
            () = stopped(&mut stop) => {}
        }
        loop {
            let next = tokio::select! {
                next = self.push(&view) => next,
                () = stopped(&mut stop) => break,
            };
            tokio::select! {
                () = sleep_until(next) => {}
                () = stopped(&mut stop) => break,
            }
        }
        // What happened since the last push would be lost.
        if timeout(LAST_PUSH_TIMEOUT, self.push(&view)).await.is_err() {
            log::warn(&format!(
                "the last metrics could not be pushed to {} within {} s",
                self.url,
                LAST_PUSH_TIMEOUT.as_secs()
            ));
        }
    }

    /// Pushes the newest values, and returns when the next push is due.
    async fn push(&mut self, view: &watch::Receiver<Arc<DaemonView>>) -> Instant {
        let began = Instant::now();
        let view = Arc::clone(&view.borrow());
        let (body, points) = self.encode(&view, SystemTime::now().into());
        let outcome = self.send(body, points).await;
        self.counts.add(&outcome.result);
        self.log(&outcome);
        if let PushResult::Failed(_, retry_after) = outcome.result {
            return Instant::now() + self.backoff.next_pause(retry_after);
        }
        self.backoff.reset();
        began + self.interval
    }

    /// The request with the metrics of this moment, and the number of their values.
    fn encode(&mut self, view: &DaemonView, now: Timestamp) -> (Bytes, usize) {
        let families = self.families(view);
        let snapshot = view.frame.as_ref().map(|frame| &frame.annotated.snapshot);
        let daemon_started = view.status.as_ref().map(|status| status.started_at);
        let moments = Moments {
            now: nanoseconds(now),
            snapshot: snapshot.map_or(0, |snapshot| nanoseconds(snapshot.taken_at)),
            daemon_started: daemon_started.map_or(0, nanoseconds),
            own_started: nanoseconds(self.started),
        };
        let metrics = self.translator.translate(&families, &moments);
        let points = count_points(&metrics);
        let scope = InstrumentationScope {
            name: "gpukill".to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
        };
        let request = MetricsRequest {
            resource_metrics: vec![ResourceMetrics {
                resource: Some(self.resource.clone()),
                scope_metrics: vec![ScopeMetrics {
                    scope: Some(scope),
                    metrics,
                }],
                schema_url: SCHEMA_URL.to_owned(),
            }],
        };
        (request.encode_to_vec().into(), points)
    }

    fn families(&self, view: &DaemonView) -> Vec<Family> {
        Encoder::collect(|encoder| {
            encode_pushed(encoder, view, self.series, self.started);
            self.counts.encode(encoder);
        })
    }

    async fn send(&self, body: Bytes, points: usize) -> PushOutcome {
        let url = &self.url;
        if body.len() > MAX_REQUEST {
            let what = format!("cannot push metrics to {url}: they are longer than 64 MiB");
            let result = PushResult::Refused(what);
            return PushOutcome {
                result,
                status: None,
            };
        }
        let mut headers = self.headers.all().clone();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(PROTOBUF));
        match self.client.post(url, &headers, body).await {
            Ok(answer) => PushOutcome {
                result: self.interpret(&answer, points),
                status: Some(answer.status),
            },
            Err(why) => {
                let why = self.server_text(&why);
                let what = format!("cannot push metrics to {url}: {why}");
                PushOutcome {
                    result: PushResult::Failed(what, None),
                    status: None,
                }
            }
        }
    }

    /// What the server did with a request of so many values.
    fn interpret(&self, answer: &HttpAnswer, points: usize) -> PushResult {
        let url = &self.url;
        let status = answer.status;
        if status.is_success() {
            return self.interpret_success(answer, points);
        }
        // A server may repeat the headers in another form, where it is about them.
        let is_withheld = SECRET_STATUSES.contains(&status) && !self.headers.is_empty();
        let text = error_text(answer);
        let text = match self.server_text(&text) {
            text if text.is_empty() || is_withheld => String::new(),
            text => format!(": {text}"),
        };
        let what = format!("cannot push metrics to {url}: the server answers {status}{text}");
        match is_retryable(status) {
            true => {
                let now = chrono::Utc::now();
                PushResult::Failed(what, retry_after(&answer.headers, now))
            }
            false => PushResult::Refused(what),
        }
    }

    fn interpret_success(&self, answer: &HttpAnswer, points: usize) -> PushResult {
        let url = &self.url;
        // Some servers answer with nothing, or with text.
        let response = match is_protobuf(&answer.headers) {
            true => MetricsResponse::decode(answer.body.clone()).unwrap_or_default(),
            false => MetricsResponse::default(),
        };
        let Some(partial) = response.partial_success else {
            return PushResult::Accepted;
        };
        let why = self.server_text(&partial.error_message);
        match (partial.rejected_data_points, why.is_empty()) {
            (..=0, true) => PushResult::Accepted,
            (..=0, false) => PushResult::Partial(format!("{url} accepts the metrics, but: {why}")),
            (rejected, true) => PushResult::Partial(format!(
                "{url} rejects {rejected} of {points} values, and does not say why"
            )),
            (rejected, false) => PushResult::Partial(format!(
                "{url} rejects {rejected} of {points} values: {why}"
            )),
        }
    }

    /// A text of the server, fit to be logged.
    fn server_text(&self, text: &str) -> String {
        sanitize(self.headers.redact(text.trim()).as_bytes(), MAX_SERVER_TEXT)
    }

    /// Logs an outcome that is another than the last one.
    fn log(&mut self, outcome: &PushOutcome) {
        let before = self.logged.replace(outcome.clone());
        let mistake_before = before.as_ref().and_then(|before| before.result.mistake());
        let is_again = before
            .as_ref()
            .is_some_and(|before| outcome.is_mistake_of(before));
        match (outcome.result.mistake(), mistake_before) {
            (Some(_), _) if is_again => {}
            (Some(what), _) => log::warn(what),
            (None, Some(_)) => log::info(&format!("metrics are pushed to {} again", self.url)),
            (None, None) if before.is_none() => log::info(&format!(
                "pushing metrics to {} every {}",
                self.url,
                format_duration(self.interval)
            )),
            (None, None) => {}
        }
    }
}

/// Waits until there is current data, for a while.
async fn wait_for_data(view: &mut watch::Receiver<Arc<DaemonView>>) {
    let data = view.wait_for(|view| view.current().is_ok());
    // Without data the push says so.
    let _ = timeout(FIRST_DATA_TIMEOUT, data).await;
}

/// What the metrics are about. It stays the same while the daemon is away: series would begin anew.
fn resource(settings: &[(String, String)]) -> Resource {
    let host = rustix::system::uname();
    let host = host.nodename().to_string_lossy().into_owned();
    let known = [
        ("service.name", "gpukill"),
        ("service.version", env!("CARGO_PKG_VERSION")),
        // Prometheus tells hosts apart by it.
        ("service.instance.id", host.as_str()),
        ("host.name", host.as_str()),
    ];
    let is_set = |name: &str| settings.iter().any(|(own, _)| own == name);
    let known = known.into_iter().filter(|(name, _)| !is_set(name));
    let own = settings.iter().map(|(name, value)| (&**name, &**value));
    let all = known.chain(own);
    Resource {
        attributes: all
            .map(|(name, value)| KeyValue::text(name, value))
            .collect(),
    }
}

/// Whether a host is this one: nobody reads what is sent to it.
fn is_own_host(host: &str) -> bool {
    let is_address = host.chars().all(|c| c.is_ascii_digit() || c == '.');
    host == "localhost" || host == "::1" || (is_address && host.starts_with("127."))
}

fn is_protobuf(headers: &HeaderMap) -> bool {
    let value = headers.get(CONTENT_TYPE);
    value.is_some_and(|value| value.as_bytes().starts_with(PROTOBUF.as_bytes()))
}

/// The text of an error; empty if there is none.
fn error_text(answer: &HttpAnswer) -> String {
    if answer.status.is_redirection() {
        return "redirects are not followed".into();
    }
    let body = answer.body.clone();
    match is_protobuf(&answer.headers) {
        true => RpcStatus::decode(body).unwrap_or_default().message,
        false => String::from_utf8_lossy(&body).into_owned(),
    }
}

fn nanoseconds(at: Timestamp) -> u64 {
    u64::try_from(at.0)
        .unwrap_or_default()
        .saturating_mul(1_000_000)
}

#[cfg(test)]
mod tests;
