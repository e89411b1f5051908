//! `holders`: processes that have GPUs open, and who holds the memory that no process explains.

use super::{connect, list, now, scan_timeout};
use crate::args::Holders;
use crate::connect::{Daemon, RequestTimeout, call};
use crate::exit::{Error, Exit};
use crate::output::holders::{HoldersView, lines};
use crate::output::{json, print, print_answer};
use crate::settings::{Format, Settings};
use gpukill_proto::holders::{HoldersReport, Role};
use gpukill_proto::json::HoldersDocument;
use gpukill_proto::model::{Device, DeviceId};
use gpukill_proto::units::Timestamp;

/// Requests the holders and prints them.
pub(crate) fn run(wanted: &Holders, settings: &Settings) -> Result<Exit, Error> {
    let timeout = settings.request_timeout();
    let daemon = connect(settings, timeout)?;
    let gpu = wanted.gpu.as_deref();
    let devices = match list::select_devices(gpu, &daemon, timeout) {
        Err(failure) if settings.output_format == Format::Json => {
            // As for `list`: programs get a document whatever the verdict.
            print(&json::pretty(&HoldersDocument::new(now(), &[]))?)?;
            Err(failure)
        }
        devices => devices,
    }?;
    let device = selected_device(gpu, &devices);
    let (at, mut held) = request_holders(&daemon, device.as_ref(), scan_timeout(settings))?;
    if gpu.is_some() {
        let is_wanted = |id: &DeviceId| devices.iter().any(|device| device.id == *id);
        held.retain(|report| is_wanted(&report.device.id));
    }
    print_answer(
        settings,
        || HoldersDocument::new(at, &held),
        |style| {
            let shown = HoldersView {
                devices: held
                    .iter()
                    .filter(|report| gpu.is_some() || has_details(report))
                    .collect(),
                free: held
                    .iter()
                    .filter(|report| gpu.is_none() && !has_details(report))
                    .collect(),
                unknown: devices
                    .iter()
                    .filter(|device| held.iter().all(|report| report.device.id != device.id))
                    .map(|device| device.index)
                    .collect(),
                at,
            };
            lines(&shown, style)
        },
    )?;
    Ok(Exit::Done)
}

/// The processes that have one device or any device open: all pages of one answer, and its
/// time.
fn request_holders(
    daemon: &Daemon,
    device: Option<&DeviceId>,
    timeout: RequestTimeout,
) -> Result<(Timestamp, Vec<HoldersReport>), Error> {
    let mut at = Timestamp::default();
    let mut reports: Vec<HoldersReport> = Vec::new();
    daemon.collect_pages("holders", Some(0), &mut |start| {
        let device = device.cloned();
        let page = call!(daemon, timeout, Holders { device, start })?;
        at = page.at;
        for report in page.devices {
            match reports.last_mut() {
                Some(last) if last.device.id == report.device.id => {
                    last.device.holders.extend(report.device.holders);
                    last.roles.extend(report.roles);
                }
                Some(_) | None => reports.push(report),
            }
        }
        Ok(page.next)
    })?;
    Ok((at, reports))
}

/// The device to ask for; `None` asks for all.
fn selected_device(gpu: Option<&str>, devices: &[Device]) -> Option<DeviceId> {
    match (gpu, devices) {
        (Some(_), [one]) => Some(one.id.clone()),
        (Some(_) | None, _) => None,
    }
}

/// Whether the device has holders or unattributed memory.
fn has_details(report: &HoldersReport) -> bool {
    let unattributed = report.device.memory_unattributed.last_known();
    let holds = |role: &Role| *role != Role::Monitor;
    report.roles.iter().any(holds)
        || !report.findings.is_empty()
        || unattributed.is_some_and(|bytes| bytes.0 > 0)
}
