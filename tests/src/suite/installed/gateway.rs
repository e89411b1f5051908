//! The gateway under its own units: on sockets of systemd, without a network of its own.

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

#[test]
fn gateway_serves_on_passed_sockets_without_rights() {
    let Some(it) = InstalledBox::with_settings("") else {
        return;
    };
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("../systemd/gateway");
    let copy = |file: &str, to: &str| {
        let text = std::fs::read_to_string(sources.join(file)).unwrap();
        it.write(to, &text);
    };
    it.copy_into_box(&binaries().gateway, "/usr/bin/gpukill-gateway");
    let sysusers = "/usr/lib/sysusers.d/gpukill-gateway.conf";
    copy("sysusers.conf", sysusers);
    for unit in ["gpukill-gateway.service", "gpukill-gateway.socket"] {
        copy(unit, &format!("/etc/systemd/system/{unit}"));
    }
    it.run_as_root(&["systemd-sysusers", sysusers]);
    it.run_as_root(&["systemctl", "daemon-reload"]);
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
