//! `holders`: who has GPUs open, and whose the memory is that no process explains.

use super::{connect, list, looking, now};
use crate::args::Holders;
use crate::connect::Patience;
use crate::exit::{Exit, Failure};
use crate::output::holders::{Shown, lines};
use crate::output::look::Look;
use crate::output::message::Messages;
use crate::output::{json, print, print_lines};
use crate::settings::{Format, Settings};
use gpukill_proto::document::HoldersDocument;
use gpukill_proto::holders::{HoldersReport, Role};
use gpukill_proto::snapshot::{Device, DeviceId};

/// Asks and prints.
pub(crate) fn run(
    wanted: &Holders,
    settings: &Settings,
    messages: Messages,
) -> Result<Exit, Failure> {
    let patience = Patience::lasting(settings.timeout);
    let daemon = connect(settings, patience, messages)?;
    let gpu = wanted.gpu.as_deref();
    let devices = match list::devices(gpu, &daemon, patience) {
        Err(failure) if settings.output_format == Format::Json => {
            // As `list`: programs get a document whatever the verdict.
            print(&json::pretty(&HoldersDocument::new(now(), &[]))?)?;
            Err(failure)
        }
        devices => devices,
    }?;
    let (at, mut held) = daemon.holders(only(gpu, &devices), looking(settings))?;
    if gpu.is_some() {
        let is_wanted = |id: &DeviceId| devices.iter().any(|device| device.id == *id);
        held.retain(|report| is_wanted(&report.device.id));
    }
    match settings.output_format {
        Format::Json => print(&json::pretty(&HoldersDocument::new(at, &held))?)?,
        // Only the settings can ask for forms that this command does not have.
        Format::Table | Format::Ndjson | Format::Csv => {
            let look = Look::of_stdout(settings);
            let shown = Shown {
                devices: held
                    .iter()
                    .filter(|report| gpu.is_some() || is_of_interest(report))
                    .collect(),
                free: held
                    .iter()
                    .filter(|report| gpu.is_none() && !is_of_interest(report))
                    .collect(),
                unknown: devices
                    .iter()
                    .filter(|device| held.iter().all(|report| report.device.id != device.id))
                    .map(|device| device.index)
                    .collect(),
                at,
            };
            print_lines(&lines(&shown, &look), &look)?;
        }
    }
    Ok(Exit::Done)
}

/// The one device that is asked for; `None` asks for all.
fn only(gpu: Option<&str>, devices: &[Device]) -> Option<DeviceId> {
    match (gpu, devices) {
        (Some(_), [one]) => Some(one.id.clone()),
        (Some(_) | None, _) => None,
    }
}

/// Whether somebody holds it, or something of it is not explained.
fn is_of_interest(report: &HoldersReport) -> bool {
    let unattributed = report.device.memory_unattributed.last_known();
    let holds = |role: &Role| *role != Role::Monitor;
    report.roles.iter().any(holds)
        || !report.findings.is_empty()
        || unattributed.is_some_and(|bytes| bytes.0 > 0)
}
