//! Tests of what is sent, read by a decoder that knows only the wire format of protobuf, and of how
//! answers are understood.

use super::*;
use crate::upstream::tests::view;
use std::collections::BTreeMap;

/// The value of a field.
#[derive(Debug, Clone, Copy)]
enum WireValue<'a> {
    Varint(u64),
    Fixed64(u64),
    Bytes(&'a [u8]),
}

/// The numbers and values of the fields of a message.
fn fields(mut bytes: &[u8]) -> Vec<(u64, WireValue<'_>)> {
    let mut found = Vec::new();
    while !bytes.is_empty() {
        let key = take_varint(&mut bytes);
        let value = match key & 7 {
            0 => WireValue::Varint(take_varint(&mut bytes)),
            1 => {
                let eight = take(&mut bytes, 8).try_into().unwrap();
                WireValue::Fixed64(u64::from_le_bytes(eight))
            }
            2 => {
                let length = usize::try_from(take_varint(&mut bytes)).unwrap();
                WireValue::Bytes(take(&mut bytes, length))
            }
            other => panic!("wire type {other}"),
        };
        found.push((key >> 3, value));
    }
    found
}

fn take<'a>(bytes: &mut &'a [u8], length: usize) -> &'a [u8] {
    let (taken, rest) = bytes.split_at(length);
    *bytes = rest;
    taken
}

fn take_varint(bytes: &mut &[u8]) -> u64 {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let byte = take(bytes, 1)[0];
        value |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return value;
        }
    }
    panic!("a number of more than 64 bits");
}

fn messages(bytes: &[u8], number: u64) -> Vec<&[u8]> {
    let all = fields(bytes).into_iter().filter(|field| field.0 == number);
    let bytes = all.map(|(_, value)| match value {
        WireValue::Bytes(bytes) => bytes,
        other => panic!("field {number} is {other:?}"),
    });
    bytes.collect()
}

fn text(bytes: &[u8], number: u64) -> String {
    let found = messages(bytes, number);
    let text = found.first().copied().unwrap_or_default();
    String::from_utf8(text.to_vec()).unwrap()
}

fn number(bytes: &[u8], number: u64) -> Option<u64> {
    let found = fields(bytes).into_iter().find(|field| field.0 == number);
    found.map(|(_, value)| match value {
        WireValue::Varint(value) | WireValue::Fixed64(value) => value,
        WireValue::Bytes(bytes) => panic!("field {number} is {bytes:?}"),
    })
}

/// The attributes in this field of a message: texts, and numbers as text.
fn attributes(bytes: &[u8], number_of_field: u64) -> BTreeMap<String, String> {
    let all = messages(bytes, number_of_field);
    all.into_iter()
        .map(|attribute| {
            let value = messages(attribute, 2)[0];
            let shown = match number(value, 3) {
                Some(number) => number.to_string(),
                None => text(value, 1),
            };
            (text(attribute, 1), shown)
        })
        .collect()
}

fn channel(headers: &str) -> OtlpChannel {
    let settings = Settings {
        otlp_endpoint: Some(HttpUrl::parse("http://127.0.0.1:4318/otlp").unwrap()),
        otlp_attributes: vec![("host.name".into(), "own-name".into())],
        ..Settings::default()
    };
    let mut channel = OtlpChannel::new(&settings).unwrap().unwrap();
    if !headers.is_empty() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("headers");
        std::fs::write(&file, headers).unwrap();
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o600);
        std::fs::set_permissions(&file, mode).unwrap();
        channel.headers = SecretHeaders::load(file.to_str().unwrap()).unwrap();
    }
    channel
}

/// The metrics of a request by their name.
fn metrics(body: &[u8]) -> BTreeMap<String, Vec<u8>> {
    let &[resource_metrics] = messages(body, 1).as_slice() else {
        panic!("not one resource");
    };
    let &[scope_metrics] = messages(resource_metrics, 2).as_slice() else {
        panic!("not one scope");
    };
    let all = messages(scope_metrics, 2).into_iter();
    all.map(|metric| (text(metric, 1), metric.to_vec()))
        .collect()
}

