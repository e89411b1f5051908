//! Every route, method, host and origin: what the gateway answers, and with which headers.

use super::{busy_box, wait_until_ready};
use gpukill_tests::harness::{Gateway, HttpResponse, TestProcess};

/// Paths of the API document with values for their parameters, and the type of their answer.
fn paths(gateway: &Gateway, pid: u32) -> Vec<String> {
    let description = gateway.get("/api/v1/openapi.json").json();
    let paths = description["paths"].as_object().expect("paths");
    assert!(paths.len() >= 20, "{paths:?}");
    let paths = paths.keys().filter(|path| *path != "/api/v1/live");
    paths
        .map(|path| path.replace("{pid}", &pid.to_string()))
        .collect()
}

fn assert_protected(answer: &HttpResponse, what: &str) {
    for (name, value) in [
        ("x-content-type-options", "nosniff"),
        ("cache-control", "no-store"),
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
    let process = TestProcess::start("python");
    let test_box = busy_box(&process);
    let _daemon = test_box.start();
    let gateway = Gateway::start(&test_box, "[http]\nnames = [\"gpu.example.org\"]\n");
    wait_until_ready(&gateway);
    let own = gateway.address().to_string();
    let own_origin = format!("http://{own}");
    let hosts = [
        (own.as_str(), true),
        ("localhost:1234", true),
        ("gpu.example.org", true),
        ("evil.example.org", false),
        ("", false),
    ];
    let mut paths = paths(&gateway, process.pid());
    paths.extend(["/".to_owned(), "/favicon.ico".to_owned()]);
    for path in &paths {
        let is_route = path.len() > 1 && path != "/favicon.ico";
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
                    (true, true, true) if is_read(method) => 200,
                    (true, true, true) => 405,
                };
                let what = format!("{method} {path} host {host:?} origin {origin:?}");
                assert_eq!(answer.status, expected, "{what}: {}", answer.text());
                assert_protected(&answer, &what);
                if expected == 405 {
                    assert_eq!(answer.header("allow"), Some("GET, HEAD"), "{what}");
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
