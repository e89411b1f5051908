//! `list`: the GPUs and who uses them.

mod answer;

pub(super) mod person;

mod watch;

use super::{connect, now};
use crate::args::{List, VendorChoice};
use crate::connect::{Daemon, Patience, Sight};
use crate::exit::{Exit, Failure};
use crate::output::csv::Header;
use crate::output::look::Look;
use crate::output::message::Messages;
use crate::output::view::{Rows, View, lines};
use crate::output::{csv, json, print, print_lines};
use crate::settings::{Format, Settings};
use answer::{Answer, answer};
use gpukill_policy::select::{Selection, pattern};
use gpukill_proto::document::ListDocument;
use gpukill_proto::snapshot::{Device, Snapshot};
use std::mem::ManuallyDrop;

/// What is wanted of each snapshot.
#[derive(Debug)]
struct Wanted {
    selection: Selection,
    view: View,
    format: Format,
}

/// Asks once and prints, or goes on with `--watch`.
pub(crate) fn run(list: &List, settings: &Settings, messages: Messages) -> Result<Exit, Failure> {
    let wanted = wanted(list, settings)?;
    if list.watch.is_some() {
        return watch::run(&wanted, settings, messages);
    }
    let patience = Patience::lasting(settings.timeout);
    let daemon = connect(settings, patience, messages)?;
    let Sight {
        snapshot,
        guard,
        suspected,
    } = first(&daemon, patience)?;
    let Answer { snapshot, verdict } = answer(snapshot, &wanted.selection, &person::may_be);
    // Never freed, nor the lines: the process ends when they are printed.
    let sight = ManuallyDrop::new(Sight {
        snapshot,
        guard,
        suspected,
    });
    match (wanted.format, verdict) {
        (Format::Table, Some(failure)) if !is_worth_showing(&sight.snapshot, &failure) => {
            Err(failure)
        }
        (Format::Table, verdict) => {
            let look = Look::of_stdout(settings);
            let lines = ManuallyDrop::new(lines(&sight, &wanted.view, now(), &look));
            print_lines(&lines, &look)?;
            verdict.map_or(Ok(Exit::Done), Err)
        }
        (Format::Json | Format::Ndjson | Format::Csv, verdict) => {
            print(&document(&sight, &wanted, Header::First)?)?;
            verdict.map_or(Ok(Exit::Done), Err)
        }
    }
}

/// Whether a table says more than the failure alone: the names of GPUs whose
/// driver does not work.
fn is_worth_showing(snapshot: &Snapshot, failure: &Failure) -> bool {
    matches!(failure, Failure::Vendor(_)) && !snapshot.devices.is_empty()
}

fn wanted(list: &List, settings: &Settings) -> Result<Wanted, Failure> {
    let name = list.filter.as_deref().map(pattern);
    let selection = Selection {
        gpu: list.gpu.clone(),
        vendors: VendorChoice::vendors(&list.vendor),
        user: list.user.clone(),
        name: name.transpose().map_err(Failure::Usage)?,
    };
    let view = View {
        rows: if settings.show_details {
            Rows::Processes
        } else {
            Rows::Gpus
        },
        containers: list.containers,
        max_processes: settings.max_processes,
        only: answer::processes_in_words(&selection),
        only_some_gpus: selection.gpu.is_some() || !selection.vendors.is_empty(),
        me: rustix::process::getuid().as_raw(),
    };
    Ok(Wanted {
        selection,
        view,
        format: settings.output_format,
    })
}

/// The devices that are called so; all without a name.
pub(super) fn devices(
    gpu: Option<&str>,
    daemon: &Daemon,
    patience: Patience,
) -> Result<Vec<Device>, Failure> {
    let selection = Selection {
        gpu: gpu.map(str::to_owned),
        ..Selection::default()
    };
    let Sight { snapshot, .. } = first(daemon, patience)?;
    let Answer { snapshot, verdict } = answer(snapshot, &selection, &person::may_be);
    match verdict {
        Some(failure) if snapshot.devices.is_empty() => Err(failure),
        // What its driver does not tell, the processes may.
        Some(_) | None => Ok(snapshot.devices),
    }
}

/// Why it cannot be known whom a selection means, where that is so: a driver that
/// fails may have what is missing.
pub(super) fn doubt(selection: &Selection, daemon: &Daemon, patience: Patience) -> Option<Failure> {
    let Sight { snapshot, .. } = first(daemon, patience).ok()?;
    let verdict = answer(snapshot, selection, &person::may_be).verdict;
    verdict.filter(|failure| matches!(failure, Failure::Vendor(_)))
}

/// The newest snapshot; waits for the first poll of a daemon that just started.
fn first(daemon: &Daemon, patience: Patience) -> Result<Sight, Failure> {
    let mut sight = daemon.snapshot(None, patience)?;
    if sight.snapshot.tick == 0 {
        sight = match daemon.snapshot(Some(0), patience) {
            Err(Failure::TimedOut { .. }) => return Err(Failure::NothingPolled),
            answer => answer?,
        };
    }
    if sight.snapshot.tick == 0 {
        return Err(Failure::NothingPolled);
    }
    // A driver may take its time for its first answer, and "no GPU" would be a
    // lie until then.
    while answer::is_starting(&sight.snapshot) {
        sight = match daemon.snapshot(Some(sight.snapshot.tick), patience) {
            Err(Failure::TimedOut { .. }) => break,
            newer => newer?,
        };
    }
    Ok(sight)
}

/// A snapshot for programs.
fn document(sight: &Sight, wanted: &Wanted, header: Header) -> Result<String, Failure> {
    let list = ListDocument::new(&sight.snapshot, &sight.guard, &sight.suspected);
    match (wanted.format, wanted.view.rows) {
        (Format::Ndjson, _) => json::on_one_line(&list),
        (Format::Csv, Rows::Gpus) => csv::gpus(&list, header),
        (Format::Csv, Rows::Processes) => csv::processes(&list, header),
        (Format::Json | Format::Table, _) => json::pretty(&list),
    }
}
