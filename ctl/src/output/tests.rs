//! Compares whole screens with golden files in `testdata`. `GPUKILL_BLESS=1` rewrites them;
//! review the difference before you keep it.

mod audit;
mod guard;
mod holders;
mod hostile;
mod kill;
mod report;
mod reset;
mod rogue;
mod timeline;
mod unlisted;
mod usage_report;

use super::audit::history::{PagedEntry as _, TimeSpan};
use super::csv::Header;
use super::explain::ExplainDetail;
use super::fixtures::{NOW, brief, records, snapshot, status, style, suspected};
use super::guard::rules;
use super::list::columns::{ColumnChoice, parse_columns};
use super::list::processes::columns::ProcessColumn;
use super::list::view::{self, Rows, View};
use super::style::{OutputStyle, Symbols};
use super::*;
use crate::connect::AnnotatedSnapshot;
use crate::settings::SortKey;
use gpukill_proto::audit::AuditRecord;
use gpukill_proto::guard::GuardSummary;
use gpukill_proto::holders::Explanation;
use gpukill_proto::json::{AuditDocument, ListDocument, StatusDocument};
use gpukill_proto::model::{
    Ancestor, BackendState, Container, ContainerId, GpuProcess, Job, Owner, OwnerKind, Pod,
    ProcessKey, ProcessLocation, Scheduler, SchedulerJob, Snapshot, Unit,
};
use gpukill_proto::reading::Reading;

fn check(name: &str, text: &str) {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("testdata")
        .join(name);
    if std::env::var_os("GPUKILL_BLESS").is_some() {
        std::fs::write(&path, text).expect("testdata can be written");
    }
    let golden = std::fs::read_to_string(&path).expect("GPUKILL_BLESS=1 writes it");
    assert!(text == golden, "{name} differs; it is now:\n{text}");
}

fn text(lines: &[Line], style: &OutputStyle) -> String {
    let lines = lines.iter().map(|line| line.paint(style) + "\n");
    lines.collect()
}

