//! Tokens: made by a command, read from a file, and what a caller sees with one and without.

use super::{busy_box, wait_until_ready};
use gpukill_tests::harness::{CommandOutput, Gateway, TestBox, TestProcess, eventually};
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;

/// The settings of a gateway with these tokens, and anonymous callers of this level.
fn settings(test_box: &TestBox, anonymous: &str, tokens: &str) -> String {
    write_tokens(test_box, tokens);
    format!("[access]\nanonymous = {anonymous:?}\n")
}

pub(super) fn write_tokens(test_box: &TestBox, tokens: &str) {
    // In one step: the gateway must not read half a file.
    let new = test_box.path("tokens.new");
    std::fs::write(&new, tokens).unwrap();
    std::fs::set_permissions(&new, Permissions::from_mode(0o644)).unwrap();
    std::fs::rename(new, test_box.path("tokens.toml")).unwrap();
}

/// A new token, and its lines for the file.
pub(super) fn new_token(test_box: &TestBox, arguments: &[&str]) -> (String, String) {
    let mut command = std::process::Command::new(test_box.gateway_command("").get_program());
    let made = CommandOutput::run(command.args(["token", "new"]).args(arguments));
    assert_eq!(made.code, 0, "{made:?}");
    let (_, token) = made.stderr.trim().rsplit_once(' ').expect("a token");
    assert!(!made.stdout.contains(token));
    (token.to_owned(), made.stdout)
}

fn status(gateway: &Gateway, path: &str, token: &str) -> u16 {
    let value = format!("Bearer {token}");
    let headers = [("authorization", value.as_str())];
    let headers: &[(&str, &str)] = if token.is_empty() { &[] } else { &headers };
    gateway.request("GET", path, headers).status
}

#[test]
fn token_opens_what_its_scope_says() {
    let process = TestProcess::start("python");
    let test_box = busy_box(&process);
    let _daemon = test_box.start();
    let (looks, entry) = new_token(&test_box, &["grafana"]);
    let (scrapes, other) = new_token(&test_box, &["prometheus", "--scope", "metrics"]);
    let settings = settings(&test_box, "none", &format!("{entry}{other}"));
    let gateway = Gateway::start(&test_box, &settings);
    wait_until_ready(&gateway);
    for (path, of_nobody, of_metrics, of_look) in [
        ("/-/healthy", 200, 200, 200),
        ("/-/ready", 200, 200, 200),
        ("/metrics", 401, 200, 200),
        ("/api/v1/gpus", 401, 200, 200),
        ("/api/v1/openapi.json", 401, 200, 200),
        ("/api/v1/snapshot", 401, 403, 200),
        ("/api/v1/processes", 401, 403, 200),
        ("/api/v1/status", 401, 403, 200),
        ("/nowhere", 401, 404, 404),
    ] {
        assert_eq!(status(&gateway, path, ""), of_nobody, "{path}");
        assert_eq!(status(&gateway, path, &scrapes), of_metrics, "{path}");
        assert_eq!(status(&gateway, path, &looks), of_look, "{path}");
    }
    assert_eq!(status(&gateway, "/api/v1/snapshot", "0123"), 401);
    let refused = gateway.get("/api/v1/snapshot");
    let challenge = refused.header("www-authenticate");
    assert_eq!(challenge, Some("Bearer realm=\"gpukill\""));
    assert_eq!(refused.json()["exit_code"], 4);
}

#[test]
fn numbers_have_no_names() {
    let process = TestProcess::start("python");
    let test_box = busy_box(&process);
    let _daemon = test_box.start();
    let (scrapes, entry) = new_token(&test_box, &["prometheus", "--scope", "metrics"]);
    let mut settings = settings(&test_box, "numbers", &entry);
    settings.push_str("[metrics]\nprocesses = true\n");
    let gateway = Gateway::start(&test_box, &settings);
    wait_until_ready(&gateway);
    let bearer = format!("Bearer {scrapes}");
    let whole = eventually("the process has series", || {
        let whole = gateway.request("GET", "/metrics", &[("authorization", &bearer)]);
        whole.text().contains("gpukill_process_").then_some(whole)
    });
    assert!(whole.text().contains("gpukill_user_"));
    let metrics = gateway.get("/metrics").text();
    assert!(metrics.contains("gpukill_gpu_utilization_ratio{"));
    for name in ["gpukill_user_", "gpukill_process_", "python"] {
        assert!(!metrics.contains(name), "{name}\n{metrics}");
    }
    let with_token = [("authorization", bearer.as_str())];
    for path in ["/api/v1/gpus", "/api/realtime"] {
        for headers in [&with_token[..0], &with_token[..]] {
            let gpus = gateway.request("GET", path, headers);
            assert_eq!(gpus.json()["gpus"][0]["util_pct"], 70);
            assert!(!gpus.text().contains("python"), "{}", gpus.text());
        }
    }
    for path in ["/api/v1/snapshot", "/api/v1/processes", "/api/v1/live"] {
        assert_eq!(gateway.get(path).status, 401, "{path}");
    }
}

#[test]
fn changed_file_is_read_and_one_with_mistakes_is_reported() {
    let test_box = TestBox::new();
    let _daemon = test_box.start();
    let (first, entry) = new_token(&test_box, &["a"]);
    let (second, other) = new_token(&test_box, &["b", "--expires", "2099-01-31T00:00:00Z"]);
    let settings = settings(&test_box, "none", &entry);
    let gateway = Gateway::start(&test_box, &settings);
    assert_eq!(status(&gateway, "/api/v1/openapi.json", &first), 200);
    write_tokens(&test_box, "[[token]]\nname = \"a\"\n");
    gateway.wait_for_message("tokens.toml, line 1: the token has no sha256");
    assert_eq!(status(&gateway, "/api/v1/openapi.json", &first), 200);
    write_tokens(&test_box, &other);
    gateway.hang_up();
    eventually("the new token is known", || {
        (status(&gateway, "/api/v1/openapi.json", &second) == 200).then_some(())
    });
    assert_eq!(status(&gateway, "/api/v1/openapi.json", &first), 401);
}

#[test]
fn file_that_others_may_write_is_refused() {
    let test_box = TestBox::new();
    let settings = settings(&test_box, "none", "");
    let file = test_box.path("tokens.toml");
    std::fs::set_permissions(file, Permissions::from_mode(0o666)).unwrap();
    let mut command = test_box.gateway_command(&settings);
    let refused = CommandOutput::run(command.arg("--check-config"));
    assert_eq!(refused.code, 3);
    let why = "users other than its owner may write it";
    assert!(refused.stderr.contains(why), "{refused:?}");
}
