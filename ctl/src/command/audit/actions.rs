//! `audit actions`: what was done, refused and broken.

use super::{DEFAULT_HOURS_OF_A_WEEK, Left, Next, connect, end, next, now, span};
use crate::args::Actions;
use crate::connect::{Daemon, Patience};
use crate::exit::{Exit, Failure};
use crate::output::actions::Acted;
use crate::output::history::{Records, Rest, Span};
use crate::output::look::Look;
use crate::output::message::Messages;
use crate::settings::{Format, Settings};
use gpukill_proto::audit::ActionQuery;
use gpukill_proto::snapshot::DeviceId;
use std::collections::BTreeMap;

/// Asks page by page and prints.
pub(super) fn run(
    wanted: &Actions,
    settings: &Settings,
    messages: Messages,
) -> Result<Exit, Failure> {
    let span = span(&wanted.period, DEFAULT_HOURS_OF_A_WEEK, now()).map_err(Failure::Usage)?;
    let narrowing = [&wanted.user, &wanted.kind, &wanted.gpu];
    let is_narrowed = narrowing.iter().any(|it| it.is_some());
    let daemon = connect(settings, Patience::lasting(settings.timeout), messages)?;
    let look = Look::of_stdout(settings);
    let mut records = Records::<Acted>::begin(settings.output_format, span, look);
    let outcome = pages(&daemon, wanted, span, settings, &mut records);
    end(records, outcome, is_narrowed, "entry", messages)
}

fn pages(
    daemon: &Daemon,
    wanted: &Actions,
    span: Span,
    settings: &Settings,
    records: &mut Records<Acted>,
) -> Result<Rest, Failure> {
    let mut left = Left::of(wanted.limit);
    let mut before = None;
    let mut indices = None;
    loop {
        let query = ActionQuery {
            since: span.since,
            until: span.until,
            user: wanted.user.clone(),
            kind: wanted.kind.clone(),
            gpu: wanted.gpu.clone(),
            before,
            limit: left.of_a_page(),
        };
        let page = daemon.audit_actions(&query, Patience::lasting(settings.timeout))?;
        left.take(page.records.len());
        let names_some = page.records.iter().any(|it| it.device.is_some());
        if indices.is_none() && names_some && settings.output_format == Format::Table {
            indices = Some(numbered(daemon, settings));
        }
        let acted = page.records.into_iter().map(|record| {
            let known = indices.iter().flatten();
            let mut known = known.filter(|(id, _)| Some(*id) == record.device.as_ref());
            let now = known.next().map(|(_, index)| *index);
            Acted::new(record, now)
        });
        records.add(acted.collect())?;
        match next(page.next, before, left)? {
            Next::Page(next) => before = Some(next),
            Next::Over(rest) => return Ok(rest),
        }
    }
}

/// How the devices are numbered now. Where that is not told their names stay.
fn numbered(daemon: &Daemon, settings: &Settings) -> BTreeMap<DeviceId, u32> {
    let sight = daemon.snapshot(None, Patience::lasting(settings.timeout));
    let devices = sight.map(|it| it.snapshot.devices).unwrap_or_default();
    let numbered = devices.into_iter().map(|it| (it.id, it.index));
    numbered.collect()
}
