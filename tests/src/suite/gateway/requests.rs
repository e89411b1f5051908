//! Every route, method, host and origin: what the gateway answers, and with which headers.

use super::tokens::{new_token, write_tokens};
use super::{BusyGateway, busy_box, wait_until_ready};
use gpukill_tests::harness::{Gateway, HttpResponse, TestProcess};
use serde_json::Value;

/// Paths of the API document with values for their parameters, and the status of their answer to
/// POST.
fn paths(gateway: &Gateway, pid: u32) -> Vec<(String, u16)> {
    let description = gateway.get("/api/v1/openapi.json").json();
    let paths = description["paths"].as_object().expect("paths");
    assert!(paths.len() >= 20, "{paths:?}");
    let page = gateway.get("/").text();
    let paths = paths.iter().filter(|(path, _)| *path != "/api/v1/live");
    paths
        .map(|(path, operations)| (with_values(path, pid, &page), post_status(operations)))
        .collect()
}

/// A path with values for its parameters; a page has the names of its files.
fn with_values(path: &str, pid: u32, page: &str) -> String {
    let pid = pid.to_string();
    let (_, file) = page.split_once("/assets/").expect("a page with files");
    let file = file.split('"').next().expect("a name");
    [
        ("{pid}", pid.as_str()),
        ("{process}", pid.as_str()),
        ("{gpu}", "0"),
        ("{user}", "alice"),
        ("{job}", "tree%207"),
        ("{file}", file),
        ("{operation}", "7"),
    ]
    .iter()
    .fold(path.to_owned(), |path, (name, value)| {
        path.replace(name, value)
    })
}

/// The status of the answer of a path with these operations to POST.
fn post_status(operations: &Value) -> u16 {
    let post = &operations["post"];
    match (post.is_null(), post["responses"]["200"].is_null()) {
        (true, _) => 405,
        // Only a problem is described.
        (false, true) => 403,
        // Without a type of its body.
        (false, false) if !post["requestBody"].is_null() => 415,
        (false, false) => 200,
    }
}

fn assert_protected(answer: &HttpResponse, what: &str) {
    let is_file = what.contains(" /assets/") && answer.status == 200;
    let kept = match is_file {
        true => "public, max-age=31536000, immutable",
        false => "no-store",
    };
    for (name, value) in [
        ("x-content-type-options", "nosniff"),
        ("cache-control", kept),
        ("referrer-policy", "no-referrer"),
        ("cross-origin-resource-policy", "same-origin"),
    ] {
        assert_eq!(answer.header(name), Some(value), "{what}: {name}");
    }
    let policy = answer.header("content-security-policy").expect("a policy");
    assert!(policy.starts_with("default-src 'none'"), "{what}: {policy}");
    let is_shared = |name: &str| name.starts_with("access-control-") || name == "set-cookie";
    assert!(
        !answer.headers.iter().any(|(name, _)| is_shared(name)),
        "{what}: {answer:?}"
    );
}

