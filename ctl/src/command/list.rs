//! `list`: the GPUs and the processes that use them.

mod filter;
mod sort;
pub(super) mod user_lookup;
mod watch;

use super::{connect, now};
use crate::args::{List, VendorChoice};
use crate::connect::{AnnotatedSnapshot, Daemon, RequestTimeout, call};
use crate::exit::{Error, Exit};
use crate::output::csv::Header;
use crate::output::list::columns::{ColumnChoice, NamedColumn, parse_columns};
use crate::output::list::view::{Rows, View, lines};
use crate::output::past_end::own_past_end_lines;
use crate::output::style::OutputStyle;
use crate::output::text::Line;
use crate::output::{csv, json, print, print_lines};
use crate::settings::{Format, Settings};
use clap::ValueEnum as _;
use filter::{SelectedSnapshot, select_part};
use gpukill_policy::select::{SnapshotFilter, compile_pattern};
use gpukill_proto::audit::{AuditFilter, RunExtent, RunQuery, RunUnit};
use gpukill_proto::json::ListDocument;
use gpukill_proto::model::{Device, Snapshot};
use std::mem::ManuallyDrop;
use std::time::Duration;

/// What to show of each snapshot.
#[derive(Debug)]
struct ListRequest {
    selection: SnapshotFilter,
    view: View,
    format: Format,
}

impl ListRequest {
    /// The selected part of a snapshot, in the requested order. `unknown_user` as for
    /// [`select_part`].
    fn select(
        &self,
        snapshot: Snapshot,
        unknown_user: &dyn Fn(&str) -> Option<String>,
    ) -> SelectedSnapshot {
        let mut selected = select_part(snapshot, &self.selection, unknown_user);
        if let Some(key) = self.view.sort {
            sort::sort_devices(&mut selected.snapshot.devices, key);
            sort::sort_processes(&mut selected.snapshot.processes, key);
        }
        selected
    }
}

/// Prints one snapshot, or goes on with `--watch`.
pub(crate) fn run(list: &List, settings: &Settings) -> Result<Exit, Error> {
    let wanted = list_request(list, settings)?;
    if list.watch.is_some() {
        return watch::run(&wanted, settings);
    }
    let timeout = settings.request_timeout();
    let daemon = connect(settings, timeout)?;
    let AnnotatedSnapshot {
        snapshot,
        guard,
        suspected,
    } = first_snapshot(&daemon, timeout)?;
    let SelectedSnapshot { snapshot, verdict } =
        wanted.select(snapshot, &user_lookup::unknown_user);
    // Neither the snapshot nor the lines are freed, because the process ends after printing
    // them.
    let annotated = ManuallyDrop::new(AnnotatedSnapshot {
        snapshot,
        guard,
        suspected,
    });
    let result = match (wanted.format, verdict) {
        (Format::Table, Some(failure)) if !is_worth_showing(&annotated.snapshot, &failure) => {
            Err(failure)
        }
        (Format::Table, verdict) => {
            let style = OutputStyle::for_stdout(settings);
            let lines = ManuallyDrop::new(lines(&annotated, &wanted.view, now(), &style));
            print_lines(&lines, &style)?;
            verdict.map_or(Ok(Exit::Done), Err)
        }
        (Format::Json | Format::Ndjson | Format::Csv, verdict) => {
            print(&render_document(&annotated, &wanted, Header::First)?)?;
            verdict.map_or(Ok(Exit::Done), Err)
        }
    };
    if settings.only_mine && wanted.format == Format::Table {
        let style = OutputStyle::for_stdout(settings);
        let mut ended = own_past_ends(&daemon, wanted.view.me, settings, &style);
        if !ended.is_empty() && result.is_ok() {
            ended.insert(0, Line::default());
        }
        print_lines(&ended, &style)?;
    }
    result
}

/// Lines about jobs of this user that others ended in the last day; none where the record does
/// not answer soon.
fn own_past_ends(
    daemon: &Daemon,
    user: u32,
    settings: &Settings,
    style: &OutputStyle,
) -> Vec<Line> {
    const MAX_TIMEOUT: Duration = Duration::from_millis(500);
    const DAY_SECONDS: i64 = 86_400;
    let now = now();
    let since = now.plus_seconds(-DAY_SECONDS);
    let query = RunQuery {
        filter: AuditFilter {
            user: Some(user.to_string()),
            ..AuditFilter::for_period(since, now.plus_seconds(1))
        },
        unit: RunUnit::Job,
        extent: RunExtent::Whole,
        before: None,
        limit: 200,
    };
    let timeout = RequestTimeout::starting_now(settings.timeout.min(MAX_TIMEOUT));
    let page = call!(daemon, timeout, AuditRuns { query });
    let runs = page.map(|page| page.runs).unwrap_or_default();
    own_past_end_lines(&runs, user, since, now, style)
}

/// Whether a table says more than the error alone: it names the GPUs of the driver that does not
/// work.
fn is_worth_showing(snapshot: &Snapshot, failure: &Error) -> bool {
    matches!(failure, Error::Vendor(_)) && !snapshot.devices.is_empty()
}

