//! The checks that every request passes before its path is looked at.
//!
//! A web page that a user of this host has open can send requests to loopback addresses. The host
//! of the request shows whether a name of another site points here (DNS rebinding); `Origin` and
//! `Sec-Fetch-Site` show whether a page of another site sent it. Answers carry headers that keep
//! other sites from reading or embedding them, and no CORS header ever.

use crate::problem::Problem;
use axum::http::header::{
    CACHE_CONTROL, CONTENT_LENGTH, CONTENT_SECURITY_POLICY, HOST, HeaderMap, HeaderName,
    HeaderValue, ORIGIN, REFERRER_POLICY, UPGRADE, X_CONTENT_TYPE_OPTIONS,
};
use axum::http::request::Parts;
use axum::http::{Method, StatusCode};

/// The longest body of a request, in bytes.
pub(crate) const MAX_BODY: u64 = 64 << 10;

/// The longest head of a request, in bytes. The reader of requests has the same limit, but looks at it
/// only between two reads.
pub(crate) const MAX_HEAD: usize = 32 << 10;

/// The longest query, in bytes.
const MAX_QUERY: usize = 4 << 10;

/// How the purpose of a load ahead of need begins: `prefetch;prerender`.
const PREFETCH: &[u8] = b"prefetch";

/// The names under which every host reaches itself.
const LOOPBACK_NAMES: [&str; 3] = ["localhost", "127.0.0.1", "[::1]"];

/// Checks a request. `names` are the configured names of the gateway.
pub(crate) fn check(request: &Parts, names: &[String]) -> Result<(), Problem> {
    if head_length(request) > MAX_HEAD {
        let what = format!("the head of the request is longer than {MAX_HEAD} bytes");
        return Err(Problem::new(
            StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
            what,
        ));
    }
    let host = check_host(request, names)?;
    let is_read = matches!(request.method, Method::GET | Method::HEAD);
    if is_prefetch(&request.headers) {
        let what = "this is a load ahead of need (prefetch), which is not answered";
        return Err(Problem::new(StatusCode::FORBIDDEN, what));
    }
    if !is_read || request.headers.contains_key(UPGRADE) {
        check_origin(&request.headers, host)?;
    } else if is_cross_site_load(&request.headers) {
        return Err(cross_site());
    }
    if request
        .uri
        .query()
        .is_some_and(|query| query.len() > MAX_QUERY)
    {
        let what = format!("the query is longer than {MAX_QUERY} bytes");
        return Err(Problem::new(StatusCode::URI_TOO_LONG, what));
    }
    let length = request.headers.get(CONTENT_LENGTH);
    let length = length.and_then(|it| it.to_str().ok()?.parse::<u64>().ok());
    if length.is_some_and(|length| length > MAX_BODY) {
        let what = format!("the body is longer than {MAX_BODY} bytes");
        return Err(Problem::new(StatusCode::PAYLOAD_TOO_LARGE, what));
    }
    Ok(())
}

/// The length of the head without blanks that do not matter.
fn head_length(request: &Parts) -> usize {
    let target = request.uri.path_and_query();
    let target = target.map_or(0, |target| target.as_str().len());
    let headers = request.headers.iter();
    let headers = headers.map(|(name, value)| name.as_str().len() + value.len() + ": \r\n".len());
    request.method.as_str().len() + target + headers.sum::<usize>()
}

/// Refuses a request for another host, and returns the host. Any port is right: SSH tunnels end at
/// a port of the client's choice, and a name that another site controls is no loopback name.
fn check_host<'a>(request: &'a Parts, names: &[String]) -> Result<&'a str, Problem> {
    let misdirected = || {
        Problem::new(
            StatusCode::MISDIRECTED_REQUEST,
            "this gateway does not answer for that host name",
        )
        .with_hint("use localhost, or add the name to http.names in /etc/gpukill/gateway.toml")
    };
    let is_own = |host: &str| {
        let name = without_port(host);
        let is_loopback = LOOPBACK_NAMES
            .iter()
            .any(|own| own.eq_ignore_ascii_case(name));
        is_loopback || names.iter().any(|own| own.eq_ignore_ascii_case(name))
    };
    let mut hosts = request.headers.get_all(HOST).iter();
    let host = hosts.next().and_then(|host| host.to_str().ok());
    let host = host.filter(|&host| is_own(host)).ok_or_else(misdirected)?;
    // A request line can name a host too, and a second header is a trick.
    let authority = request.uri.authority();
    let is_contradicted = authority.is_some_and(|it| !it.as_str().eq_ignore_ascii_case(host));
    match hosts.next().is_some() || is_contradicted {
        true => Err(misdirected()),
        false => Ok(host),
    }
}

