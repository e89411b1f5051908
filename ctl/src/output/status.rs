//! The output of `status`, for people.

pub(crate) mod report;

use super::loss::xid_text;
use super::style::{OutputStyle, Symbols};
use super::text::{Line, Tone, escaped, escaped_lines, wrap};
use super::value::{clock, counted, disk_size, future_time, short_duration, thousands};
use crate::exit::DaemonKind;
use crate::versions::release_mismatch;
use gpukill_policy::health::recent_xid;
use gpukill_proto::model::{BackendReport, BackendState, Device, Fault, Vendor};
use gpukill_proto::reading::Reading;
use gpukill_proto::status::{
    AlertValue, CallerReport, DaemonStatus, PollingReport, Right, StoreReport,
};
use gpukill_proto::text::format_duration;
use gpukill_proto::units::Timestamp;
use std::time::Duration;

/// The lines of `gpukillctl status`, for a client of this release; `devices` for their XIDs.
pub(crate) fn lines(
    status: &DaemonStatus,
    devices: &[Device],
    release: &str,
    style: &OutputStyle,
) -> Vec<Line> {
    let mut rows: Vec<(String, String, Tone)> = Vec::new();
    // Why a vendor has no device matters only when no vendor has any.
    let has_some = status.backends.iter().any(|backend| backend.devices > 0);
    let can_be = status.backends.iter().filter(|it| is_possible_here(it));
    let (others, host_faults): (Vec<_>, Vec<_>) =
        can_be.partition(|backend| has_some && matches!(backend.state, BackendState::Absent(_)));
    for backend in host_faults {
        let (what, tone) = backend_row(backend, status.now, style);
        rows.push((backend.name.clone(), what, tone));
    }
    if !others.is_empty() {
        let names: Vec<&str> = others.iter().map(|backend| backend.name.as_str()).collect();
        let what = format!("{}: no device", names.join(", "));
        rows.push(("others".into(), what, Tone::Faint));
    }
    // A failed backend has a row already.
    let is_unreported = |fault: &&Fault| {
        let mut backends = status.backends.iter();
        let is_reported = backends.any(|backend| {
            let failed = BackendState::Failed(fault.code, fault.what.clone());
            backend.name == fault.part && backend.state == failed
        });
        !is_reported && !fault.code.is_alert()
    };
    for fault in status.faults.iter().filter(is_unreported) {
        let since = clock(fault.since, status.now, style);
        let what = format!("fault since {since}: {}", fault.what);
        rows.push((fault.part.clone(), what, Tone::Broken));
    }
    for device in devices {
        if let Some(xid) = recent_xid(device, status.now) {
            let what = xid_text(xid, status.now, style);
            rows.push((format!("GPU {}", device.index), what, Tone::Broken));
        }
    }
    for alert in &status.alerts {
        let since = clock(alert.since, status.now, style);
        let what = format!("alert since {since}: {}{}", alert.what, value_text(alert));
        rows.push((alert.part.clone(), what, Tone::Doubtful));
    }
    let plain = |name: &str, what| (name.to_owned(), what, Tone::Plain);
    rows.push(plain("polling", polling_text(&status.polling, status.now)));
    rows.push(plain("guard", super::guard::status_line(&status.guard)));
    let hidden = super::guard::hidden_note(status);
    rows.extend(hidden.map(|note| (String::new(), note.text(), Tone::Faint)));
    rows.extend(super::rogue::status_rows(&status.rogue));
    rows.push(plain("store", store_text(&status.store, status.now)));

    let heading = heading(status, style.symbols);
    let mut lines = escaped_lines(&heading, Tone::Plain, style);
    let runs = match status.personal {
        true => DaemonKind::Manual,
        false => DaemonKind::Service,
    };
    if let Some(differ) = release_mismatch(&status.version, release, runs) {
        lines.extend(escaped_lines(&differ, Tone::Doubtful, style));
    }
    if let Some(group) = &status.caller.log_in_again_for {
        let hint = log_in_again_text(group);
        lines.extend(escaped_lines(&hint, Tone::Doubtful, style));
    }
    if let Some(why) = &status.will_not_act {
        let refusal = format!("ends no process for any caller: {why}");
        lines.extend(escaped_lines(&refusal, Tone::Doubtful, style));
    }
    lines.push(Line::default());
    // As wide as the usual labels, and two blanks.
    let longest = rows.iter().map(|(name, ..)| name.chars().count()).max();
    let column = longest.unwrap_or(0).max(7) + 3;
    for (name, what, tone) in rows {
        lines.extend(labelled(&name, &what, tone, column, style));
    }
    lines
}

