//! The package of the gateway: its program runs on sockets of systemd, without rights and without a
//! network of its own; it is upgraded, removed and purged. The unit that pushes metrics has no
//! listener.

use super::InstalledBox;
use gpukill_tests::harness::{CommandOutput, eventually, skip};
use serde_json::Value;
use std::path::Path;

const SOCKET_UNIT: &str = "gpukill-gateway.socket";
const SERVICE_UNIT: &str = "gpukill-gateway.service";

/// The highest exposure level of the gateway that `systemd-analyze security` may report.
const MAX_EXPOSURE: f64 = 1.4;

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
    let ran = install(&it, &[&it.package.first_gateway]);
    assert_eq!(ran.code, 0, "{ran:?}");
    let settings = "[otlp]\nendpoint = \"http://127.0.0.1:4318\"\ninterval = \"1h\"\n\
                    headers_file = \"/etc/gpukill/otlp-headers\"\n";
    it.write("/etc/gpukill/gateway.toml", settings);
    let headers = "/etc/gpukill/otlp-headers";
    it.write(headers, "Authorization: Bearer abcdef123\n");
    it.run_as_root(&["chown", "root:gpukill-notify", headers]);
    it.run_as_root(&["chmod", "640", headers]);
    it.write(
        "/etc/systemd/system/collector.service",
        "[Service]\nExecStart=/usr/bin/perl /run/collect.pl\n",
    );
    it.write("/run/collect.pl", COLLECT_SCRIPT);
    it.run_as_root(&["systemctl", "daemon-reload"]);
    it.run_as_root(&["systemctl", "start", "collector"]);
    let started = it.run("root", &["systemctl", "start", "gpukill-notify"]);
    let journal = it.run_as_root(&["journalctl", "--no-pager", "--unit", "gpukill-notify"]);
    assert_eq!(started.code, 0, "{journal}");
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
    assert_credential_is_read(&it);
}

/// gpukill-notify reads a credential wherever systemd gives the user of a unit access to it.
fn assert_credential_is_read(it: &InstalledBox) {
    let settings =
        "[otlp]\nendpoint = \"http://127.0.0.1:4318\"\nheaders_file = \"otlp-headers\"\n";
    it.write("/etc/gpukill/gateway.toml", settings);
    let unit = [
        "systemd-run",
        "--quiet",
        "--wait",
        "--pipe",
        "--uid=gpukill-notify",
        "--property=LoadCredential=otlp-headers:/etc/gpukill/otlp-headers",
    ];
    let run = |command: &[&str]| it.run("root", &[&unit[..], command].concat());
    let script = "cat \"$CREDENTIALS_DIRECTORY/otlp-headers\"";
    if run(&["sh", "-c", script]).code != 0 {
        return skip("systemd cannot give a credential to the user of a unit here");
    }
    let checked = run(&["gpukill-gateway", "notify", "--check-config"]);
    assert_eq!(checked.code, 0, "{checked:?}");
}

#[test]
fn gateway_serves_on_passed_sockets_without_rights() {
    let Some(it) = InstalledBox::with_settings("") else {
        return;
    };
    let ran = install(&it, &[&it.package.first_gateway]);
    assert_eq!(ran.code, 0, "{ran:?}");
    let enabled = it.run_as_root(&["systemctl", "is-enabled", SOCKET_UNIT]);
    assert_eq!(enabled, "enabled\n");
    assert_eq!(it.unit_property(SOCKET_UNIT, "ActiveState"), "active");
    assert_eq!(it.unit_property(SERVICE_UNIT, "ActiveState"), "inactive");
    it.run_as_root(&["gpukill-gateway", "--check-config"]);
    verify_units(&it);
    // A service that fails at once, however often, does not close the addresses.
    for property in ["TriggerLimitIntervalUSec", "TriggerLimitBurst"] {
        let value = it.unit_property(SOCKET_UNIT, property);
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
    assert_upgrade_keeps_addresses(&it);
    assert_removal_and_purge(&it, socket);
}

/// Installs these packages with one dpkg.
fn install(it: &InstalledBox, packages: &[&Path]) -> CommandOutput {
    let mut command = vec!["dpkg", "--no-triggers", "--install"];
    let copies = ["/root/first.deb", "/root/second.deb"];
    for (package, copy) in packages.iter().zip(copies) {
        it.copy_into_box(package, copy);
        command.push(copy);
    }
    it.run("root", &command)
}

fn verify_units(it: &InstalledBox) {
    // Some images have no manual pages.
    let verify = ["systemd-analyze", "verify", "--man=no"];
    let ran = it.run(
        "root",
        &[&verify[..], &[SOCKET_UNIT, SERVICE_UNIT]].concat(),
    );
    let of_ours = ran.stderr.lines().find(|line| line.contains("gpukill"));
    assert_eq!((ran.code, of_ours), (0, None), "{ran:?}");
    let output = it.run_as_root(&["systemd-analyze", "security", SERVICE_UNIT]);
    let last = output.lines().last().unwrap();
    let (_, level) = last.split_once("gpukill-gateway.service: ").expect(last);
    let level: f64 = level.split(' ').next().unwrap().parse().unwrap();
    assert!(level <= MAX_EXPOSURE, "{output}");
}

/// An upgrade restarts the gateway, and leaves its socket open: else another user could listen at
/// its addresses.
fn assert_upgrade_keeps_addresses(it: &InstalledBox) {
    let listening_since =
        |it: &InstalledBox| it.unit_property(SOCKET_UNIT, "ActiveEnterTimestampMonotonic");
    let before = (
        listening_since(it),
        it.unit_property(SERVICE_UNIT, "MainPID"),
    );
    // One package alone does not fit the other.
    let (gateway, daemon) = (&it.package.second_gateway, &it.package.second);
    let ran = install(it, &[gateway]);
    let is_refused = ran.code != 0 && ran.stderr.contains("depends on gpukill (=");
    assert!(is_refused, "{ran:?}");
    let ran = install(it, &[gateway, daemon]);
    assert_eq!(ran.code, 0, "{ran:?}");
    assert_eq!(listening_since(it), before.0);
    assert_ne!(it.unit_property(SERVICE_UNIT, "MainPID"), before.1);
    eventually("the new gateway is ready", || {
        (get(it, "/-/ready", "")?.0 == 200).then_some(())
    });
}

fn assert_removal_and_purge(it: &InstalledBox, socket: &str) {
    let settings = "/etc/gpukill/gateway.toml";
    it.dpkg(&["--remove", "gpukill-gateway"]);
    for gone in [
        socket,
        "/usr/bin/gpukill-gateway",
        "/usr/share/gpukill/grafana",
    ] {
        assert!(!it.path(gone).exists(), "{gone}");
    }
    assert_eq!(get(it, "/-/healthy", ""), None);
    let failed = it.run_as_root(&["systemctl", "list-units", "--failed", "--no-legend"]);
    assert_eq!(failed, "");
    assert!(it.path(settings).exists());
    it.dpkg(&["--purge", "gpukill-gateway"]);
    assert!(!it.path(settings).exists());
    // The daemon and its settings stay.
    assert!(it.path("/etc/gpukill/gpukilld.toml").exists());
    assert_eq!(it.unit_property("gpukilld", "SubState"), "running");
}
