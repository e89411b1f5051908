//! The gateway and the unit that pushes metrics under their own units: on sockets of systemd, without
//! a network of its own; and without a listener.

use super::InstalledBox;
use gpukill_tests::harness::{binaries, eventually};
use serde_json::Value;
use std::path::Path;

/// Sends its second argument to the port 9836, or to the socket of its third argument, and prints
/// the answer.
const SEND_REQUEST_SCRIPT: &str = "
    use IO::Socket::INET; use IO::Socket::UNIX;
    my $to = $ARGV[1] ? IO::Socket::UNIX->new(Peer => $ARGV[1])
        : IO::Socket::INET->new('127.0.0.1:9836');
    $to or die \"$!\\n\";
    print $to \"GET $ARGV[0] HTTP/1.1\\r\\nHost: localhost\\r\\nConnection: close\\r\\n\\r\\n\";
    print <$to>;";

/// The status and the body of a path.
fn get(it: &InstalledBox, path: &str, socket: &str) -> Option<(u16, String)> {
    let command = ["perl", "-e", SEND_REQUEST_SCRIPT, path, socket];
    let answer = it.run("alice", &command).stdout;
    let (head, body) = answer.split_once("\r\n\r\n")?;
    let status = head.split(' ').nth(1)?.parse().ok()?;
    Some((status, body.to_owned()))
}

/// Installs the program with its users and these units.
fn install(it: &InstalledBox, units: &[&str]) {
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("../systemd/gateway");
    let copy = |file: &str, to: &str| {
        let text = std::fs::read_to_string(sources.join(file)).unwrap();
        it.write(to, &text);
    };
    it.copy_into_box(&binaries().gateway, "/usr/bin/gpukill-gateway");
    let sysusers = "/usr/lib/sysusers.d/gpukill-gateway.conf";
    copy("sysusers.conf", sysusers);
    for unit in units {
        copy(unit, &format!("/etc/systemd/system/{unit}"));
    }
    it.run_as_root(&["systemd-sysusers", sysusers]);
    it.run_as_root(&["systemctl", "daemon-reload"]);
}

/// Listens on port 4318, accepts what arrives, and writes the first line of each request to a file.
const COLLECT_SCRIPT: &str = "
    use IO::Socket::INET;
    my $listener = IO::Socket::INET->new(
        LocalAddr => '127.0.0.1:4318', Listen => 5, ReuseAddr => 1) or die \"$!\\n\";
    while (my $from = $listener->accept) {
        my ($first, $length) = (scalar <$from>, 0);
        while (<$from>) { last if /^\\r\\n/; $length = $1 if /^content-length: (\\d+)/i }
        read($from, my $body, $length);
        print $from \"HTTP/1.1 200 OK\\r\\nContent-Length: 0\\r\\nConnection: close\\r\\n\\r\\n\";
        close $from;
        open(my $pushes, '>>', '/run/pushes') or die; print $pushes $first; close $pushes;
    }";

#[test]
fn metrics_are_pushed_without_rights_and_once_more_at_the_stop() {
    let Some(it) = InstalledBox::with_settings("") else {
        return;
    };
    install(&it, &["gpukill-notify.service"]);
    let settings = "[otlp]\nendpoint = \"http://127.0.0.1:4318\"\ninterval = \"1h\"\n\
                    headers_file = \"otlp-headers\"\n";
    it.write("/etc/gpukill/gateway.toml", settings);
    it.write("/etc/otlp-headers", "Authorization: Bearer abcdef123\n");
    it.write(
        "/etc/systemd/system/gpukill-notify.service.d/headers.conf",
        "[Service]\nLoadCredential=otlp-headers:/etc/otlp-headers\n",
    );
    it.write(
        "/etc/systemd/system/collector.service",
        "[Service]\nExecStart=/usr/bin/perl /run/collect.pl\n",
    );
    it.write("/run/collect.pl", COLLECT_SCRIPT);
    it.run_as_root(&["systemctl", "daemon-reload"]);
    it.run_as_root(&["systemctl", "start", "collector", "gpukill-notify"]);
    let pushes = || {
        let text = std::fs::read_to_string(it.path("/run/pushes")).unwrap_or_default();
        text.lines().map(str::to_owned).collect::<Vec<_>>()
    };
    eventually("the first push", || (pushes().len() == 1).then_some(()));
    assert_eq!(pushes(), ["POST /v1/metrics HTTP/1.1"]);
    let pid = it.unit_property("gpukill-notify", "MainPID");
    let state = it.run_as_root(&["cat", &format!("/proc/{pid}/status")]);
    assert!(state.contains("CapEff:\t0000000000000000"), "{state}");
    it.run_as_root(&["systemctl", "stop", "gpukill-notify"]);
    eventually("the last push", || (pushes().len() == 2).then_some(()));
    assert_eq!(it.unit_property("gpukill-notify", "Result"), "success");
    it.run_as_root(&["systemctl", "stop", "collector"]);
}

#[test]
fn gateway_serves_on_passed_sockets_without_rights() {
    let Some(it) = InstalledBox::with_settings("") else {
        return;
    };
    install(&it, &["gpukill-gateway.service", "gpukill-gateway.socket"]);
    it.run_as_root(&["systemctl", "start", "gpukill-gateway.socket"]);
    // A service that fails at once, however often, does not close the addresses.
    for property in ["TriggerLimitIntervalUSec", "TriggerLimitBurst"] {
        let value = it.unit_property("gpukill-gateway.socket", property);
        assert_eq!(value, "0", "{property}");
    }
    // The first request starts the service.
    let socket = "/run/gpukill-gateway.sock";
    eventually("the gateway is ready", || {
        (get(&it, "/-/ready", "")?.0 == 200).then_some(())
    });
    for socket in ["", socket] {
        let (status, body) = get(&it, "/api/v1/snapshot", socket).expect("an answer");
        let list: Value = serde_json::from_str(&body).expect("JSON");
        assert_eq!((status, &list["schema"]), (200, &1.into()));
    }
    let (_, body) = get(&it, "/api/v1/status", "").expect("an answer");
    let status: Value = serde_json::from_str(&body).expect("JSON");
    assert_eq!(status["user"], "gpukill-gateway");
    assert_eq!(status["rights"], serde_json::json!(["look", "end_own"]));
    let (_, metrics) = get(&it, "/metrics", "").expect("an answer");
    for name in [
        "gpukill_up 1",
        "process_cpu_seconds_total ",
        "process_open_fds ",
    ] {
        assert!(
            metrics.lines().any(|line| line.starts_with(name)),
            "{name}\n{metrics}"
        );
    }
    let pid = it.unit_property("gpukill-gateway", "MainPID");
    let state = it.run_as_root(&["cat", &format!("/proc/{pid}/status")]);
    assert!(state.contains("CapEff:\t0000000000000000"), "{state}");
    let network = |pid: &str| it.run_as_root(&["readlink", &format!("/proc/{pid}/ns/net")]);
    assert_ne!(network(&pid), network("1"));
    // The daemon's directory goes with the daemon; the gateway and its socket stay.
    it.run_as_root(&["systemctl", "stop", "gpukilld"]);
    eventually("the daemon is missed", || {
        (get(&it, "/-/ready", socket)?.0 == 503).then_some(())
    });
    it.run_as_root(&["systemctl", "start", "gpukilld"]);
    eventually("the gateway finds the daemon again", || {
        (get(&it, "/-/ready", socket)?.0 == 200).then_some(())
    });
    it.run_as_root(&[
        "systemctl",
        "stop",
        "gpukill-gateway.socket",
        "gpukill-gateway",
    ]);
    assert!(!it.path(socket).exists());
}
