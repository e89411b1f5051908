//! Changes the rules, and shows what that changed.

use super::{connect, here, now, replay};
use crate::args::Edit;
use crate::command::rules::without_its_line;
use crate::connect::{Change, Daemon, Doing, Patience, RulesOf};
use crate::exit::{Exit, Failure};
use crate::output::guard::{Turn, Was};
use crate::output::look::Look;
use crate::output::message::Messages;
use crate::output::rules::is_nothing;
use crate::output::{guard, print_lines};
use crate::settings::Settings;
use gpukill_policy::guard::Rulebook;
use gpukill_policy::guard::affected::{Because, Comes, comes};
use gpukill_policy::guard::anew::begin_anew;
use gpukill_policy::guard::edit::edit;
use gpukill_policy::guard::read::read;
use gpukill_proto::guard::edit::GuardEdit;
use gpukill_proto::guard::{GuardMode, GuardReport, OpenViolation, ViolationPage, ViolationQuery};
use gpukill_proto::units::Timestamp;

/// Makes one edit, or says what it would change.
pub(super) fn run(
    asked: GuardEdit,
    how: &Edit,
    settings: &Settings,
    messages: Messages,
) -> Result<Exit, Failure> {
    let daemon = connect(settings, Patience::lasting(settings.timeout), messages)?;
    let doing = if how.dry_run {
        Doing::Saying
    } else {
        Doing::Doing
    };
    let patience = Patience::lasting(settings.timeout);
    let before = daemon.status(patience)?.guard;
    let held = daemon.rules(RulesOf::Guard, patience);
    let report = daemon.edit_rules(Change::Guard(Some(&asked)), None, doing, patience)?;
    let look = Look::of_stdout(settings);
    let turn = match &held {
        Ok((_, _, held)) if is_of_mode(&asked, held, before.mode) => {
            turn(&asked, (&before, held), &daemon, patience)
        }
        Ok((_, _, held)) if !is_nothing(&report) => {
            edited((&asked, held), &before, &daemon, (settings, messages))
        }
        Ok(_) => None,
        // The edit is made all the same.
        Err(why) => {
            messages.warn(&format!(
                "which jobs this affects could not be found out: {why}"
            ));
            None
        }
    };
    print_lines(
        &guard::edited(&report, doing, turn.as_ref(), now(), &look),
        &look,
    )?;
    for warning in &report.warnings {
        messages.warn(warning);
    }
    for warning in here::about_edit(&asked, &daemon, patience) {
        messages.warn(&without_its_line(warning).to_string());
    }
    Ok(Exit::Done)
}

/// Whether it is an edit of how far the guard goes, which was `before`.
fn is_of_mode(asked: &GuardEdit, held: &str, before: GuardMode) -> bool {
    match asked {
        GuardEdit::SetMode(_) | GuardEdit::ToggleDryRun => true,
        GuardEdit::SetKey { path, .. } if path == "global.enabled" => true,
        GuardEdit::SetKey { .. } => {
            let new = edit(held, asked).ok().and_then(|text| read(&text).ok());
            new.is_some_and(|rules| rules.mode != before)
        }
        GuardEdit::SetPolicy { .. } | GuardEdit::RemovePolicy { .. } | GuardEdit::Replace(_) => {
            false
        }
    }
}

/// What such an edit comes to; `None` where that cannot be told: it is made all the same.
fn turn(
    asked: &GuardEdit,
    (before, held): (&GuardReport, &str),
    daemon: &Daemon,
    patience: Patience,
) -> Option<Turn> {
    let rules = read(&edit(held, asked).ok()?).ok()?;
    let mode = rules.mode;
    // Only what sets the mode has a guard that has stopped go on.
    let goes_on = matches!(asked, GuardEdit::SetMode(_) | GuardEdit::ToggleDryRun);
    let has_stopped = before.tripped_at.is_some();
    if has_stopped && !goes_on && mode > GuardMode::DryRun {
        return (before.mode != mode).then(|| Turn {
            mode,
            was: Was::StaysStopped,
            open: Ok(Vec::new()),
        });
    }
    let was = match (before.mode == mode, has_stopped) {
        (_, true) if mode > GuardMode::DryRun => Was::Stopped,
        (true, _) => Was::Same,
        (false, _) => Was::Other,
    };
    let now = now();
    let book = Rulebook::of(rules);
    // What a dry run counts as ended goes on, and is among these.
    let open = standing(daemon, now, patience).map(|page| {
        let open = page.open.into_iter();
        let open = open.filter(|open| was == Was::Same || open.not_broken_since.is_none());
        let open = open.map(|open| {
            let comes = comes(&open, &book, now);
            (open, comes)
        });
        open.collect()
    });
    let open = open.map_err(|why| why.to_string());
    Some(Turn { mode, was, open })
}

/// Who is affected by an edit other than one of the mode: those who now break a rule that
/// it changes, or that applies to them by it.
pub(super) fn edited(
    (asked, held): (&GuardEdit, &str),
    before: &GuardReport,
    daemon: &Daemon,
    (settings, messages): (&Settings, Messages),
) -> Option<Turn> {
    let text = edit(held, asked).ok()?;
    let (held, rules) = (read(held).ok()?, read(&text).ok()?);
    let mode = rules.mode;
    let was = match before.mode == mode {
        true => Was::Edited,
        false => Was::EditedMode,
    };
    let is_stopped = before.tripped_at.is_some() && mode > GuardMode::DryRun;
    if mode == GuardMode::Disabled || is_stopped {
        let was = match is_stopped {
            true => Was::StaysStopped,
            false => Was::EditedMode,
        };
        let open = Ok(Vec::new());
        return (before.mode != mode).then_some(Turn { mode, was, open });
    }
    let books = (&Rulebook::of(held), &Rulebook::of(rules));
    let open = affected(&text, books, before, daemon, (settings, messages));
    let open = open.map_err(|why| why.to_string());
    Some(Turn { mode, was, open })
}

/// The violations by the rules of this text that `held`, the rules of before, did not have.
fn affected(
    text: &str,
    (held, book): (&Rulebook, &Rulebook),
    before: &GuardReport,
    daemon: &Daemon,
    (settings, messages): (&Settings, Messages),
) -> Result<Vec<(OpenViolation, Comes)>, Failure> {
    let now = now();
    let open = replay::open_now(text, daemon, settings, messages)?;
    let page = standing(daemon, now, Patience::lasting(settings.timeout))?;
    let goes_on = |open: &OpenViolation| {
        let mut known = page.open.iter();
        let is_known = known.any(|it| (&it.rule, &it.subject) == (&open.rule, &open.subject));
        is_known && begin_anew(std::slice::from_ref(open), held, book) == 0
    };
    let only_warns = before.doubt.is_some_and(|doubt| doubt.only_warn);
    let open = open.into_iter().filter(|open| !goes_on(open));
    let open = open.map(|open| {
        let comes = match comes(&open, book, now) {
            Comes::EndsAtOnce | Comes::EndsNotBefore(_)
                if only_warns && open.rule.kind.is_of_behaviour() =>
            {
                Comes::Warned(Because::OfTheRule)
            }
            comes => comes,
        };
        (open, comes)
    });
    Ok(open.collect())
}

/// The violations that go on.
fn standing(daemon: &Daemon, now: Timestamp, patience: Patience) -> Result<ViolationPage, Failure> {
    let query = ViolationQuery {
        since: now,
        until: now.plus_seconds(1),
        user: None,
        before: None,
        limit: 1,
    };
    daemon.violations(&query, patience)
}