/// The widest style, the narrowest readable style, and ASCII only.
fn styles() -> [(&'static str, OutputStyle); 3] {
    [
        ("120", style(Some(120))),
        ("80", style(Some(80))),
        ("ascii", ascii(Some(100))),
    ]
}

fn ascii(width: Option<usize>) -> OutputStyle {
    OutputStyle {
        symbols: Symbols::Ascii,
        ..style(width)
    }
}

fn colored(width: usize) -> OutputStyle {
    OutputStyle {
        color: true,
        ..style(Some(width))
    }
}

/// The screen of `explain`.
fn explanation_text(explained: &Explanation, style: &OutputStyle) -> String {
    let lines = explain::lines(explained, ExplainDetail::Usual, style);
    text(&lines, style)
}

/// No line is left unwrapped.
const WRAPPED: fn(&str) -> bool = |_| false;

/// Checks the screen in every style.
fn check_all(name: &str, screen: impl Fn(&OutputStyle) -> Vec<Line>) {
    check_styles(name, WRAPPED, screen);
}

fn check_styles(
    name: &str,
    is_unwrapped: fn(&str) -> bool,
    screen: impl Fn(&OutputStyle) -> Vec<Line>,
) {
    for (called, style) in styles() {
        let shown = text(&screen(&style), &style);
        check_fits(&shown, style.width.unwrap_or(usize::MAX), is_unwrapped);
        assert!(
            style.symbols != Symbols::Ascii || shown.is_ascii(),
            "{shown}"
        );
        check(&format!("{name}-{called}.txt"), &shown);
    }
}

/// Checks the screen at each width.
fn check_widths(
    name: &str,
    widths: &[usize],
    is_unwrapped: fn(&str) -> bool,
    screen: impl Fn(&OutputStyle) -> String,
) {
    for width in widths {
        let shown = screen(&style(Some(*width)));
        check_fits(&shown, *width, is_unwrapped);
        check(&format!("{name}-{width}.txt"), &shown);
    }
}

/// Checks that no line is wider. Commands are not wrapped, so that they can be copied.
fn check_fits(text: &str, width: usize, is_unwrapped: fn(&str) -> bool) {
    let mut lines = text.lines().filter(|line| !is_unwrapped(line));
    assert!(
        lines.all(|line| text::width(line) <= width),
        "{width}: {text}"
    );
}

fn view(rows: Rows) -> View {
    View {
        rows,
        containers: false,
        max_processes: 10,
        only: None,
        only_some_gpus: false,
        me: 4_000_000,
        gpu_columns: ColumnChoice::default(),
        process_columns: ColumnChoice::default(),
        sort: None,
    }
}

fn listed(snapshot: &Snapshot, view: &View, style: &OutputStyle) -> String {
    let none = GuardSummary::default();
    guarded(snapshot, &none, view, style)
}

fn guarded(snapshot: &Snapshot, guard: &GuardSummary, view: &View, style: &OutputStyle) -> String {
    let annotated = AnnotatedSnapshot {
        snapshot: snapshot.clone(),
        guard: guard.clone(),
        suspected: Vec::new(),
    };
    text(&view::lines(&annotated, view, NOW, style), style)
}

#[test]
fn list_gpus_at_every_width() {
    check_widths("list", &[160, 120, 100, 80], WRAPPED, |style| {
        listed(&snapshot(), &view(Rows::Gpus), style)
    });
    check(
        "list-pipe.txt",
        &listed(&snapshot(), &view(Rows::Gpus), &style(None)),
    );
}

#[test]
fn list_details_at_every_width() {
    check_widths("details", &[160, 120, 100, 80], WRAPPED, |style| {
        listed(&snapshot(), &view(Rows::Processes), style)
    });
    let all = View {
        containers: true,
        max_processes: 0,
        ..view(Rows::Processes)
    };
    check(
        "details-containers.txt",
        &listed(&snapshot(), &all, &style(None)),
    );
}

/// One GPU, eight and sixteen, at the widths of usual terminals.
#[test]
fn list_of_any_number_of_gpus_fits() {
    let usual = snapshot();
    let of = |count: u32| {
        let mut snapshot = usual.clone();
        snapshot
            .devices
            .retain(|device| device.index < count.min(8));
        for index in 10..count {
            let mut more = usual.devices[3].clone();
            more.index = index;
            snapshot.devices.push(more);
        }
        let shown: Vec<_> = snapshot.devices.iter().map(|it| it.id.clone()).collect();
        snapshot.processes.retain(|it| shown.contains(&it.device));
        snapshot.faults.clear();
        snapshot
    };
    for count in [1, 8, 18] {
        let mut screens = String::new();
        for width in [80, 100, 120, 160] {
            for rows in [Rows::Gpus, Rows::Processes] {
                let shown = listed(&of(count), &view(rows), &style(Some(width)));
                check_fits(&shown, width, WRAPPED);
                screens += &format!("{width} columns\n{shown}\n");
            }
        }
        check(
            &format!("list-{}-gpus.txt", of(count).devices.len()),
            &screens,
        );
    }
}

#[test]
fn requested_columns_and_order() {
    let gpus = View {
        gpu_columns: parse_columns("name,gpu,driver,cuda,fan,pstate,pcie,throttle,clock")
            .expect("they exist"),
        sort: Some(SortKey::Memory),
        ..view(Rows::Gpus)
    };
    let more = View {
        gpu_columns: parse_columns("+mem_temp,mem_util,encoder,reserved").expect("they exist"),
        ..view(Rows::Gpus)
    };
    let processes = View {
        process_columns: parse_columns("pid,gpu,cpu,host_mem,idle,role,rule,name,job")
            .expect("they exist"),
        sort: Some(SortKey::Memory),
        max_processes: 2,
        ..view(Rows::Processes)
    };
    let style = style(Some(160));
    let screens = [gpus, more, processes].map(|view| listed(&snapshot(), &view, &style));
    check("list-columns.txt", &screens.join("\n"));
    let unknown = parse_columns::<ProcessColumn>("pid,fan").map(drop);
    assert!(unknown.is_err_and(|why| why.starts_with("column \"fan\" is not valid: write gpu, ")));
}

#[test]
fn order_by_idle_time_shows_short_times() {
    let mut snapshot = snapshot();
    snapshot.processes.retain(|process| process.pid == 48_213);
    snapshot.processes[0].last_active = Reading::Value(Some(NOW.plus_seconds(-30)));
    let shown = |sort| {
        let view = View {
            process_columns: parse_columns("pid,idle").expect("they exist"),
            sort,
            ..view(Rows::Processes)
        };
        let shown = listed(&snapshot, &view, &style(None));
        let row = shown.lines().find(|line| line.contains("48213"));
        row.map(|row| row.split_whitespace().collect::<Vec<_>>().join(" "))
    };
    assert_eq!(shown(Some(SortKey::Idle)).as_deref(), Some("48213 30s"));
    assert_eq!(shown(Some(SortKey::Memory)).as_deref(), Some("48213 –"));
}

#[test]
fn requested_column_is_shown_or_named() {
    let typed = "gpu,name,temp,power,ecc,driver,cuda,fan,pstate,pcie,throttle,clock";
    for width in [40, 60, 80, 160] {
        let gpus = View {
            gpu_columns: parse_columns(typed).expect("they exist"),
            ..view(Rows::Gpus)
        };
        let shown = listed(&snapshot(), &gpus, &style(Some(width)));
        check_fits(&shown, width, WRAPPED);
        let titles = shown.lines().nth(2).unwrap_or_default();
        let note = shown.split_once("no room for ");
        let note = note.and_then(|(_, note)| note.split(':').next());
        let note = note.unwrap_or_default();
        for name in typed.split(',') {
            let is_shown = titles.contains(&name.to_uppercase());
            assert_ne!(is_shown, note.contains(name), "{name} {shown}");
        }
    }
}

#[test]
fn list_in_colour_and_in_ascii() {
    check(
        "list-colored.txt",
        &listed(&snapshot(), &view(Rows::Gpus), &colored(120)),
    );
    let containers = View {
        containers: true,
        ..view(Rows::Gpus)
    };
    let shown = listed(&snapshot(), &containers, &ascii(Some(120)));
    assert!(shown.is_ascii(), "{shown}");
    check("list-ascii.txt", &shown);
}

/// The lists in the picture of the documents: a healthy box, but for a lost GPU and memory that no
/// process explains.
fn pictured(style: &OutputStyle) -> String {
    let mut snapshot = snapshot();
    snapshot
        .devices
        .retain(|device| [0, 1, 3, 5, 6, 7].contains(&device.index));
    for (device, index) in snapshot.devices.iter_mut().zip(0..) {
        device.index = index;
    }
    let vitals = &mut snapshot.devices[4].vitals;
    vitals.ecc_volatile = Reading::Value(0);
    vitals.recovery_action = Reading::Unsupported;
    vitals.remapped_rows = Reading::Unsupported;
    let shown: Vec<_> = snapshot.devices.iter().map(|it| it.id.clone()).collect();
    snapshot.processes.retain(|it| shown.contains(&it.device));
    snapshot.faults.clear();
    let view_of = |rows| View {
        max_processes: 4,
        ..view(rows)
    };
    let [gpus, processes] =
        [Rows::Gpus, Rows::Processes].map(|rows| listed(&snapshot, &view_of(rows), style));
    format!("$ gpukillctl list\n{gpus}\n$ gpukillctl list --details\n{processes}")
}

/// The words of each line that is not empty.
fn words_by_line<'a>(lines: impl IntoIterator<Item = &'a str>) -> Vec<Vec<&'a str>> {
    let words = lines
        .into_iter()
        .map(|line| line.split_whitespace().collect::<Vec<_>>());
    words.filter(|words| !words.is_empty()).collect()
}