/// `localhost` of `localhost:9836`, `[::1]` of `[::1]:9836`.
fn without_port(host: &str) -> &str {
    let is_port = |text: &str| !text.is_empty() && text.bytes().all(|it| it.is_ascii_digit());
    match host.rsplit_once(':') {
        Some((name, port)) if is_port(port) && (!name.contains(':') || name.ends_with(']')) => name,
        _ => host,
    }
}

/// Whether a page of another site, or of another port of this host, loads something from here. It
/// cannot read the answer, but could make the daemon scan and read all the time. A link that a person
/// follows is no such load.
fn is_cross_site_load(headers: &HeaderMap) -> bool {
    let has = |name: &str, value: &str| headers.get_all(name).iter().any(|it| it == value);
    let is_link = has("sec-fetch-mode", "navigate") && has("sec-fetch-dest", "document");
    let is_other = has("sec-fetch-site", "cross-site") || has("sec-fetch-site", "same-site");
    is_other && !is_link
}

/// Whether a browser loads a page before a person follows the link to it. By speculation rules a page
/// of another site causes such loads, and they say `Sec-Fetch-Site: none`.
fn is_prefetch(headers: &HeaderMap) -> bool {
    let values = ["sec-purpose", "purpose"].map(|name| headers.get_all(name).iter());
    let mut values = values.into_iter().flatten();
    values.any(|value| {
        let word = value.as_bytes().get(..PREFETCH.len());
        word.is_some_and(|word| word.eq_ignore_ascii_case(PREFETCH))
    })
}

fn cross_site() -> Problem {
    Problem::new(
        StatusCode::FORBIDDEN,
        "a page of another site sent this request",
    )
}

/// Refuses a request that a page of another site sent. Clients other than browsers send neither
/// header.
fn check_origin(headers: &HeaderMap, host: &str) -> Result<(), Problem> {
    let mut sites = headers.get_all("sec-fetch-site").iter();
    let is_own_site = |site: &HeaderValue| site == "same-origin" || site == "none";
    if !sites.all(is_own_site) {
        return Err(cross_site());
    }
    let mut origins = headers.get_all(ORIGIN).iter();
    let is_own_origin = |origin: &HeaderValue| {
        let origin = origin.to_str().ok();
        let authority = origin.and_then(|origin| {
            let after = origin.strip_prefix("http://");
            after.or_else(|| origin.strip_prefix("https://"))
        });
        authority.is_some_and(|authority| authority.eq_ignore_ascii_case(host))
    };
    match origins.all(is_own_origin) {
        true => Ok(()),
        false => Err(cross_site()),
    }
}

