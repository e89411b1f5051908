//! `audit prune`: says what is old, asks, and has it deleted.

use super::{confirm, connect, now};
use crate::args::Prune;
use crate::connect::{Doing, Patience};
use crate::exit::{Exit, Failure};
use crate::moment;
use crate::output::look::Look;
use crate::output::message::Messages;
use crate::output::print_lines;
use crate::output::prune::{Tense, counted, lines, question};
use crate::settings::Settings;
use chrono::Local;
use std::time::Duration;

/// Deleting goes in small steps, so that nothing else waits: a month of a large
/// box takes some seconds. The daemon takes no longer deadline than this.
const DELETING: Duration = Duration::from_secs(110);

/// Does it, or says why not.
pub(super) async fn run(
    wanted: &Prune,
    settings: &Settings,
    messages: Messages,
) -> Result<Exit, Failure> {
    let before = moment::parse(&wanted.before, now(), &Local).map_err(Failure::Usage)?;
    let look = Look::of_stdout(settings);
    let patience = || Patience::lasting(settings.timeout);
    let daemon = connect(settings, patience(), messages).await?;
    let planned = daemon.prune(before, Doing::Saying, patience()).await?;
    let is_nothing = counted(&planned.deleted).is_none();
    if wanted.dry_run || is_nothing || !wanted.yes {
        print_lines(&lines(&planned, before, Tense::Would, &look), &look)?;
    }
    if wanted.dry_run || is_nothing {
        return Ok(Exit::Done);
    }
    let daemon = if wanted.yes {
        daemon
    } else {
        // The daemon hangs up on who is silent, and a person may take their time.
        drop(daemon);
        if !confirm::can_ask() {
            return Err(Failure::NotDone {
                what: "nothing was deleted: nobody can be asked here".into(),
                hint: Some("--yes does it without asking".into()),
                exit: Exit::BadUsage,
            });
        }
        if !confirm::agreed(&question(&planned)) {
            return Err(Failure::NotDone {
                what: "nothing was deleted".into(),
                hint: None,
                exit: Exit::Failed,
            });
        }
        connect(settings, patience(), messages).await?
    };
    let patience = Patience::lasting(settings.timeout.max(DELETING));
    let report = daemon.prune(before, Doing::Doing, patience).await?;
    print_lines(&lines(&report, before, Tense::Done, &look), &look)?;
    Ok(Exit::Done)
}