fn list_request(list: &List, settings: &Settings) -> Result<ListRequest, Error> {
    let name = list.filter.as_deref().map(compile_pattern);
    let selection = SnapshotFilter {
        gpu: list.gpu.clone(),
        vendors: VendorChoice::vendors(&list.vendor),
        pids: list.pid.clone(),
        user: match settings.only_mine {
            true => Some(rustix::process::getuid().as_raw().to_string()),
            false => list.user.clone(),
        },
        name: name.transpose().map_err(Error::Usage)?,
    };
    let rows = match settings.show_details {
        true => Rows::Processes,
        false => Rows::Gpus,
    };
    // A setting may be for the other table.
    let sort = settings
        .list_sort
        .filter(|key| sort::applies_to(*key, rows));
    if let (None, Some(key)) = (sort, list.sort) {
        let name = key.to_possible_value();
        let name = name.as_ref().map_or("this", |name| name.get_name());
        return Err(Error::Usage(match rows {
            Rows::Gpus => format!("GPUs have no {name} to sort by: add --details"),
            Rows::Processes => format!("processes have no {name} to sort by"),
        }));
    }
    let (gpu_columns, process_columns) = match rows {
        Rows::Gpus => (
            columns(settings.list_columns.as_deref())?,
            Default::default(),
        ),
        Rows::Processes => (
            Default::default(),
            columns(settings.details_columns.as_deref())?,
        ),
    };
    let view = View {
        rows,
        gpu_columns,
        process_columns,
        sort,
        containers: list.containers,
        max_processes: settings.max_processes,
        only: filter::describe_processes(&selection),
        only_some_gpus: selection.gpu.is_some() || !selection.vendors.is_empty(),
        me: rustix::process::getuid().as_raw(),
    };
    Ok(ListRequest {
        selection,
        view,
        format: settings.output_format,
    })
}

fn columns<C: NamedColumn>(text: Option<&str>) -> Result<ColumnChoice<C>, Error> {
    let parsed = text.map(|text| parse_columns(text).map_err(Error::Usage));
    parsed.unwrap_or_else(|| Ok(ColumnChoice::default()))
}

/// The devices that match a selector; all devices without one.
pub(super) fn select_devices(
    gpu: Option<&str>,
    daemon: &Daemon,
    timeout: RequestTimeout,
) -> Result<Vec<Device>, Error> {
    let selection = SnapshotFilter {
        gpu: gpu.map(str::to_owned),
        ..SnapshotFilter::default()
    };
    let AnnotatedSnapshot { snapshot, .. } = first_snapshot(daemon, timeout)?;
    let SelectedSnapshot { snapshot, verdict } =
        select_part(snapshot, &selection, &user_lookup::unknown_user);
    match verdict {
        Some(failure) if snapshot.devices.is_empty() => Err(failure),
        // A device that its driver does not describe may still be known from processes.
        Some(_) | None => Ok(snapshot.devices),
    }
}

/// Why the selection cannot be decided, if so: a driver that fails may have the missing devices
/// or processes.
pub(super) fn undecided_error(selection: &SnapshotFilter, snapshot: Snapshot) -> Option<Error> {
    let verdict = select_part(snapshot, selection, &user_lookup::unknown_user).verdict;
    verdict.filter(|failure| matches!(failure, Error::Vendor(_)))
}

/// The newest snapshot; `None` if the daemon does not answer.
pub(super) fn newest_snapshot(daemon: &Daemon, timeout: RequestTimeout) -> Option<Snapshot> {
    let annotated = first_snapshot(daemon, timeout).ok()?;
    Some(annotated.snapshot)
}

/// The newest snapshot. Waits for the first poll of a daemon that just started.
fn first_snapshot(daemon: &Daemon, timeout: RequestTimeout) -> Result<AnnotatedSnapshot, Error> {
    let mut annotated = daemon.snapshot(None, timeout)?;
    if annotated.snapshot.polls == 0 {
        annotated = match daemon.snapshot(Some(0), timeout) {
            Err(Error::TimedOut { .. }) => return Err(Error::NothingPolled),
            answer => answer?,
        };
    }
    if annotated.snapshot.polls == 0 {
        return Err(Error::NothingPolled);
    }
    // A driver may take time for its first answer. Until then "no GPU" would be wrong.
    while filter::is_starting(&annotated.snapshot) {
        annotated = match daemon.snapshot(Some(annotated.snapshot.polls), timeout) {
            Err(Error::TimedOut { .. }) => break,
            newer => newer?,
        };
    }
    Ok(annotated)
}

/// A snapshot for programs.
fn render_document(
    annotated: &AnnotatedSnapshot,
    wanted: &ListRequest,
    header: Header,
) -> Result<String, Error> {
    let list = ListDocument::new(&annotated.snapshot, &annotated.guard, &annotated.suspected);
    match (wanted.format, wanted.view.rows) {
        (Format::Ndjson, _) => json::on_one_line(&list),
        (Format::Csv, Rows::Gpus) => csv::gpus(&list, header),
        (Format::Csv, Rows::Processes) => csv::processes(&list, header),
        (Format::Json | Format::Table, _) => json::pretty(&list),
    }
}