#[test]
fn picture_of_the_documents_is_current() {
    check("picture.txt", &pictured(&colored(110)));
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let picture = std::fs::read_to_string(root.join("docs/images/list.svg")).expect("it is there");
    // The texts of a line of the terminal have the same y.
    let mut lines: Vec<(&str, String)> = Vec::new();
    for element in picture
        .lines()
        .filter_map(|line| line.strip_prefix("<text x="))
    {
        let y = element.split('"').nth(3).expect("a line");
        let (_, text) = element.split_once('>').expect("a text");
        let text = text.strip_suffix("</text>").expect("it ends here");
        match lines.last_mut() {
            Some((line, texts)) if *line == y => *texts += &format!(" {text}"),
            Some(_) | None => lines.push((y, text.to_owned())),
        }
    }
    assert_eq!(
        words_by_line(lines.iter().map(|(_, texts)| texts.as_str())),
        words_by_line(pictured(&style(Some(110))).lines()),
        "draw it again: tests/launchers/svg.py < ctl/testdata/picture.txt > docs/images/list.svg"
    );
}

fn listed_of(owner: &str) -> String {
    let mut snapshot = snapshot();
    snapshot.processes.retain(|process| {
        let of = process.owner.known();
        of.is_some_and(|of| of.name == owner)
    });
    for device in &mut snapshot.devices {
        let here = |process: &&GpuProcess| process.device == device.id;
        let here = snapshot.processes.iter().filter(here).count();
        device.process_count = Reading::Value(u32::try_from(here).expect("few"));
    }
    let only = |rows| View {
        only: Some(format!("processes of {owner}")),
        ..view(rows)
    };
    let style = style(Some(100));
    let gpus = listed(&snapshot, &only(Rows::Gpus), &style);
    gpus + "\n" + &listed(&snapshot, &only(Rows::Processes), &style)
}

