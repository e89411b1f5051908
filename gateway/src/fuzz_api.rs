//! The fuzz targets of parsers that only this crate sees; `fuzz/targets.rs` lists them.

use crate::parameters::{ParameterKind, Parameters, Place};
use crate::request_check;
use crate::routes::ROUTES;
use axum::http::header::{HOST, ORIGIN, UPGRADE};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Uri};
use gpukill_proto::units::Timestamp;

/// The most headers of a request, as hyper has it.
const MAX_HEADERS: usize = 100;

/// The names that [`gateway_request`] answers for.
const OWN_NAMES: [&str; 4] = ["localhost", "127.0.0.1", "[::1]", "gpu.example.org"];

/// The parameters of every route: the value of those in the path on the first line, the query on the
/// next.
pub fn gateway_query(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let (in_path, query) = text.split_once('\n').unwrap_or(("1", &text));
    for route in ROUTES {
        let path = route.parameters.iter().filter(|it| it.place == Place::Path);
        let path = path.map(|parameter| (parameter.name, in_path));
        match Parameters::parse(route.parameters, path, query) {
            Ok(all) => {
                for parameter in route.parameters {
                    let number = all.number(*parameter);
                    if let ParameterKind::Number { min, max, .. } = parameter.kind {
                        assert!(number.is_none_or(|number| (min..=max).contains(&number)));
                    }
                    let span = all.span(*parameter, Timestamp(1_795_269_751_250));
                    assert!(span.is_err() || span.is_ok_and(|(since, until)| since < until));
                }
            }
            Err(problem) => {
                let body: Result<serde_json::Value, _> = serde_json::from_slice(&problem.body());
                assert!(body.is_ok() && !problem.detail().contains(['\n', '\u{1b}']));
            }
        }
    }
}

/// The head of a request: the method, the target and the headers, one on each line.
pub fn gateway_request(bytes: &[u8]) {
    let mut lines = bytes.split(|byte| *byte == b'\n');
    let method = lines.next().and_then(|it| Method::from_bytes(it).ok());
    let uri = lines.next().and_then(|it| Uri::try_from(it).ok());
    let (Some(method), Some(uri)) = (method, uri) else {
        return;
    };
    let mut request = Request::new(());
    *request.method_mut() = method;
    *request.uri_mut() = uri;
    for line in lines.take(MAX_HEADERS) {
        let mut parts = line.splitn(2, |byte| *byte == b':');
        let name = parts.next().map(HeaderName::from_bytes);
        let value = parts
            .next()
            .map(<[u8]>::trim_ascii)
            .map(HeaderValue::from_bytes);
        if let (Some(Ok(name)), Some(Ok(value))) = (name, value) {
            request.headers_mut().append(name, value);
        }
    }
    let (parts, ()) = request.into_parts();
    if request_check::check(&parts, &[OWN_NAMES[3].to_owned()]).is_ok() {
        assert_own_request(&parts);
    }
}

/// Asserts that the request is for this host, and that no page of another site sent it.
fn assert_own_request(request: &Parts) {
    let hosts = values(&request.headers, HOST.as_str());
    assert_eq!(hosts.len(), 1);
    let host = hosts.concat().to_ascii_lowercase();
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|it| it.is_ascii_digit()) => name,
        _ => &host,
    };
    assert!(OWN_NAMES.contains(&name), "{host}");
    let sites = values(&request.headers, "sec-fetch-site");
    let is_read = matches!(request.method, Method::GET | Method::HEAD);
    if !is_read || request.headers.contains_key(UPGRADE) {
        let is_own = |site: &String| ["same-origin", "none"].contains(&site.as_str());
        assert!(sites.iter().all(is_own));
        for origin in values(&request.headers, ORIGIN.as_str()) {
            let after = origin.split_once("://").map(|(_, authority)| authority);
            assert!(after.is_some_and(|authority| authority.eq_ignore_ascii_case(&host)));
        }
    } else if sites
        .iter()
        .any(|site| ["cross-site", "same-site"].contains(&site.as_str()))
    {
        let is_link =
            |name: &str, value: &str| values(&request.headers, name).iter().any(|it| it == value);
        assert!(is_link("sec-fetch-mode", "navigate") && is_link("sec-fetch-dest", "document"));
    }
}

/// The values of a header.
fn values(headers: &HeaderMap, name: &str) -> Vec<String> {
    let all = headers.get_all(name).iter();
    all.map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned())
        .collect()
}