/// How the caller gets the rights of a group that the caller joined after logging in.
pub(crate) fn log_in_again_text(group: &str) -> String {
    format!("you were added to group {group}: log in again for its rights")
}

/// Whether this system can have the backend's devices. The daemon runs on Linux, and macOS
/// reports Apple's GPUs, so a missing Apple GPU is no news.
pub(super) fn is_possible_here(backend: &BackendReport) -> bool {
    let is_apple = backend.name == Vendor::Apple.name();
    !(is_apple && matches!(backend.state, BackendState::Absent(_)))
}

/// `, now 91 °C`
fn value_text(alert: &AlertValue) -> String {
    match alert.value {
        Some(value) => format!(", now {value} {}", alert.unit),
        None => ", the current value is not known".to_owned(),
    }
}

/// A label with a text beside it, on as many lines as needed.
pub(super) fn labelled(
    name: &str,
    what: &str,
    tone: Tone,
    column: usize,
    style: &OutputStyle,
) -> Vec<Line> {
    let name = escaped(name, style.symbols);
    let what = escaped(what, style.symbols);
    let mut texts = wrap(&what, column, column, style.width).into_iter();
    let mut first = Line::with_tone(format!(" {name:0$}", column - 1), Tone::Strong);
    first.push(texts.next().unwrap_or_default(), tone);
    std::iter::once(first)
        .chain(texts.map(|text| Line::with_tone(text, tone)))
        .collect()
}

fn heading(status: &DaemonStatus, symbols: Symbols) -> String {
    let dot = symbols.separator();
    let personal = if status.personal {
        format!("{dot}for one person only (gpukilld --user)")
    } else {
        String::new()
    };
    format!(
        "gpukilld {}, protocol {}{dot}up {}{personal}{dot}you are {}: {}",
        status.version,
        status.protocol,
        format_duration(status.now.since(status.started_at)),
        caller_text(&status.caller),
        rights_text(&status.caller.rights),
    )
}

fn caller_text(caller: &CallerReport) -> String {
    match caller.user.last_known() {
        Some(name) => name.clone(),
        None => format!("uid {}", caller.uid),
    }
}

fn rights_text(rights: &[Right]) -> String {
    let ends_any = rights.contains(&Right::EndAny);
    let words: Vec<&str> = rights
        .iter()
        .filter_map(|right| match right {
            Right::Look => Some("may look"),
            Right::EndOwn if ends_any => None,
            Right::EndOwn => Some("may end your own processes"),
            Right::EndAny => Some("may end any user's processes"),
            Right::EditRules => Some("may change the rules"),
        })
        .collect();
    if words.is_empty() {
        return "may do nothing".into();
    }
    words.join(", ")
}

fn backend_row(backend: &BackendReport, now: Timestamp, style: &OutputStyle) -> (String, Tone) {
    match &backend.state {
        BackendState::Ready => (ready_text(backend), Tone::Plain),
        BackendState::Starting => ("starting".into(), Tone::Plain),
        BackendState::Absent(why) => (why.clone(), Tone::Faint),
        BackendState::Failed(_, why) => {
            let since = clock(backend.since, now, style);
            (format!("failed since {since}: {why}"), Tone::Broken)
        }
        // A person requested it, so nothing is wrong.
        BackendState::Quiesced(until) => {
            let since = clock(backend.since, now, style);
            let until = future_time(*until, now, style);
            let what = format!("quiesced on request since {since}, until {until}");
            (format!("{what}: gpukillctl resume"), Tone::Plain)
        }
    }
}

fn ready_text(backend: &BackendReport) -> String {
    let devices = usize::try_from(backend.devices).unwrap_or(usize::MAX);
    let mut parts = vec![match devices {
        0 => "no device".to_owned(),
        several => counted(several, "GPU"),
    }];
    let mut version = |of: &str, reading: &Reading<String>| match reading {
        Reading::Value(version) => parts.push(format!("{of} {version}")),
        Reading::Stale(version, seconds) => {
            parts.push(format!("{of} {version} ({seconds} s ago)"));
        }
        Reading::Failed(_) => parts.push(format!("{of} ?")),
        Reading::Withheld => parts.push(format!("{of} hidden")),
        Reading::Unsupported => {}
    };
    version("driver", &backend.driver);
    version("CUDA", &backend.cuda);
    let cost = Duration::from_micros(backend.poll_cost_us);
    parts.push(format!("{:.1} ms a poll", cost.as_secs_f64() * 1000.0));
    parts.join(", ")
}

