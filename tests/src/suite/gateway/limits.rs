//! Limits of connections and requests, and refused settings.

use super::stand_in_daemon::StandInDaemon;
use super::wait_until_ready;
use gpukill_tests::harness::{CommandOutput, Gateway, TestBox, eventually};
use std::io::{Read as _, Write as _};
use std::time::{Duration, Instant};

#[test]
fn callers_of_one_peer_are_limited() {
    let test_box = TestBox::new();
    let _daemon = test_box.start();
    let gateway = Gateway::start(&test_box, "");
    wait_until_ready(&gateway);
    let mut streams: Vec<_> = (0..32).map(|_| gateway.live()).collect();
    let refused = gateway.get("/api/v1/gpus");
    assert_eq!(
        (refused.status, refused.header("retry-after")),
        (503, Some("5"))
    );
    assert!(refused.text().contains("too many connections"));
    // Health checks take no place.
    assert_eq!(gateway.get("/-/healthy").status, 200);
    streams.truncate(30);
    eventually("there is room again", || {
        (gateway.get("/api/v1/gpus").status == 200).then_some(())
    });
    let metrics = gateway.get("/metrics").text();
    let name = "gpukill_gateway_connections_refused_total ";
    let refused = metrics.lines().find_map(|line| line.strip_prefix(name));
    assert!(refused.is_some_and(|count| count != "0"), "{metrics}");
}

#[test]
fn connections_without_a_request_make_room() {
    let test_box = TestBox::new();
    let _daemon = test_box.start();
    let gateway = Gateway::start(&test_box, "");
    wait_until_ready(&gateway);
    let mut stream = gateway.live();
    let silent: Vec<_> = (0..140).map(|_| gateway.connect()).collect();
    for _ in 0..50 {
        assert_eq!(gateway.get("/api/v1/gpus").status, 200);
    }
    let _ = stream.next_named("snapshot");
    // The oldest were closed.
    let mut first = &silent[0];
    assert_eq!(first.read(&mut [0]).unwrap_or_default(), 0);
}

#[test]
fn daemon_that_does_not_wait_is_asked_with_pauses() {
    let test_box = TestBox::new();
    let daemon = StandInDaemon::start(&test_box.socket(), 1);
    let gateway = Gateway::start(&test_box, "");
    wait_until_ready(&gateway);
    daemon.answer_at_once();
    let first = daemon.snapshot_requests();
    let began = Instant::now();
    eventually("the daemon is asked again", || {
        (daemon.snapshot_requests() >= first + 4).then_some(())
    });
    // At most one of the pauses had begun before.
    assert!(
        began.elapsed() >= Duration::from_secs(2),
        "{:?}",
        began.elapsed()
    );
    assert_eq!(gateway.get("/-/ready").status, 200);
}

#[test]
fn half_a_request_ends_after_ten_seconds() {
    let test_box = TestBox::new();
    let gateway = Gateway::start(&test_box, "");
    let mut slow = gateway.connect();
    let began = Instant::now();
    slow.write_all(b"GET /-/healthy HTTP/1.1\r\nhost: localhost\r\n")
        .unwrap();
    let _ = slow.read_to_end(&mut Vec::new());
    assert!(
        began.elapsed() >= Duration::from_secs(9),
        "{:?}",
        began.elapsed()
    );
    assert_eq!(gateway.get("/-/healthy").status, 200);
}

#[test]
fn hostile_requests_end_only_their_connection() {
    let test_box = TestBox::new();
    let _daemon = test_box.start();
    let gateway = Gateway::start(&test_box, "");
    wait_until_ready(&gateway);
    let long = "x".repeat(100_000);
    let requests = [
        "\0\0\0\0\r\n\r\n".to_owned(),
        "GET\r\n\r\n".to_owned(),
        format!("GET /{long} HTTP/1.1\r\nhost: localhost\r\n\r\n"),
        format!("GET / HTTP/1.1\r\nhost: localhost\r\nx: {long}\r\n\r\n"),
        format!("GET / HTTP/1.1\r\n{}\r\n", "a: b\r\n".repeat(5_000)),
        "POST / HTTP/1.1\r\nhost: localhost\r\ncontent-length: 9999999\r\n\r\n".to_owned(),
        "GET /api/v1/explain/%ff HTTP/1.1\r\nhost: localhost\r\n\r\n".to_owned(),
        "GET /api/v1/gpus?gpu=%ff%00 HTTP/1.1\r\nhost: localhost\r\n\r\n".to_owned(),
        "GET /api/v1/live HTTP/1.1\r\nhost: localhost\r\nlast-event-id: \u{7}\r\n\r\n".to_owned(),
    ];
    for request in &requests {
        let mut stream = gateway.connect();
        // The gateway may close before it has read everything.
        let _ = stream.write_all(request.as_bytes());
        let _ = stream.shutdown(std::net::Shutdown::Write);
        let mut answer = [0; 12];
        let length = stream.read(&mut answer).unwrap_or_default();
        let answer = String::from_utf8_lossy(&answer[..length]).into_owned();
        assert!(
            answer.is_empty() || answer.starts_with("HTTP/1.1 4"),
            "{answer}: {}",
            request.chars().take(80).collect::<String>()
        );
        assert_eq!(gateway.get("/-/ready").status, 200);
    }
}

#[test]
fn wrong_settings_are_refused() {
    let test_box = TestBox::new();
    let run = |settings: &str, arguments: &[&str]| {
        CommandOutput::run(test_box.gateway_command(settings).args(arguments))
    };
    let exposed = run("", &["--listen", "0.0.0.0:0"]);
    assert_eq!(exposed.code, 3);
    assert!(
        exposed.stderr.contains("set behind_proxy = true"),
        "{exposed:?}"
    );
    let wrong = run(
        "[http]\nport = 1\nmax_streams = \"x\"\n",
        &["--check-config"],
    );
    assert_eq!(wrong.code, 3);
    assert!(
        wrong.stderr.contains("line 2: unknown key http.port"),
        "{wrong:?}"
    );
    assert!(
        wrong.stderr.contains("line 3: http.max_streams"),
        "{wrong:?}"
    );
    // Where systemd holds the sockets, a client that waits there would start it again at once.
    let began = Instant::now();
    let mut command = test_box.gateway_command("[http]\nport = 1\n");
    assert_eq!(CommandOutput::run(command.env("LISTEN_FDS", "1")).code, 3);
    assert!(began.elapsed() >= Duration::from_secs(1));
    let defaults = run("", &["--print-default-config"]);
    assert_eq!(defaults.code, 0);
    let checked = run(&defaults.stdout, &["--check-config"]);
    assert_eq!((checked.code, checked.stderr.as_str()), (0, ""));
}
