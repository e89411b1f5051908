//! `audit actions`: recorded actions, refusals and faults.

use super::{
    DEFAULT_WEEK_HOURS, ListSelection, collect_pages, connect, entry_limit, finish_records, now,
    time_span,
};
use crate::args::Actions;
use crate::connect::{Daemon, call};
use crate::exit::{Error, Exit};
use crate::output::audit::actions::ActionEntry;
use crate::output::audit::history::{Coverage, RecordPrinter, Remaining, TimeSpan};
use crate::output::style::OutputStyle;
use crate::settings::{Format, Settings};
use gpukill_proto::audit::ActionQuery;
use gpukill_proto::model::DeviceId;
use gpukill_proto::units::Timestamp;
use std::collections::BTreeMap;

/// Requests entries page by page and prints them.
pub(super) fn run(wanted: &Actions, settings: &Settings) -> Result<Exit, Error> {
    let span = time_span(&wanted.period, DEFAULT_WEEK_HOURS, now()).map_err(Error::Usage)?;
    let narrowing = [&wanted.user, &wanted.kind, &wanted.gpu];
    let is_narrowed = narrowing.iter().any(|it| it.is_some());
    let daemon = connect(settings, settings.request_timeout())?;
    let style = OutputStyle::for_stdout(settings);
    let mut records = RecordPrinter::<ActionEntry>::new(settings.output_format, span, style);
    let outcome = request_pages(&daemon, wanted, span, settings, &mut records);
    if outcome.is_ok() && records.is_empty_table() {
        records.set_coverage(Coverage {
            gaps: None,
            recorded_since: first_action(&daemon, settings),
        });
    }
    let selection = ListSelection {
        one: "entry",
        is_narrowed,
        users: wanted.user.as_deref().unwrap_or_default(),
        groups: "",
    };
    finish_records(records, outcome, &selection)?;
    Ok(Exit::Done)
}

/// Since when actions are recorded; `None` where the daemon does not answer.
fn first_action(daemon: &Daemon, settings: &Settings) -> Option<Timestamp> {
    let status = call!(daemon, settings.request_timeout(), Status {}).ok()?;
    status.store.recorded_since
}

fn request_pages(
    daemon: &Daemon,
    wanted: &Actions,
    span: TimeSpan,
    settings: &Settings,
    records: &mut RecordPrinter<ActionEntry>,
) -> Result<Remaining, Error> {
    let mut indices = None;
    collect_pages(
        entry_limit(wanted.limit, settings.output_format),
        &mut |before, limit| {
            let query = ActionQuery {
                since: span.since,
                until: span.until,
                user: wanted.user.clone(),
                kind: wanted.kind.clone(),
                gpu: wanted.gpu.clone(),
                before,
                limit,
            };
            let page = call!(daemon, settings.request_timeout(), AuditActions { query })?;
            let count = page.records.len();
            let has_device = page.records.iter().any(|it| it.device.is_some());
            if indices.is_none() && has_device && settings.output_format == Format::Table {
                indices = Some(device_indices(daemon, settings));
            }
            let acted = page.records.into_iter().map(|record| {
                let known = indices.iter().flatten();
                let mut known = known.filter(|(id, _)| Some(*id) == record.device.as_ref());
                let now = known.next().map(|(_, index)| *index);
                ActionEntry::new(record, now)
            });
            records.add(acted.collect())?;
            Ok((count, page.next))
        },
    )
}

/// The current indices of the devices. Empty when the daemon does not report them; then the
/// table shows device names.
fn device_indices(daemon: &Daemon, settings: &Settings) -> BTreeMap<DeviceId, u32> {
    let annotated = daemon.snapshot(None, settings.request_timeout());
    let devices = annotated.map(|it| it.snapshot.devices).unwrap_or_default();
    let numbered = devices.into_iter().map(|it| (it.id, it.index));
    numbered.collect()
}