fn polling_text(polling: &PollingReport, now: Timestamp) -> String {
    let time = |ms: u64| match ms {
        ms if ms % 1000 == 0 => format!("{} s", ms / 1000),
        ms => format!("{ms} ms"),
    };
    let mut interval = time(polling.interval_ms);
    if polling.interval_ms > polling.set_interval_ms {
        let set = time(polling.set_interval_ms);
        interval.push_str(&format!(" instead of {set}, for a driver is slow"));
    }
    let last = match polling.last_at {
        Some(at) => format!("last {} ago", short_duration(now.since(at))),
        None => "none yet".into(),
    };
    let (late, polls) = (thousands(polling.late), thousands(polling.polls));
    format!("every {interval}, {last}, {late} late of {polls}")
}

fn store_text(store: &StoreReport, now: Timestamp) -> String {
    let written = match store.written_at {
        Some(at) => format!("written {} ago", short_duration(now.since(at))),
        None => "nothing written yet".into(),
    };
    let dropped = match store.dropped {
        0 => String::new(),
        several => format!(", {} samples dropped", thousands(several)),
    };
    format!(
        "{} samples, {} audit, {written}{dropped}, in {}",
        disk_size(store.samples),
        disk_size(store.audit),
        store.directory,
    )
}

#[cfg(test)]
mod tests {
    use super::super::fixtures;
    use super::*;
    use gpukill_proto::model::FaultCode;

    #[test]
    fn hidden_violations_are_not_none() {
        let mut status = fixtures::status();
        let style = fixtures::style(None);
        let note = "          only your own violations: those of other users are hidden";
        for (decisions, expected) in [(Reading::Withheld, true), (Reading::Unsupported, false)] {
            status.counters.decisions = decisions;
            let shown = lines(&status, &[], "0.1.0", &style);
            let is_noted = shown.iter().any(|line| line.text() == note);
            assert_eq!(is_noted, expected, "{shown:?}");
        }
    }

    #[test]
    fn recent_xid_has_a_row_with_its_meaning() {
        let (status, style) = (fixtures::status(), fixtures::style(None));
        let devices = fixtures::snapshot().devices;
        let shown = lines(&status, &devices, "0.1.0", &style);
        let row = " GPU 7    XID 79 at 13:58:03: the GPU has fallen off the bus";
        assert!(shown.iter().any(|line| line.text() == row), "{shown:?}");
    }

    #[test]
    fn alert_shows_the_current_value() {
        let mut status = fixtures::status();
        let since = fixtures::NOW.plus_seconds(-267);
        let alert = |index, what: &str, limit, value, unit: &str| AlertValue {
            part: format!("GPU {index}"),
            code: FaultCode::TemperatureAlert,
            what: what.into(),
            since,
            limit,
            value,
            unit: unit.into(),
        };
        let (hot, full) = (
            "temperature at or above 85 °C",
            "memory in use at or above 95 %",
        );
        // The daemon reports an alert among the faults too.
        status.faults = vec![Fault {
            part: "GPU 3".into(),
            code: FaultCode::TemperatureAlert,
            what: hot.into(),
            since,
        }];
        status.alerts = vec![
            alert(3, hot, 85, Some(91), "°C"),
            alert(3, full, 95, Some(96), "%"),
            alert(4, hot, 85, None, "°C"),
        ];
        let shown = lines(&status, &[], "0.1.0", &fixtures::style(None));
        let rows = shown.iter().map(Line::text);
        let rows: Vec<String> = rows.filter(|row| row.starts_with(" GPU")).collect();
        let since = "alert since 13:58:04";
        assert_eq!(
            rows,
            [
                format!(" GPU 3    {since}: {hot}, now 91 °C"),
                format!(" GPU 3    {since}: {full}, now 96 %"),
                format!(" GPU 4    {since}: {hot}, the current value is not known"),
            ]
        );
    }
}
