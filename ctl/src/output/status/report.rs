//! The text form of a bug report. It contains no more than the document.

mod guard;

use crate::output::style::OutputStyle;
use crate::output::text::{Line, escaped};
use crate::output::value::{counted, counted_processes, disk_size};
use gpukill_proto::json::report::{
    BackendPart, DaemonPart, DevicePart, FaultPart, RecentPart, ReportDocument, SettingPart,
    SettingValueDocument, SocketPart, Version,
};
use gpukill_proto::status::Right;
use gpukill_proto::text::format_duration;
use gpukill_proto::units::Bytes;
use std::fmt::Display;
use std::time::Duration;

/// The lines of `gpukillctl status --report`.
pub(crate) fn lines(report: &ReportDocument, style: &OutputStyle) -> Vec<Line> {
    let mut text = head(report);
    let mut section = |title: &str, items: Vec<String>| {
        text.push(String::new());
        text.push(format!("## {title}"));
        text.push(String::new());
        let none = items.is_empty().then(|| "- none".to_owned());
        text.extend(items.into_iter().map(|item| format!("- {item}")));
        text.extend(none);
    };
    section("Versions", versions(report));
    section("How it runs", runtime_items(report));
    if let Some(daemon) = &report.daemon {
        let backends = daemon.backends.iter().map(backend).collect();
        section("Backends", backends);
        section("Faults", daemon.faults.iter().map(fault).collect());
        section("Counts", counts(report, daemon));
        section("Guard", guard::guard(&daemon.guard));
        section("Watch for rogues", guard::rogue(&daemon.rogue));
    }
    if let Some(devices) = &report.devices {
        section("GPUs", devices.iter().map(device).collect());
    }
    if let Some(recent) = &report.recent_faults {
        let title = "Faults of the last day, the newest first";
        section(title, recent.iter().map(past_fault).collect());
    }
    let line = |text: String| Line::plain(escaped(&text, style.symbols));
    text.into_iter().map(line).collect()
}

fn head(report: &ReportDocument) -> Vec<String> {
    let is_admin = report.client.rights.contains(&Right::EditRules.name());
    let next = match is_admin {
        true => "send it to the authors of the package",
        false => "give it to the admin of this host",
    };
    vec![
        "# gpukill report".into(),
        String::new(),
        format!("Made {}. Read it, then {next}.", report.ts),
        format!(
            "It leaves out {}; `…` marks a text that was cut.",
            report.leaves_out
        ),
    ]
}

fn versions(report: &ReportDocument) -> Vec<String> {
    let (client, host) = (&report.client, &report.host);
    let mut items = vec![format!(
        "gpukillctl {}, protocol {}",
        client.version, client.protocol
    )];
    if let Some(daemon) = &report.daemon {
        let up = format_duration(Duration::from_secs(daemon.uptime_seconds));
        let (version, protocol) = (daemon.version.as_str(), daemon.protocol);
        items.push(format!("gpukilld {version}, protocol {protocol}, up {up}"));
    }
    let (kernel, architecture) = (host.kernel.as_str(), host.architecture);
    items.push(format!("Linux {kernel} on {architecture}"));
    items.push(match &host.distribution {
        Some(id) => format!(
            "distribution: {id} {}",
            version_or(&host.distribution_version, "")
        ),
        None => "distribution: not known".into(),
    });
    let runs = match host.systemd_runs {
        true => "runs this host",
        false => "does not run this host",
    };
    let version = version_or(&host.systemd, "of an unknown version");
    items.push(format!("systemd {version}: {runs}"));
    items
}

fn version_or<'a>(version: &'a Option<Version>, other: &'a str) -> &'a str {
    version.as_ref().map_or(other, Version::as_str)
}

/// Formats a value, or returns `other` for `None`.
fn word_or(value: Option<impl Display>, other: &str) -> String {
    value.map_or_else(|| other.to_owned(), |value| value.to_string())
}

fn runtime_items(report: &ReportDocument) -> Vec<String> {
    let mut items = Vec::new();
    if let Some(failure) = &report.failure {
        let mut why = vec![failure.what.to_owned()];
        why.extend(failure.error.map(|error| error.to_string()));
        why.extend(failure.protocol.map(|protocol| protocol.to_string()));
        items.push(format!(
            "**gpukilld does not answer: {}** (exit code {})",
            why.join(", "),
            failure.exit
        ));
        items.extend(
            failure
                .see
                .map(|see| format!("why it does not: see `{see}`")),
        );
    }
    items.push(format!("socket: {}", socket(&report.socket)));
    let unit = &report.unit;
    let drop_ins = match unit.drop_ins {
        true => ", changed by drop-ins",
        false => "",
    };
    items.push(format!(
        "unit gpukilld.service: {}{drop_ins}",
        unit.gpukilld
    ));
    items.push(format!("unit gpukill-reset.socket: {}", unit.reset_socket));
    if let Some(daemon) = &report.daemon {
        items.extend(daemon_items(report, daemon));
    }
    items.push(settings("gpukillctl", &report.client.settings));
    items.extend(mistakes(report.client.settings_mistakes));
    items
}

fn daemon_items(report: &ReportDocument, daemon: &DaemonPart) -> Vec<String> {
    let mut items = vec![
        match daemon.personal {
            true => "runs for one person (gpukilld --user)",
            false => "runs for all users",
        }
        .to_owned(),
    ];
    if daemon.will_not_act {
        items.push("ends no process".to_owned());
    }
    let again = match report.client.log_in_again {
        true => "; more after another login",
        false => "",
    };
    let rights = report.client.rights.join(", ");
    items.push(format!("rights of the reporter: {rights}{again}"));
    items.push(settings("gpukilld (times in ms)", &daemon.settings));
    items
}