#[test]
fn list_of_one_user_blames_nobody() {
    check("list-bob.txt", &listed_of("bob"));
}

#[test]
fn list_of_one_user_shows_own_instances() {
    check("list-frank.txt", &listed_of("frank"));
}

#[test]
fn quiesced_driver_is_named_below_stale_values() {
    let mut snapshot = snapshot();
    snapshot.faults.clear();
    snapshot.devices.truncate(1);
    snapshot.processes.truncate(1);
    snapshot.backends[0].state = BackendState::Quiesced(NOW.plus_seconds(600));
    let device = &mut snapshot.devices[0];
    device.memory_used = device.memory_used.clone().aged(60);
    device.memory_total = device.memory_total.clone().aged(60);
    device.vitals = device.vitals.clone().aged(60);
    let style = style(Some(100));
    let mut shown = listed(&snapshot, &view(Rows::Gpus), &style);
    snapshot.devices.clear();
    shown += "\n";
    shown += &listed(&snapshot, &view(Rows::Gpus), &style);
    let mut status = status();
    status.backends[0].state = BackendState::Quiesced(NOW.plus_seconds(600));
    status.will_not_act =
        Some("it is not in the host's PID namespace: pids would name others".into());
    shown += "\n";
    shown += &text(&status::lines(&status, &[], "0.1.0", &style), &style);
    check("quiesced.txt", &shown);
}

#[test]
fn list_without_gpus_states_why() {
    let mut none = snapshot();
    none.devices.clear();
    none.processes.clear();
    none.faults.clear();
    none.backends[0].state =
        BackendState::Absent("no library libnvidia-ml.so.1: install the NVIDIA driver".into());
    none.taken_at = NOW.plus_seconds(-200);
    check(
        "list-none.txt",
        &listed(&none, &view(Rows::Gpus), &style(Some(60))),
    );
}

#[test]
fn status_names_faults_and_rights() {
    for width in [100, 60] {
        let style = style(Some(width));
        let shown = text(&status::lines(&status(), &[], "0.1.0", &style), &style);
        check(&format!("status-{width}.txt"), &shown);
    }
}

#[test]
fn json_has_every_value_and_reason() {
    let list = ListDocument::new(&snapshot(), &brief(), &suspected());
    let records: Vec<AuditDocument> = records().iter().map(AuditDocument::from).collect();
    let csv = [
        csv::gpus(&list, Header::First),
        csv::processes(&list, Header::First),
        csv::records(&records, Header::First),
    ];
    let csv: Vec<String> = csv.into_iter().map(|text| text.expect("texts")).collect();
    check("list.csv", &csv[0]);
    check("details.csv", &csv[1]);
    check("audit.csv", &csv[2]);
    let document = json::pretty(&StatusDocument::from(&status()));
    check("status.json", &document.expect("plain values"));
    let line = json::on_one_line(&list).expect("plain values");
    assert_eq!(line.matches('\n').count(), 1);
}

/// A text with control characters.
const HOSTILE: &str = "a\x1b[2J\x1b]0;x\x07\u{9b}31m\r\n\u{202e}\u{200b}\u{7f}b";

fn assert_steer_nothing(printed: impl IntoIterator<Item = String>) {
    for text in printed {
        let steering = text
            .chars()
            .find(|c| *c != '\n' && (c.is_control() || matches!(c, '\u{202e}' | '\u{200b}')));
        assert_eq!(steering, None, "{text}");
    }
}
