//! TLS beyond loopback: who is answered, with which certificate, and what is refused.

use super::tokens::{new_token, write_tokens};
use super::wait_until_ready;
use gpukill_tests::harness::{CommandOutput, Gateway, TestBox, eventually, give_to_gateway, skip};
use std::fs::Permissions;
use std::io::{Read as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::process::Command;

/// Makes a certificate for localhost. `None` where programs are missing.
fn make_certificate(test_box: &TestBox) -> Option<()> {
    let has = |program: &str| Command::new(program).arg("--help").output().is_ok();
    if !has("openssl") || !has("curl") {
        skip("there is no openssl or no curl");
        return None;
    }
    let mut openssl = Command::new("openssl");
    openssl.args(["req", "-x509", "-newkey", "ec", "-nodes", "-days", "2"]);
    openssl.args(["-pkeyopt", "ec_paramgen_curve:prime256v1"]);
    openssl.args(["-subj", "/CN=localhost"]);
    openssl.args(["-addext", "subjectAltName=DNS:localhost"]);
    openssl.arg("-keyout").arg(test_box.path("key.pem"));
    openssl.arg("-out").arg(test_box.path("cert.pem"));
    let made = CommandOutput::run(&mut openssl);
    assert_eq!(made.code, 0, "{made:?}");
    give_to_gateway(test_box.path("key.pem"));
    // Whatever the umask of the test.
    let mode = Permissions::from_mode(0o644);
    std::fs::set_permissions(test_box.path("cert.pem"), mode).unwrap();
    Some(())
}

fn settings(test_box: &TestBox) -> String {
    let (certificate, key) = (test_box.path("cert.pem"), test_box.path("key.pem"));
    format!("[tls]\ncertificate = {certificate:?}\nkey = {key:?}\n")
}

/// The status that curl gets over TLS, or its exit code.
fn status(test_box: &TestBox, gateway: &Gateway, path: &str, token: &str) -> Result<u16, i32> {
    let mut curl = Command::new("curl");
    curl.args(["-s", "-o", "/dev/null", "-w", "%{http_code}", "-m", "60"]);
    curl.arg("--cacert").arg(test_box.path("cert.pem"));
    curl.args(["--noproxy", "*", "-H"]);
    curl.arg(format!("authorization: Bearer {token}"));
    let port = gateway.address().port();
    let ran = CommandOutput::run(curl.arg(format!("https://localhost:{port}{path}")));
    match ran.code {
        0 => Ok(ran.stdout.parse().expect("a status")),
        code => Err(code),
    }
}

#[test]
fn beyond_loopback_requests_are_encrypted_and_need_a_token() {
    let test_box = TestBox::new();
    if make_certificate(&test_box).is_none() {
        return;
    }
    let _daemon = test_box.start();
    let (token, entry) = new_token(&test_box, &["a"]);
    write_tokens(&test_box, &entry);
    let gateway = Gateway::start_at(&test_box, &settings(&test_box), "0.0.0.0:0");
    eventually("the gateway is ready", || {
        (status(&test_box, &gateway, "/-/ready", "") == Ok(200)).then_some(())
    });
    assert_eq!(status(&test_box, &gateway, "/metrics", ""), Ok(401));
    assert_eq!(status(&test_box, &gateway, "/metrics", &token), Ok(200));
    // Without TLS there is no answer.
    let mut plain = gateway.connect();
    plain
        .write_all(b"GET /-/healthy HTTP/1.1\r\nhost: localhost\r\n\r\n")
        .unwrap();
    let mut answer = Vec::new();
    let _ = plain.read_to_end(&mut answer);
    assert!(!answer.starts_with(b"HTTP"));
    // A new certificate: the old one proves it no more.
    let first = std::fs::read(test_box.path("cert.pem")).unwrap();
    make_certificate(&test_box).unwrap();
    gateway.hang_up();
    eventually("the new certificate is in use", || {
        (status(&test_box, &gateway, "/-/healthy", "") == Ok(200)).then_some(())
    });
    std::fs::write(test_box.path("cert.pem"), first).unwrap();
    assert_eq!(status(&test_box, &gateway, "/-/healthy", ""), Err(60));
}

#[test]
fn handshakes_that_do_not_go_on_make_room() {
    let test_box = TestBox::new();
    if make_certificate(&test_box).is_none() {
        return;
    }
    let _daemon = test_box.start();
    let (token, entry) = new_token(&test_box, &["a"]);
    write_tokens(&test_box, &entry);
    let gateway = Gateway::start_at(&test_box, &settings(&test_box), "0.0.0.0:0");
    eventually("the gateway is ready", || {
        (status(&test_box, &gateway, "/-/ready", "") == Ok(200)).then_some(())
    });
    let _silent: Vec<_> = (0..520).map(|_| gateway.connect()).collect();
    for _ in 0..5 {
        assert_eq!(status(&test_box, &gateway, "/metrics", &token), Ok(200));
    }
}

#[test]
fn loopback_stays_as_it_is() {
    let test_box = TestBox::new();
    if make_certificate(&test_box).is_none() {
        return;
    }
    let _daemon = test_box.start();
    let gateway = Gateway::start(&test_box, &settings(&test_box));
    wait_until_ready(&gateway);
    assert_eq!(gateway.get("/api/v1/snapshot").status, 200);
}

#[test]
fn exposed_gateway_without_tokens_or_certificate_is_refused() {
    let test_box = TestBox::new();
    if make_certificate(&test_box).is_none() {
        return;
    }
    let run = |settings: &str| {
        let mut command = test_box.gateway_command(settings);
        CommandOutput::run(command.args(["--listen", "0.0.0.0:0"]))
    };
    let without_token = run(&settings(&test_box));
    assert_eq!(without_token.code, 1);
    let why = "tokens.toml has no token";
    assert!(without_token.stderr.contains(why), "{without_token:?}");
    std::fs::remove_file(test_box.path("key.pem")).unwrap();
    let without_key = run(&settings(&test_box));
    assert_eq!(without_key.code, 3);
    assert!(
        without_key.stderr.contains("key.pem: No such file"),
        "{without_key:?}"
    );
}