/// Adds the headers that every answer has; the page and its files have a policy of their own.
pub(crate) fn protect(headers: &mut HeaderMap) {
    let all = [
        (
            CONTENT_SECURITY_POLICY,
            "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
        ),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (REFERRER_POLICY, "no-referrer"),
        (
            HeaderName::from_static("cross-origin-resource-policy"),
            "same-origin",
        ),
        (
            HeaderName::from_static("cross-origin-opener-policy"),
            "same-origin",
        ),
        // Command lines of users do not belong on the disk of a browser.
        (CACHE_CONTROL, "no-store"),
    ];
    for (name, value) in all {
        headers
            .entry(name)
            .or_insert(HeaderValue::from_static(value));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::Request;
    use proptest::prelude::*;

    fn status(method: &str, uri: &str, headers: &[(&str, &str)]) -> u16 {
        let mut request = Request::builder().method(method).uri(uri);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let (parts, ()) = request.body(()).unwrap().into_parts();
        let names = ["gpu.example.org".to_owned()];
        match check(&parts, &names) {
            Ok(()) => 200,
            Err(problem) => problem.into_response().status().as_u16(),
        }
    }

    #[test]
    fn only_own_names_are_answered() {
        for (host, expected) in [
            ("localhost", 200),
            ("LocalHost:9836", 200),
            ("127.0.0.1:9836", 200),
            ("[::1]:9836", 200),
            ("[::1]", 200),
            ("localhost:8080", 200),
            ("gpu.example.org", 200),
            ("gpu.example.org:443", 200),
            ("evil.example.org:9836", 421),
            ("localhost.evil.example.org", 421),
            ("localhost:", 421),
            ("localhost:x", 421),
            ("127.0.0.1:9836:1", 421),
            ("::1:9836", 421),
            ("127.0.0.2", 421),
            ("localhost.", 421),
            ("user@localhost", 421),
            ("", 421),
        ] {
            assert_eq!(status("GET", "/", &[("host", host)]), expected, "{host}");
        }
        assert_eq!(status("GET", "/", &[]), 421);
        let two = [("host", "localhost"), ("host", "evil.example.org")];
        assert_eq!(status("GET", "/", &two), 421);
        let host = [("host", "localhost")];
        assert_eq!(status("GET", "http://localhost/", &host), 200);
        assert_eq!(status("GET", "http://evil.example.org/", &host), 421);
    }

    #[test]
    fn other_sites_may_only_send_reads() {
        let site = |value| ("sec-fetch-site", value);
        let origin = |value| ("origin", value);
        let cases: [(&[(&str, &str)], u16); 9] = [
            (&[], 200),
            (&[site("same-origin")], 200),
            (&[site("none")], 200),
            (&[site("same-site")], 403),
            (&[site("cross-site")], 403),
            (&[origin("http://localhost:9836")], 200),
            (&[origin("http://localhost:3000")], 403),
            (&[origin("null")], 403),
            (
                &[site("same-origin"), origin("https://evil.example.org")],
                403,
            ),
        ];
        for (more, expected) in cases {
            let headers = [&[("host", "localhost:9836")][..], more].concat();
            for method in ["POST", "PUT", "DELETE", "OPTIONS"] {
                assert_eq!(status(method, "/", &headers), expected, "{method} {more:?}");
            }
            let is_load = more.contains(&site("cross-site")) || more.contains(&site("same-site"));
            let read = if is_load { 403 } else { 200 };
            assert_eq!(status("GET", "/", &headers), read, "{more:?}");
            let upgrade = [&headers[..], &[("upgrade", "websocket")]].concat();
            assert_eq!(status("GET", "/", &upgrade), expected, "{more:?}");
        }
    }

    #[test]
    fn pages_of_other_sites_may_only_link() {
        let host = ("host", "localhost:9836");
        let other = ["cross-site", "same-site"].map(|site| ("sec-fetch-site", site));
        for (mode, target, expected) in [
            ("navigate", "document", 200),
            ("navigate", "iframe", 403),
            ("no-cors", "image", 403),
            ("cors", "empty", 403),
        ] {
            let fetch = [("sec-fetch-mode", mode), ("sec-fetch-dest", target)];
            for site in other {
                let headers = [&[host, site][..], &fetch].concat();
                assert_eq!(status("GET", "/", &headers), expected, "{mode} {target}");
            }
            let own = [&[host, ("sec-fetch-site", "same-origin")][..], &fetch].concat();
            assert_eq!(status("GET", "/", &own), 200, "{mode} {target}");
        }
    }

    #[test]
    fn loads_ahead_of_need_are_refused() {
        let host = ("host", "localhost:9836");
        let navigation = [
            ("sec-fetch-site", "none"),
            ("sec-fetch-mode", "navigate"),
            ("sec-fetch-dest", "document"),
        ];
        for (name, purpose, expected) in [
            ("sec-purpose", "prefetch", 403),
            ("sec-purpose", "prefetch;prerender", 403),
            ("sec-purpose", "Prefetch;anonymous-client-ip", 403),
            ("purpose", "prefetch", 403),
            ("purpose", "other", 200),
            ("purpose", "", 200),
        ] {
            let headers = [&[host, (name, purpose)][..], &navigation].concat();
            assert_eq!(status("GET", "/", &headers), expected, "{name} {purpose}");
        }
    }

    proptest! {
        #[test]
        fn only_own_names_pass_among_arbitrary_hosts(host in "[!-~]{0,30}") {
            let name = host.split(':').next().unwrap().to_ascii_lowercase();
            let is_own = ["localhost", "127.0.0.1", "gpu.example.org"].contains(&&*name)
                || host.starts_with("[::1]");
            if !is_own {
                prop_assert_eq!(status("GET", "/", &[("host", &host)]), 421);
            }
        }
    }

    #[test]
    fn long_queries_heads_and_bodies_are_refused() {
        let host = ("host", "localhost");
        let text = "x".repeat(MAX_HEAD / 2);
        let half = text.as_str();
        assert_eq!(status("GET", "/", &[host, ("a", half)]), 200);
        assert_eq!(status("GET", "/", &[host, ("a", half), ("b", half)]), 431);
        let query = format!("/?a={}", "x".repeat(MAX_QUERY));
        assert_eq!(status("GET", &query, &[host]), 414);
        assert_eq!(
            status("POST", "/", &[host, ("content-length", "65537")]),
            413
        );
        assert_eq!(
            status("POST", "/", &[host, ("content-length", "65536")]),
            200
        );
    }
}
