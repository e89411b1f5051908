//! Metrics that `gpukill-gateway notify` pushes: the values of `/metrics`, whatever the server
//! answers, and until the end.

use super::{busy_box, wait_until_ready};
use gpukill_tests::harness::{
    CommandOutput, Gateway, OtlpPoint, OtlpPush, OtlpServer, RunningProgram, TestBox, TestProcess,
    gateway_uid, give_to_gateway,
};
use rustix::process::Signal;
use std::collections::BTreeMap;
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;
use std::time::Duration;

fn settings(server: &OtlpServer, more: &str) -> String {
    format!("[otlp]\nendpoint = \"http://{}\"\n{more}", server.address())
}

fn start_notify(test_box: &TestBox, settings: &str) -> RunningProgram {
    RunningProgram::start(&mut test_box.notify_command(settings))
}

/// The lines of standard error up to the first that contains this text, and that line.
fn error_lines_until(program: &RunningProgram, text: &str) -> Vec<String> {
    let mut lines = Vec::new();
    loop {
        lines.push(program.next_error_line());
        if lines.last().is_some_and(|line| line.contains(text)) {
            return lines;
        }
    }
}

/// The name of the value in `/metrics`; `None` for values that are made from others.
fn prometheus_name(point: &OtlpPoint) -> Option<String> {
    let task = point.attributes.get("hw.gpu.task").map(String::as_str);
    let name = match (point.name.as_str(), task) {
        ("hw.gpu.utilization", Some("general")) => "gpukill_gpu_utilization_ratio",
        ("hw.gpu.utilization", Some("encoder")) => "gpukill_gpu_encoder_utilization_ratio",
        ("hw.gpu.utilization", Some("decoder")) => "gpukill_gpu_decoder_utilization_ratio",
        ("hw.gpu.memory.limit", _) => "gpukill_gpu_memory_total_bytes",
        ("hw.gpu.memory.usage", _) => "gpukill_gpu_memory_used_bytes",
        ("hw.temperature", _) => "gpukill_gpu_temperature_celsius",
        ("hw.power", _) => "gpukill_gpu_power_watts",
        ("hw.energy", _) => "gpukill_gpu_energy_joules_total",
        ("hw.errors", _) => "gpukill_gpu_ecc_errors_total",
        ("hw.fan.speed_ratio", _) => "gpukill_gpu_fan_speed_ratio",
        ("hw.fan.speed", _) => "gpukill_gpu_fan_speed_rpm",
        ("hw.status" | "hw.gpu.memory.utilization", _) => return None,
        // As Prometheus translates names and units.
        (name, _) => {
            let unit = match point.unit.as_str() {
                "" | "{file_descriptor}" => "",
                "1" => "_ratio",
                "By" => "_bytes",
                "Cel" => "_celsius",
                "Hz" => "_hertz",
                "J" => "_joules",
                "W" => "_watts",
                "s" => "_seconds",
                other => panic!("{name} has the unit {other}"),
            };
            let total = match point.is_monotonic {
                Some(true) => "_total",
                Some(false) | None => "",
            };
            return Some(format!("{}{unit}{total}", name.replace('.', "_")));
        }
    };
    Some(name.to_owned())
}

/// The values of each metric that is made from the snapshot, sorted.
fn snapshot_values(
    all: impl IntoIterator<Item = (String, String)>,
) -> BTreeMap<String, Vec<String>> {
    let starts = [
        "gpukill_gpu_",
        "gpukill_user_",
        "gpukill_snapshot_",
        "gpukill_backend_",
        "gpukill_polls_total",
        "gpukill_guard_mode",
    ];
    let mut values: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (name, value) in all {
        if starts.iter().any(|start| name.starts_with(start)) {
            values.entry(name).or_default().push(value);
        }
    }
    for values in values.values_mut() {
        values.sort_unstable();
    }
    values
}