#[test]
fn every_route_checks_host_and_origin() {
    let busy = BusyGateway::start("[http]\nnames = [\"gpu.example.org\"]\n");
    let gateway = &busy.gateway;
    let own = gateway.address().to_string();
    let own_origin = format!("http://{own}");
    let hosts = [
        (own.as_str(), true),
        ("localhost:1234", true),
        ("gpu.example.org", true),
        ("evil.example.org", false),
        ("", false),
    ];
    let mut paths = paths(gateway, busy.process.pid());
    paths.push(("/favicon.ico".to_owned(), 404));
    for (path, post) in &paths {
        let is_route = path != "/favicon.ico";
        for (host, is_own) in hosts {
            // An origin alone does not refuse GET: a browser shows no other site the answer.
            let reads = [
                ("GET", ""),
                ("HEAD", ""),
                ("GET", "http://evil.example.org"),
            ];
            let writes = [
                ("POST", ""),
                ("POST", own_origin.as_str()),
                ("POST", "http://evil.example.org"),
                ("OPTIONS", "null"),
                ("DELETE", "http://localhost:3000"),
            ];
            let is_read = |method: &str| ["GET", "HEAD"].contains(&method);
            for (method, origin) in reads.into_iter().chain(writes) {
                let mut headers = vec![("host", host)];
                headers.extend((!origin.is_empty()).then_some(("origin", origin)));
                let answer = gateway.request(method, path, &headers);
                let is_own_site = origin.is_empty() || origin == own_origin && host == own;
                let expected = match (is_own, is_read(method) || is_own_site, is_route) {
                    (false, _, _) => 421,
                    (true, false, _) => 403,
                    (true, true, false) => 404,
                    // Without a handshake.
                    (true, true, true) if is_read(method) && path == "/ws" => 426,
                    (true, true, true) if is_read(method) => 200,
                    (true, true, true) if method == "POST" => *post,
                    (true, true, true) => 405,
                };
                let what = format!("{method} {path} host {host:?} origin {origin:?}");
                assert_eq!(answer.status, expected, "{what}: {}", answer.text());
                assert_protected(&answer, &what);
                if expected == 405 {
                    let methods = match post {
                        405 => "GET, HEAD",
                        _ => "GET, HEAD, POST",
                    };
                    assert_eq!(answer.header("allow"), Some(methods), "{what}");
                }
                if method == "HEAD" {
                    assert_eq!(answer.text(), "", "{what}");
                }
            }
        }
    }
    // Fetch metadata is checked like the origin.
    for (site, expected) in [("same-origin", 405), ("none", 405), ("cross-site", 403)] {
        let answer = gateway.request("POST", "/metrics", &[("sec-fetch-site", site)]);
        assert_eq!(answer.status, expected, "{site}");
    }
    // A page of another site may link here, and load nothing.
    for (mode, target, expected) in [("navigate", "document", 200), ("no-cors", "image", 403)] {
        let headers = [
            ("sec-fetch-site", "cross-site"),
            ("sec-fetch-mode", mode),
            ("sec-fetch-dest", target),
        ];
        let answer = gateway.request("GET", "/metrics", &headers);
        assert_eq!(answer.status, expected, "{mode}");
        assert_protected(&answer, mode);
    }
}

/// What a caller may do, from the least to the most.
#[derive(Clone, Copy, PartialEq, PartialOrd)]
enum Level {
    Nothing,
    Numbers,
    Look,
    Act,
}

/// What a path needs. A path that is not named here needs a token that sees everything.
fn needed_level(path: &str) -> Level {
    match path {
        "/-/healthy" | "/-/ready" | "/health" => Level::Nothing,
        // The files have no data, and a page that asks for a token needs them.
        path if path.starts_with("/assets/") => Level::Nothing,
        "/metrics" | "/api/v1/gpus" | "/api/realtime" | "/nowhere" => Level::Numbers,
        "/api/v1/openapi.json" | "/api/v1/reference" => Level::Numbers,
        "/api/v1/guard/snooze" | "/api/v1/guard/mode" | "/api/v1/guard/set" => Level::Act,
        path if path.starts_with("/api/v1/kill/") => Level::Act,
        _ => Level::Look,
    }
}

/// One request of the table.
struct TableRequest<'a> {
    method: &'a str,
    path: &'a str,
    /// The first method of the route, and the status of its answer to POST if that is not all;
    /// `None` if there is no such route.
    route: Option<(&'a str, u16)>,
    is_own_host: bool,
    /// Whether no page of another site sends it, as far as the gateway sees.
    is_own_site: bool,
    /// The level of the token; `None` for one that is missing or wrong.
    token: Option<Level>,
}

impl TableRequest<'_> {
    /// The expected status; `None` for an answer of the daemon to what it does not know.
    fn expected(&self) -> Option<u16> {
        let is_read = ["GET", "HEAD"].contains(&self.method);
        let needed = needed_level(self.path);
        let held = self.token.unwrap_or(Level::Nothing);
        let status = match self.route {
            _ if !self.is_own_host => 421,
            _ if !self.is_own_site => 403,
            _ if needed > held && self.token.is_none() => 401,
            _ if needed > held => 403,
            None => 404,
            Some(("post", _)) if self.method != "POST" => 405,
            // Without a type of its body.
            Some(("post", _)) => 415,
            Some((_, post)) if self.method == "POST" => post,
            Some(_) if !is_read => 405,
            Some(_) if self.path == "/ws" => 426,
            Some(_) if self.path.starts_with("/api/v1/kill/report/") => return None,
            Some(_) => 200,
        };
        Some(status)
    }
}

