//! Calls of the daemon about the present: the documents that the client prints.

use super::{PID, number};
use crate::calls::CallContext;
use crate::daemon::{call, check_rows};
use crate::parameters::{Parameter, ParameterKind, Parameters, Place};
use crate::problem::Problem;
use gpukill_policy::rogue::advice::{Advice, advice};
use gpukill_policy::select::{DeviceName, select_devices};
use gpukill_proto::holders::HoldersReport;
use gpukill_proto::json::{
    ExplainDocument, GuardDocument, HoldersDocument, RecommendationDocument, RulesTextDocument,
    SCHEMA, ScanDocument, StatusDocument,
};
use gpukill_proto::model::{DeviceId, Snapshot};
use gpukill_proto::refusal::Refusal;
use gpukill_proto::service::{MAX_RULES_BYTES, MAX_SCAN_HOURS};
use gpukill_proto::units::Timestamp;

/// The parameter of [`rogue`].
pub(crate) const SCAN_HOURS: Parameter = Parameter {
    name: "hours",
    place: Place::Query,
    kind: ParameterKind::Number {
        min: 0,
        max: MAX_SCAN_HOURS as u64,
        default: Some(24),
    },
    summary: "also processes that used a GPU in the last N hours",
};

pub(crate) fn status(context: &mut CallContext, _: &Parameters) -> Result<StatusDocument, Problem> {
    let status = call!(context.daemon, Status {})?;
    Ok(StatusDocument::from(&status))
}

pub(crate) fn guard_status(
    context: &mut CallContext,
    _: &Parameters,
) -> Result<GuardDocument, Problem> {
    let status = call!(context.daemon, Status {})?;
    Ok(GuardDocument::from(&status.guard))
}

/// The text of the guard's rules in force.
pub(crate) fn guard_rules(
    context: &mut CallContext,
    _: &Parameters,
) -> Result<RulesTextDocument, Problem> {
    let mut bytes = Vec::new();
    let mut revision = None;
    loop {
        let offset = bytes.len() as u64;
        let part = call!(context.daemon, RulesText { offset })?;
        let own_revision = part.revision.map(|it| it.0);
        if offset > 0 && own_revision != revision {
            return Err(Refusal::Expired.into());
        }
        revision = own_revision;
        bytes.extend_from_slice(&part.part);
        if part.part.is_empty() || bytes.len() > MAX_RULES_BYTES {
            return Ok(RulesTextDocument {
                schema: SCHEMA,
                file: part.file,
                revision,
                text: String::from_utf8_lossy(&bytes).into_owned(),
            });
        }
    }
}

pub(crate) fn holders(
    context: &mut CallContext,
    parameters: &Parameters,
) -> Result<HoldersDocument, Problem> {
    let selected = parameters
        .text("gpu")
        .map(|typed| selected_devices(&context.view().current()?.annotated.snapshot, typed));
    let selected = selected.transpose()?;
    // A scan of one device is cheaper than that of all.
    let device = match selected.as_deref() {
        Some([one]) => Some(one.clone()),
        Some(_) | None => None,
    };
    let mut at = Timestamp::default();
    let mut reports: Vec<HoldersReport> = Vec::new();
    let mut next = Some(0);
    let mut rows = 0;
    while let Some(start) = next {
        let device = device.clone();
        let page = call!(context.daemon, Holders { device, start })?;
        at = page.at;
        rows += page.devices.len();
        rows += page
            .devices
            .iter()
            .map(|it| it.device.holders.len())
            .sum::<usize>();
        check_rows(rows)?;
        for report in page.devices {
            match reports.last_mut() {
                Some(last) if last.device.id == report.device.id => {
                    last.device.holders.extend(report.device.holders);
                    last.roles.extend(report.roles);
                }
                Some(_) | None => reports.push(report),
            }
        }
        next = page.next.filter(|next| *next > start);
    }
    if let Some(selected) = &selected {
        reports.retain(|report| selected.contains(&report.device.id));
    }
    Ok(HoldersDocument::new(at, &reports))
}

/// The ids of the devices that a selector selects.
pub(super) fn selected_devices(snapshot: &Snapshot, typed: &str) -> Result<Vec<DeviceId>, Problem> {
    let devices = &snapshot.devices;
    let names: Vec<DeviceName<'_>> = devices.iter().map(DeviceName::from).collect();
    let chosen = select_devices(typed, &names).map_err(Refusal::from)?;
    let numbered = devices.iter().enumerate();
    let chosen = numbered.filter(|(position, _)| chosen.contains(position));
    Ok(chosen.map(|(_, device)| device.id.clone()).collect())
}

pub(crate) fn explain(
    context: &mut CallContext,
    parameters: &Parameters,
) -> Result<ExplainDocument, Problem> {
    let pid = number(parameters, PID).ok_or_else(Problem::internal)?;
    let explained = call!(context.daemon, Explain { pid })?;
    Ok(ExplainDocument::from(&explained))
}

pub(crate) fn rogue(
    context: &mut CallContext,
    parameters: &Parameters,
) -> Result<ScanDocument, Problem> {
    let hours = number(parameters, SCAN_HOURS).unwrap_or_default();
    let report = call!(context.daemon, Scan { hours })?;
    Ok(ScanDocument::new(&report, |finding| {
        let all = advice(finding).into_iter();
        let recommended = all.map(
            |Advice {
                 kind,
                 text,
                 command,
             }| { RecommendationDocument::new(kind.name(), &text, command.as_deref()) },
        );
        recommended.collect()
    }))
}