fn scraped_values(gateway: &Gateway) -> BTreeMap<String, Vec<String>> {
    let text = gateway.get("/metrics").text();
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    snapshot_values(lines.map(|line| {
        let (series, value) = line.rsplit_once(' ').expect("a value");
        let name = series.split('{').next().expect("a name");
        (name.to_owned(), value.to_owned())
    }))
}

fn pushed_values(push: &OtlpPush) -> BTreeMap<String, Vec<String>> {
    let points = push.points.iter();
    snapshot_values(
        points.filter_map(|point| Some((prometheus_name(point)?, point.value.to_string()))),
    )
}

#[test]
fn pushed_values_are_those_of_the_metrics_page() {
    let process = TestProcess::start("python");
    let test_box = busy_box(&process);
    // Both programs have the same snapshot for a while.
    let mut daemon = test_box.daemon_command();
    daemon.env("GPUKILLD_DAEMON_POLL_INTERVAL", "10s");
    let _daemon = test_box.start_with(&mut daemon);
    let server = OtlpServer::start();
    let settings = settings(&server, "interval = \"1s\"\n");
    let gateway = Gateway::start(&test_box, &settings);
    let _notify = start_notify(&test_box, &settings);
    wait_until_ready(&gateway);
    let taken_at = "gpukill_snapshot_timestamp_seconds";
    let push = server.next_matching("the snapshot of the gateway", |push| {
        let (pushed, scraped) = (pushed_values(push), scraped_values(&gateway));
        let is_same = pushed.get(taken_at)? == scraped.get(taken_at)?;
        is_same.then(|| {
            assert_eq!(pushed, scraped);
            push.clone()
        })
    });
    assert_eq!(push.request, "POST /v1/metrics");
    assert_eq!(push.headers["content-type"], "application/x-protobuf");
    assert_eq!(push.resource["service.name"], "gpukill");
    assert_eq!(push.resource["service.version"], env!("CARGO_PKG_VERSION"));
    let status = test_box.json(&["status", "-o", "json"]);
    let host = status["host"].as_str().map(str::to_owned);
    assert_eq!(push.resource.get("host.name"), host.as_ref());
    let busy = push.named("hw.gpu.utilization");
    assert!(busy[0].attributes["hw.id"].starts_with("GPU-"), "{busy:?}");
    let holder = &push.named("gpukill.user.memory")[0];
    assert!(holder.attributes.contains_key("user.name"), "{holder:?}");
    for point in &push.points {
        let is_gauge = point.is_monotonic.is_none();
        assert_eq!(point.start == 0, is_gauge, "{point:?}");
        assert!(point.start <= point.time, "{point:?}");
    }
}

#[test]
fn without_the_daemon_there_are_no_gpus() {
    let process = TestProcess::start("python");
    let test_box = busy_box(&process);
    let daemon = test_box.start();
    let server = OtlpServer::start();
    let _notify = start_notify(&test_box, &settings(&server, "interval = \"1s\"\n"));
    let is_up = |push: &OtlpPush, up: f64| {
        let value = push.value("gpukill.up").expect("a value");
        ((value - up).abs() < 0.1).then(|| push.clone())
    };
    let polls_started = |push: &OtlpPush| push.named("gpukill.polls")[0].start;
    let before = server.next_matching("the daemon", |push| is_up(push, 1.0));
    assert!(!before.named("hw.gpu.utilization").is_empty());
    daemon.kill();
    let away = server.next_matching("no daemon", |push| is_up(push, 0.0));
    let foreign = away
        .points
        .iter()
        .find(|point| point.name.starts_with("hw.") || point.name.starts_with("gpukill.gpu."));
    assert!(foreign.is_none(), "{foreign:?}");
    assert_eq!(away.resource, before.resource);
    let _daemon = test_box.start();
    let after = server.next_matching("the next daemon", |push| is_up(push, 1.0));
    assert!(!after.named("hw.gpu.utilization").is_empty());
    // Its counters begin anew.
    assert!(polls_started(&after) > polls_started(&before));
}