#[test]
fn request_has_the_fresh_values_and_their_times() {
    let mut channel = channel("");
    let view = view(Duration::from_secs(1));
    let now = SystemTime::now().into();
    let (body, points) = channel.encode(&view, now);
    let resource_metrics = messages(&body, 1)[0];
    assert_eq!(text(resource_metrics, 3), SCHEMA_URL);
    let resource = attributes(messages(resource_metrics, 1)[0], 1);
    assert_eq!(resource["service.name"], "gpukill");
    assert_eq!(resource["service.version"], env!("CARGO_PKG_VERSION"));
    assert_eq!(resource["host.name"], "own-name");
    assert!(!resource["service.instance.id"].is_empty());
    let scope = messages(messages(resource_metrics, 2)[0], 1)[0];
    assert_eq!(text(scope, 1), "gpukill");
    let metrics = metrics(&body);
    let gauge = |name: &str| {
        let gauge = messages(&metrics[name], 5)[0];
        messages(gauge, 1)[0].to_vec()
    };
    let value = |point: &[u8]| number(point, 4).map(f64::from_bits);
    let up = gauge("gpukill.up");
    assert_eq!(value(&up), Some(1.0));
    assert_eq!(number(&up, 3), Some(nanoseconds(now)));
    let busy = gauge("hw.gpu.utilization");
    assert_eq!(value(&busy), Some(0.5));
    assert_eq!(text(&metrics["hw.gpu.utilization"], 3), "1");
    let taken_at = view.frame.as_ref().unwrap().annotated.snapshot.taken_at;
    assert_eq!(number(&busy, 3), Some(nanoseconds(taken_at)));
    assert_eq!(number(&busy, 2), None);
    let attributes = attributes(&busy, 7);
    assert_eq!(attributes["hw.id"], "GPU-1");
    assert_eq!(attributes["hw.gpu.task"], "general");
    assert_eq!(attributes["gpukill.gpu.index"], "0");
    let total = messages(&metrics["hw.gpu.memory.limit"], 7)[0];
    assert_eq!(number(total, 2), Some(2));
    assert_eq!(number(total, 3), None);
    assert_eq!(value(messages(total, 1)[0]), Some(85_899_345_920.0));
    let cpu = messages(&metrics["process.cpu.time"], 7)[0];
    assert_eq!((number(cpu, 2), number(cpu, 3)), (Some(2), Some(1)));
    let start = number(messages(cpu, 1)[0], 2);
    assert_eq!(start, Some(nanoseconds(channel.started)));
    assert!(metrics.contains_key("gpukill.notify.pushes"));
    // The used memory of this view is stale, and nothing is known of the power.
    for name in [
        "hw.gpu.memory.usage",
        "hw.gpu.memory.utilization",
        "hw.power",
    ] {
        assert!(!metrics.contains_key(name), "{name}");
    }
    let counts = metrics.values().map(|metric| {
        let data = [messages(metric, 5), messages(metric, 7)].concat();
        data.iter().map(|it| messages(it, 1).len()).sum::<usize>()
    });
    assert_eq!(counts.sum::<usize>(), points);
}

#[test]
fn without_current_data_only_own_metrics_are_sent() {
    let (body, _) = channel("").encode(&view(Duration::from_secs(60)), Timestamp(1));
    let metrics = metrics(&body);
    let up = messages(&metrics["gpukill.up"], 5)[0];
    assert_eq!(number(messages(up, 1)[0], 4), Some(0));
    let foreign = |name: &String| name.starts_with("hw.") || name.starts_with("gpukill.gpu.");
    let foreign: Vec<_> = metrics.keys().filter(|name| foreign(name)).collect();
    assert_eq!(foreign, Vec::<&String>::new());
}

fn answer(status: u16, media_type: &'static str, body: &'static [u8]) -> HttpAnswer {
    let mut headers = HeaderMap::new();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(media_type));
    headers.insert("retry-after", HeaderValue::from_static("7"));
    HttpAnswer {
        status: StatusCode::from_u16(status).unwrap(),
        headers,
        body: Bytes::from_static(body),
    }
}