fn socket(socket: &SocketPart) -> String {
    let path = match (socket.place, socket.path) {
        (_, Some(path)) => path,
        ("own", None) => "the user's own",
        (_, None) => "a named one",
    };
    let error = socket.error.map(|error| format!(" ({error})"));
    let mode = socket.mode.map(|mode| format!(", mode {mode}"));
    let owner = socket.owner.map(|owner| match owner {
        "you" => ", of the reporter",
        "root" => ", of root",
        _ => ", of another user",
    });
    let is = socket.is;
    let error = error.unwrap_or_default();
    let mode = mode.unwrap_or_default();
    format!("{path}: {is}{error}{mode}{}", owner.unwrap_or_default())
}

fn settings(of: &str, settings: &[SettingPart]) -> String {
    let line = |setting: &SettingPart| {
        let key = setting.key.as_str();
        match setting.value {
            Some(SettingValueDocument::Truth(truth)) => format!("{key} = {truth}"),
            Some(SettingValueDocument::Number(number)) => format!("{key} = {number}"),
            Some(SettingValueDocument::Name(name)) => format!("{key} = {name}"),
            None => format!("{key} = …"),
        }
    };
    let lines: Vec<String> = settings.iter().map(line).collect();
    match lines.as_slice() {
        [] => format!("settings of {of}: the defaults"),
        lines => format!("settings of {of}: {}", lines.join(", ")),
    }
}

fn mistakes(number: u64) -> Option<String> {
    let mistakes = (number > 0).then(|| count(number, "mistake"))?;
    Some(format!(
        "the settings of gpukillctl have {mistakes}, and they are not used here"
    ))
}

fn backend(backend: &BackendPart) -> String {
    let why = backend
        .code
        .map(|code| format!(": {code}{}", error(backend.error_number)));
    let (name, state, since) = (backend.name, backend.state, backend.since);
    let mut item = format!("{name}: {state}{}, since {since}", why.unwrap_or_default());
    let gpus = backend.gpus.filter(|count| *count > 0);
    if let Some(gpus) = gpus {
        item.push_str(&format!(", {}", count(gpus, "GPU")));
    }
    for (of, version) in [("driver", &backend.driver), ("CUDA", &backend.cuda)] {
        if let Some(version) = version {
            item.push_str(&format!(", {of} {}", version.as_str()));
        }
    }
    if let Some(cost) = backend.poll_cost_us {
        let cost = Duration::from_micros(cost).as_secs_f64() * 1000.0;
        item.push_str(&format!(", {cost:.1} ms a poll"));
    }
    item
}

fn count(number: u64, of: &str) -> String {
    counted(usize::try_from(number).unwrap_or(usize::MAX), of)
}

fn fault(fault: &FaultPart) -> String {
    let age = format_duration(Duration::from_secs(fault.seconds));
    let (part, code, since) = (fault.part, fault.code, fault.since);
    let more = reading(fault.reading) + &error(fault.error_number);
    format!("{part}: {code}{more}, since {since} ({age})")
}

fn reading(reading: Option<&str>) -> String {
    reading.map_or_else(String::new, |reading| format!(" of {reading}"))
}

fn error(number: Option<u16>) -> String {
    number.map_or_else(String::new, |number| format!(" (error {number})"))
}

fn past_fault(fault: &RecentPart) -> String {
    let over = match fault.over {
        true => ", over",
        false => "",
    };
    let times = match fault.times {
        0 | 1 => String::new(),
        several => format!(", {several} times"),
    };
    let (at, part) = (fault.at, fault.part);
    let code = word_or(fault.code, "a fault without a code");
    let more = reading(fault.reading) + &error(fault.error_number);
    format!("{at}: {part}: {code}{more}{over}{times}")
}

fn counts(report: &ReportDocument, daemon: &DaemonPart) -> Vec<String> {
    let mut items = Vec::new();
    if let (Some(devices), Some(processes)) = (&report.devices, report.processes) {
        let gpus = count(devices.len() as u64, "GPU");
        items.push(format!("{gpus}, {} on them", process_count(processes)));
    }
    let (polls, late) = (daemon.polls, daemon.polls_late);
    let last = word_or(daemon.last_poll_at, "none yet");
    let every = daemon.poll_interval_ms;
    items.push(format!(
        "{polls} polls, one each {every} ms, {late} late, the last {last}"
    ));
    let store = &daemon.store;
    let (samples, audit) = (Bytes(store.samples_bytes), Bytes(store.audit_bytes));
    items.push(format!(
        "store: {} of samples, {} of audit",
        disk_size(samples),
        disk_size(audit)
    ));
    let (written, dropped) = (store.written, store.dropped);
    let last = word_or(store.written_at, "never");
    items.push(format!(
        "samples since start: {written} written, the last {last}; {dropped} dropped"
    ));
    items
}

fn process_count(number: u64) -> String {
    counted_processes(usize::try_from(number).unwrap_or(usize::MAX))
}

fn device(device: &DevicePart) -> String {
    let mut item = format!("GPU {}: {}", device.gpu_index, device.vendor);
    if let Some(model) = &device.model {
        item.push_str(&format!(" {}", model.as_str()));
    }
    if let Some(memory) = device.mem_total_bytes {
        item.push_str(&format!(", {} MiB", memory >> 20));
    }
    if device.instances > 0 {
        item.push_str(&format!(", {}", count(device.instances, "instance")));
    }
    match device.pids {
        Some(pids) => item.push_str(&format!(", {}", process_count(pids))),
        None => item.push_str(", who uses it is not known"),
    }
    if let Some(xid) = device.last_xid {
        item.push_str(&format!(", last XID {xid}"));
    }
    if device.lost {
        item.push_str(", lost");
    }
    item
}