#[test]
fn push_is_repeated_when_the_server_asks_for_that() {
    let test_box = TestBox::new();
    let _daemon = test_box.start();
    let server = OtlpServer::start();
    server.answer_with("503 Service Unavailable\r\nretry-after: 2", "try later");
    let notify = start_notify(&test_box, &settings(&server, "interval = \"1h\"\n"));
    let first = server.next_push();
    let lines = error_lines_until(&notify, "cannot push metrics to ");
    let line = &lines[lines.len() - 1];
    let reason = "the server answers 503 Service Unavailable: try later";
    assert!(line.ends_with(reason), "{line}");
    let second = server.next_push();
    let pause = second.at.duration_since(first.at);
    assert!(pause >= Duration::from_secs(2), "{pause:?}");
    let pushes = second.named("gpukill.notify.pushes");
    let failed = pushes
        .iter()
        .find(|it| it.attributes["gpukill.result"] == "failed");
    assert_eq!(failed.map(|it| it.value.to_string()).as_deref(), Some("1"));
    let lines = error_lines_until(&notify, "again");
    assert_eq!(lines.len(), 1, "{lines:?}");
}

#[test]
fn rejected_values_are_reported() {
    let test_box = TestBox::new();
    let _daemon = test_box.start();
    let server = OtlpServer::start();
    // ExportMetricsServiceResponse with partial_success {rejected_data_points: 3, error_message}.
    let body = "\x0a\x0b\x08\x03\x12\x07too old";
    for _ in 0..2 {
        server.answer_with("200 OK\r\ncontent-type: application/x-protobuf", body);
    }
    let notify = start_notify(&test_box, &settings(&server, "interval = \"1s\"\n"));
    let first = server.next_push();
    let lines = error_lines_until(&notify, "rejects 3 of ");
    let line = &lines[lines.len() - 1];
    let rejected = format!("rejects 3 of {} values: too old", first.points.len());
    assert!(line.ends_with(&rejected), "{line}");
    let _ = server.next_push();
    let _ = server.next_push();
    // The second time it is no news.
    let lines = error_lines_until(&notify, "again");
    assert_eq!(lines.len(), 1, "{lines:?}");
}

#[test]
fn last_values_are_pushed_at_the_stop() {
    let test_box = TestBox::new();
    let _daemon = test_box.start();
    let server = OtlpServer::start();
    let notify = start_notify(&test_box, &settings(&server, "interval = \"1h\"\n"));
    let first = server.next_push();
    notify.signal(Signal::TERM);
    let last = server.next_push();
    let read_at = |push: &OtlpPush| push.named("gpukill.up")[0].time;
    assert!(read_at(&last) >= read_at(&first));
    assert_eq!(notify.wait().0, 0);
}

#[test]
fn server_that_is_gone_is_reported_once_and_found_again() {
    let test_box = TestBox::new();
    let _daemon = test_box.start();
    let server = OtlpServer::start();
    let address = server.address();
    let notify = start_notify(&test_box, &settings(&server, "interval = \"1s\"\n"));
    let _ = server.next_push();
    drop(server);
    let _ = error_lines_until(&notify, "cannot push metrics to ");
    let server = OtlpServer::start_at(address);
    let _ = server.next_push();
    // A push that was under way when the server went has a reason of its own.
    let lines = error_lines_until(&notify, "are pushed to ");
    assert!(lines.len() <= 2, "{lines:?}");
    drop(server);
    notify.signal(Signal::TERM);
    // Without a server the last push fails, and the unit ends.
    assert_eq!(notify.wait().0, 0);
}