#[test]
fn answers_are_understood() {
    let channel = channel("Authorization: Bearer abcdef123\n");
    let url = "http://127.0.0.1:4318/otlp/v1/metrics";
    let refused = |why: &str| PushResult::Refused(format!("cannot push metrics to {url}: {why}"));
    let partial = |what: &str| PushResult::Partial(format!("{url} {what}"));
    let retried = PushResult::Failed(
        format!("cannot push metrics to {url}: the server answers 503 Service Unavailable: wait"),
        Some(Duration::from_secs(7)),
    );
    for (answer, expected) in [
        (answer(200, PROTOBUF, b""), PushResult::Accepted),
        (answer(200, "text/html", b"\x0a\x02"), PushResult::Accepted),
        (answer(204, PROTOBUF, b"\xff"), PushResult::Accepted),
        // Field 1 with nothing rejected and no message.
        (answer(200, PROTOBUF, b"\x0a\x00"), PushResult::Accepted),
        (
            answer(200, PROTOBUF, b"\x0a\x0b\x08\x03\x12\x07too old"),
            partial("rejects 3 of 9 values: too old"),
        ),
        (
            answer(200, PROTOBUF, b"\x0a\x02\x08\x03"),
            partial("rejects 3 of 9 values, and does not say why"),
        ),
        (
            answer(200, PROTOBUF, b"\x0a\x06\x12\x04slow"),
            partial("accepts the metrics, but: slow"),
        ),
        (answer(503, PROTOBUF, b"\x12\x04wait"), retried),
        (
            answer(400, PROTOBUF, b"\x08\x03\x12\x05wrong"),
            refused("the server answers 400 Bad Request"),
        ),
        (
            answer(401, "text/plain", b" no such token: abcdef123\n"),
            refused("the server answers 401 Unauthorized"),
        ),
        (
            answer(404, "text/plain", b" no such token: abcdef123\n"),
            refused("the server answers 404 Not Found: no such token: […]"),
        ),
        (
            answer(500, "text/plain", b"a\x1b[2J"),
            refused("the server answers 500 Internal Server Error: a\\x1b[2J"),
        ),
        (
            answer(302, "text/plain", b"x"),
            refused("the server answers 302 Found: redirects are not followed"),
        ),
    ] {
        assert_eq!(channel.interpret(&answer, 9), expected);
    }
}

#[test]
fn text_about_headers_is_logged_only_without_secret_ones() {
    for (status, is_withheld) in [
        (400, true),
        (401, true),
        (403, true),
        (407, true),
        (404, false),
    ] {
        // A part of the token, which is no word of the header.
        let refused = answer(status, "text/plain", b"unknown token abcdef12");
        let logged = |headers: &str| {
            let result = channel(headers).interpret(&refused, 9);
            result.mistake().unwrap().contains("unknown token")
        };
        let secret = logged("Authorization: Bearer abcdef123\n");
        assert_eq!((secret, logged("")), (!is_withheld, true), "{status}");
    }
}

#[test]
fn mistake_in_other_words_is_logged_once() {
    let outcome = |result, status: u16| PushOutcome {
        result,
        status: StatusCode::from_u16(status).ok(),
    };
    let failed = |what: &str, status| outcome(PushResult::Failed(what.into(), None), status);
    let refused = |what: &str, status| outcome(PushResult::Refused(what.into()), status);
    for (one, other, is_same) in [
        (failed("reason a", 503), failed("reason b", 503), true),
        (failed("a", 503), failed("a", 502), false),
        (refused("a", 400), failed("a", 400), false),
        // Without an answer.
        (failed("for 9 s", 0), failed("for 10 s", 0), true),
        (failed("refused", 0), failed("timed out", 0), false),
        (failed("a", 503), outcome(PushResult::Accepted, 200), false),
    ] {
        assert_eq!(one.is_mistake_of(&other), is_same, "{one:?} {other:?}");
    }
}

#[test]
fn results_are_counted() {
    let mut channel = channel("");
    for result in [
        PushResult::Accepted,
        PushResult::Accepted,
        PushResult::Failed("gone".into(), None),
    ] {
        channel.counts.add(&result);
    }
    let families = channel.families(&view(Duration::from_secs(1)));
    let pushes = families
        .iter()
        .find(|it| it.name == "gpukill_notify_pushes_total");
    let counts: Vec<_> = pushes
        .unwrap()
        .samples
        .iter()
        .map(|sample| format!("{} {}", sample.labels[0].1, sample.value))
        .collect();
    assert_eq!(counts, ["accepted 2", "partial 0", "refused 0", "failed 1"]);
}
