//! Changes the rules, and shows what that changed.

use super::{connect, here, now};
use crate::args::Edit;
use crate::command::rules::without_its_line;
use crate::connect::{Change, Daemon, Doing, Patience, RulesOf};
use crate::exit::{Exit, Failure};
use crate::output::guard::{Turn, Was};
use crate::output::look::Look;
use crate::output::message::Messages;
use crate::output::{guard, print_lines};
use crate::settings::Settings;
use gpukill_policy::guard::Rulebook;
use gpukill_policy::guard::affected::comes;
use gpukill_policy::guard::edit::edit;
use gpukill_policy::guard::read::read;
use gpukill_proto::guard::edit::GuardEdit;
use gpukill_proto::guard::{GuardMode, GuardReport, ViolationQuery};

/// Makes one edit, or says what it would change.
pub(super) async fn run(
    asked: GuardEdit,
    how: &Edit,
    settings: &Settings,
    messages: Messages,
) -> Result<Exit, Failure> {
    let daemon = connect(settings, Patience::lasting(settings.timeout), messages).await?;
    let doing = if how.dry_run {
        Doing::Saying
    } else {
        Doing::Doing
    };
    let patience = Patience::lasting(settings.timeout);
    let before = match is_of_mode(&asked) {
        true => Some(daemon.status(patience).await?.guard),
        false => None,
    };
    let report = daemon
        .edit_rules(Change::Guard(Some(&asked)), None, doing, patience)
        .await?;
    let look = Look::of_stdout(settings);
    let turn = match &before {
        Some(before) => turn(&asked, before, doing, &daemon, patience).await,
        None => None,
    };
    print_lines(
        &guard::edited(&report, doing, turn.as_ref(), now(), &look),
        &look,
    )?;
    for warning in &report.warnings {
        messages.warn(warning);
    }
    for warning in here::about_edit(&asked, &daemon, patience).await {
        messages.warn(&without_its_line(warning).to_string());
    }
    Ok(Exit::Done)
}

/// Whether it is an edit of how far the guard goes.
fn is_of_mode(asked: &GuardEdit) -> bool {
    match asked {
        GuardEdit::SetMode(_) | GuardEdit::ToggleDryRun => true,
        GuardEdit::SetKey { path, .. } => path == "global.enabled",
        GuardEdit::SetPolicy { .. } | GuardEdit::RemovePolicy { .. } | GuardEdit::Replace(_) => {
            false
        }
    }
}

/// What such an edit comes to; `None` where that cannot be told: it is made all the same.
async fn turn(
    asked: &GuardEdit,
    before: &GuardReport,
    doing: Doing,
    daemon: &Daemon,
    patience: Patience,
) -> Option<Turn> {
    let (_, _, text) = daemon.rules(RulesOf::Guard, patience).await.ok()?;
    let text = match doing {
        Doing::Doing => text,
        Doing::Saying => edit(&text, asked).ok()?,
    };
    let rules = read(&text).ok()?;
    let mode = rules.mode;
    // Only what sets the mode has a guard that has stopped go on.
    let goes_on = matches!(asked, GuardEdit::SetMode(_) | GuardEdit::ToggleDryRun);
    let has_stopped = before.tripped_at.is_some();
    if has_stopped && !goes_on {
        return None;
    }
    let was = match (before.mode == mode, has_stopped) {
        (_, true) if mode > GuardMode::DryRun => Was::Stopped,
        (true, _) => Was::Same,
        (false, _) => Was::Other,
    };
    let now = now();
    let standing = ViolationQuery {
        since: now,
        until: now.plus_seconds(1),
        user: None,
        before: None,
        limit: 1,
    };
    let page = daemon.violations(&standing, patience).await.ok()?;
    // Who counts as gone in a dry run is there still.
    let gone = match was {
        Was::Other | Was::Stopped => page.would_have_ended,
        Was::Same => Vec::new(),
    };
    let book = Rulebook::of(rules);
    let open = page.open.into_iter().chain(gone);
    let open = open.map(|open| {
        let comes = comes(&open, &book);
        (open, comes)
    });
    Some(Turn {
        mode,
        was,
        open: open.collect(),
    })
}