#[test]
fn secret_headers_are_sent_and_never_logged() {
    let test_box = TestBox::new();
    let _daemon = test_box.start();
    let file = test_box.path("headers");
    std::fs::write(&file, "# a token\nAuthorization: Bearer abcdef123\n").unwrap();
    give_to_gateway(&file);
    let set_mode = |mode| std::fs::set_permissions(&file, Permissions::from_mode(mode)).unwrap();
    let server = OtlpServer::start();
    let settings = settings(
        &server,
        &format!("interval = \"1s\"\nheaders_file = {file:?}\n"),
    );
    let check = |settings: &str| {
        CommandOutput::run(test_box.notify_command(settings).arg("--check-config"))
    };
    set_mode(0o644);
    let refused = check(&settings);
    assert_eq!(refused.code, 3);
    assert!(
        refused.stderr.contains("every user may read it"),
        "{refused:?}"
    );
    set_mode(0o600);
    assert_eq!(check(&settings).code, 0);
    let missing = check("");
    assert_eq!(missing.code, 3);
    assert!(
        missing.stderr.contains("otlp.endpoint: is not set"),
        "{missing:?}"
    );
    let repeated = "no such token: abcdef123";
    server.answer_with("401 Unauthorized\r\ncontent-type: text/plain", repeated);
    let notify = start_notify(&test_box, &settings);
    assert_eq!(
        server.next_push().headers["authorization"],
        "Bearer abcdef123"
    );
    let mut lines = error_lines_until(&notify, "the server answers 401 Unauthorized");
    // It is not retried at once, and the next push is another one.
    let _ = server.next_push();
    notify.signal(Signal::TERM);
    let (code, _, more) = notify.wait();
    assert_eq!(code, 0);
    lines.extend(more);
    assert!(!lines.concat().contains("no such token"), "{lines:?}");
}

/// The owner and the mode of a directory of credentials and of a credential in it, and whether the
/// unit can read that.
struct CredentialCase {
    owner: Option<u32>,
    group: Option<u32>,
    directory: u32,
    file: u32,
    is_readable: bool,
}

#[test]
fn credential_of_systemd_is_read_as_each_version_makes_it() {
    let own = gateway_uid();
    let mut cases = vec![
        // A file system without ACLs: systemd gives the file to the user of the unit.
        CredentialCase {
            owner: own,
            group: own,
            directory: 0o500,
            file: 0o400,
            is_readable: true,
        },
        CredentialCase {
            owner: own,
            group: own,
            directory: 0o500,
            file: 0o404,
            is_readable: false,
        },
    ];
    if own.is_some() {
        // With an ACL for the user: the bits of the group show it.
        cases.push(CredentialCase {
            owner: Some(0),
            group: own,
            directory: 0o550,
            file: 0o440,
            is_readable: true,
        });
        // Where systemd could do neither.
        cases.push(CredentialCase {
            owner: Some(0),
            group: Some(0),
            directory: 0o555,
            file: 0o400,
            is_readable: false,
        });
    }
    for case in cases {
        let test_box = TestBox::new();
        let directory = test_box.path("credentials");
        let file = directory.join("otlp-headers");
        std::fs::create_dir(&directory).unwrap();
        std::fs::write(&file, "Authorization: Bearer abcdef123\n").unwrap();
        for (path, mode) in [(&file, case.file), (&directory, case.directory)] {
            std::os::unix::fs::chown(path, case.owner, case.group).unwrap();
            std::fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
        }
        let settings =
            "[otlp]\nendpoint = \"http://127.0.0.1:4318\"\nheaders_file = \"otlp-headers\"\n";
        let mut command = test_box.notify_command(settings);
        command.env("CREDENTIALS_DIRECTORY", &directory);
        let checked = CommandOutput::run(command.arg("--check-config"));
        let expected = if case.is_readable { 0 } else { 3 };
        assert_eq!(checked.code, expected, "{:o}: {checked:?}", case.file);
        let is_closed = checked
            .stderr
            .contains("has not given the user of the unit access");
        assert_eq!(
            is_closed,
            case.owner == Some(0) && !case.is_readable,
            "{checked:?}"
        );
        assert!(!checked.stderr.contains("abcdef123"), "{checked:?}");
        // The box can be removed again.
        std::fs::set_permissions(&directory, Permissions::from_mode(0o700)).unwrap();
    }
}