/// Sends every request of the table to a gateway. The last token sees everything.
fn check_table(gateway: &Gateway, pid: u32, tokens: &[(&str, Option<Level>)]) {
    let all = tokens.last().expect("a token").0;
    let description = gateway.get_as("/api/v1/openapi.json", all).json();
    let paths = description["paths"].as_object().expect("paths");
    let page = gateway.get_as("/", all).text();
    let routes = paths.iter().map(|(path, operations)| {
        let method = operations.as_object().expect("operations").keys().next();
        let route = method.map(|method| (method.as_str(), post_status(operations)));
        (with_values(path, pid, &page), route)
    });
    let own = gateway.address().to_string();
    let own_origin = format!("http://{own}");
    let other_origin = Some(("origin", "http://evil.example.org"));
    let rows = [
        ("GET", None, true),
        ("HEAD", None, true),
        // A browser shows no other site the answer.
        ("GET", other_origin, true),
        ("GET", Some(("sec-fetch-site", "cross-site")), false),
        ("POST", None, true),
        ("POST", Some(("origin", own_origin.as_str())), true),
        ("POST", other_origin, false),
        ("POST", Some(("sec-fetch-site", "same-site")), false),
        ("PUT", None, true),
        ("PATCH", None, true),
        ("DELETE", None, true),
        ("OPTIONS", Some(("origin", "null")), false),
    ];
    for (path, route) in routes.chain([("/nowhere".to_owned(), None)]) {
        for host in [own.as_str(), "evil.example.org"] {
            for (method, sent_by, is_own_site) in rows {
                for (token, level) in tokens {
                    let request = TableRequest {
                        method,
                        path: &path,
                        route,
                        is_own_host: host == own,
                        is_own_site,
                        token: *level,
                    };
                    let expected = request.expected();
                    // A stream has no end.
                    if path == "/api/v1/live" && method == "GET" && expected == Some(200) {
                        continue;
                    }
                    let bearer = format!("Bearer {token}");
                    let mut headers = vec![("host", host)];
                    headers.extend(sent_by);
                    headers.extend((!token.is_empty()).then_some(("authorization", &*bearer)));
                    let answer = gateway.request(method, &path, &headers);
                    let what = format!("{method} {path} host {host} {sent_by:?} {token:?}");
                    match expected {
                        Some(expected) => {
                            assert_eq!(answer.status, expected, "{what}: {}", answer.text());
                        }
                        None => assert!(answer.status >= 400, "{what}: {}", answer.text()),
                    }
                    assert_protected(&answer, &what);
                    let has_challenge = answer.header("www-authenticate").is_some();
                    assert_eq!(has_challenge, answer.status == 401, "{what}");
                }
            }
        }
    }
}

#[test]
fn every_route_checks_tokens() {
    let process = TestProcess::start("python");
    let test_box = busy_box(&process);
    let _daemon = test_box.start();
    let (scrapes, entry) = new_token(&test_box, &["prometheus", "--scope", "metrics"]);
    let (looks, other) = new_token(&test_box, &["grafana"]);
    let (late, ended) = new_token(&test_box, &["old", "--expires", "2026-01-01T00:00:00Z"]);
    write_tokens(&test_box, &format!("{entry}{other}{ended}"));
    let gateway = Gateway::start(&test_box, "[access]\nanonymous = \"none\"\n");
    wait_until_ready(&gateway);
    let tokens = [
        ("", None),
        ("0123", None),
        (&*late, None),
        (&*scrapes, Some(Level::Numbers)),
        (&*looks, Some(Level::Look)),
    ];
    check_table(&gateway, process.pid(), &tokens);
    // What acts is no path of this gateway, whatever the token.
    let act = gateway.post("/api/v1/kill/plan", &looks, &serde_json::json!({}));
    assert_eq!(act.status, 404, "{}", act.text());
    let (personal, own) = Gateway::start_personal(&test_box);
    wait_until_ready(&personal);
    let tokens = [
        ("", None),
        ("0123", None),
        (&*looks, None),
        (&*own, Some(Level::Act)),
    ];
    check_table(&personal, process.pid(), &tokens);
}
