//! Edits the guard's rules and shows what changed.

use super::{host_warnings, now, open_connection, replay};
use crate::args::EditOptions;
use crate::command::confirm;
use crate::command::rules::{EditConsequences, print_edit};
use crate::connect::{Daemon, Mode, RequestTimeout, RulesChange, RulesKind, call};
use crate::exit::{Error, Exit};
use crate::output::guard::rules::{Difference, EditView};
use crate::output::guard::{self, EditEffect, PreviousState};
use crate::output::style::OutputStyle;
use crate::settings::Settings;
use gpukill_policy::guard::CompiledRules;
use gpukill_policy::guard::consequences::{Consequence, ConsequenceReason, predict_consequence};
use gpukill_policy::guard::restarted::count_restarted;
use gpukill_policy::guard::rules::RuleSet;
use gpukill_policy::guard::rules::edit::edit;
use gpukill_policy::guard::rules::parse::parse;
use gpukill_proto::guard::edit::GuardEdit;
use gpukill_proto::guard::{
    GuardMode, GuardReport, OpenViolation, RulesRevision, ViolationPage, ViolationQuery,
};
use gpukill_proto::status::Right;
use gpukill_proto::units::Timestamp;

/// Makes one edit, or shows what it would change. Asks before an edit that would end jobs.
pub(super) fn run(
    requested: GuardEdit,
    options: &EditOptions,
    settings: &Settings,
) -> Result<Exit, Error> {
    let timeout = || settings.request_timeout();
    let daemon = open_connection(settings)?;
    let mode = Mode::from_dry_run(options.dry_run);
    let status = call!(daemon, timeout(), Status {})?;
    // Without the right, the edit itself is refused, and the refusal is recorded.
    let EditConsequences {
        statement,
        mut effect,
    } = match status.caller.rights.contains(&Right::EditRules) {
        true => predict_consequences(&requested, &status.guard, &daemon, settings),
        false => EditConsequences::default(),
    };
    let view = |doing| EditView {
        doing,
        difference: Difference::from_options(options),
        statement: &statement,
    };
    let change = RulesChange::Guard(Some(&requested));
    let may_end = effect.as_ref().is_some_and(EditEffect::may_end_jobs);
    let (daemon, expected) = if may_end && mode == Mode::Apply && !options.yes {
        let planned = daemon.edit_rules(change, None, Mode::DryRun, timeout())?;
        // The daemon hangs up on an idle connection, and a person may take time to answer.
        drop(daemon);
        let style = OutputStyle::for_stdout(settings);
        let shown = guard::edit_lines(&planned, view(Mode::DryRun), effect.as_ref(), now(), &style);
        confirm::print_subject(&shown, &style)?;
        confirm::require_agreement("make this change?", "nothing was changed")?;
        effect = effect.map(EditEffect::without_jobs);
        (open_connection(settings)?, planned.before)
    } else {
        (daemon, None)
    };
    let report = daemon.edit_rules(change, expected.as_ref(), mode, timeout())?;
    let shown = (view(mode), effect.as_ref());
    print_edit(&report, shown, settings, || {
        host_warnings::edit_warnings(&requested, &daemon, timeout())
    })
}

/// The consequences of an edit of the rules as the daemon holds them, before it is made.
fn predict_consequences(
    requested: &GuardEdit,
    before: &GuardReport,
    daemon: &Daemon,
    settings: &Settings,
) -> EditConsequences {
    let timeout = settings.request_timeout();
    let (revision, held) = match daemon.rules(RulesKind::Guard, timeout) {
        Ok((_, revision, held)) => (revision, held),
        // The edit is made nevertheless.
        Err(why) => {
            let messages = settings.messages();
            messages.warn(&format!("the affected jobs are not known: {why}"));
            return EditConsequences::default();
        }
    };
    let new = edited_rules(requested, &held);
    if changes_mode(requested, new.as_ref(), before.mode) {
        let revision = revision.as_ref();
        let effect = |new| mode_change_effect(requested, new, revision, before, (daemon, settings));
        return EditConsequences {
            statement: String::new(),
            effect: new.and_then(effect),
        };
    }
    let is_same_text = new.as_ref().is_some_and(|(text, _)| *text == held);
    if is_same_text && revision == before.revision {
        return EditConsequences::default();
    }
    edit_consequences((requested, &held), new, before, daemon, settings)
}

/// The text and the rules after an edit; `None` if the edit is refused.
pub(super) type EditedRules = Option<(String, RuleSet)>;

/// Applies an edit to the rules in `held`.
pub(super) fn edited_rules(requested: &GuardEdit, held: &str) -> EditedRules {
    let text = edit(held, requested).ok()?;
    let rules = parse(&text).ok()?;
    Some((text, rules))
}

/// Whether the edit changes the guard's mode, which was `before`.
fn changes_mode(requested: &GuardEdit, new: Option<&(String, RuleSet)>, before: GuardMode) -> bool {
    match requested {
        GuardEdit::SetMode(_) | GuardEdit::ToggleDryRun => true,
        GuardEdit::SetKey { path, .. } if path == "global.enabled" => true,
        GuardEdit::SetKey { .. } => new.is_some_and(|(_, rules)| rules.mode != before),
        GuardEdit::SetPolicy { .. } | GuardEdit::RemovePolicy { .. } | GuardEdit::Replace(_) => {
            false
        }
    }
}

/// The effect of an edit of the mode, with its result; `revision` is that of the edited file.
/// `None` when it cannot be determined, which does not prevent the edit.
fn mode_change_effect(
    requested: &GuardEdit,
    (text, rules): (String, RuleSet),
    revision: Option<&RulesRevision>,
    before: &GuardReport,
    (daemon, settings): (&Daemon, &Settings),
) -> Option<EditEffect> {
    let mode = rules.mode;
    // A stopped guard resumes only by an edit that sets the mode.
    let continues = matches!(requested, GuardEdit::SetMode(_) | GuardEdit::ToggleDryRun);
    let has_stopped = before.tripped_at.is_some();
    if has_stopped && !continues && mode > GuardMode::DryRun {
        return (before.mode != mode).then(|| EditEffect {
            mode,
            previous: PreviousState::StaysStopped,
            open: Ok(Vec::new()),
        });
    }
    // A disabled guard evaluates nothing, and the edit also puts a changed file in force.
    let is_unevaluated = mode > GuardMode::DryRun
        && (before.mode == GuardMode::Disabled || revision != before.revision.as_ref());
    let was = match (before.mode == mode && !is_unevaluated, has_stopped) {
        (_, true) if mode > GuardMode::DryRun => PreviousState::Stopped,
        (true, _) => PreviousState::SameMode,
        (false, _) => PreviousState::OtherMode,
    };
    let now = now();
    let rules = CompiledRules::new(rules);
    // The deadlines of the same mode stay. Only doubted rules act again, once confirmed.
    let is_doubted = before.doubt.is_some_and(|doubt| doubt.only_warn);
    let is_new = |open: &OpenViolation| {
        was != PreviousState::SameMode || (is_doubted && open.rule.kind.is_behaviour())
    };
    let open = match is_unevaluated {
        true => replay::evaluate_open_violations(&text, daemon, settings),
        // Includes the violations of jobs that a dry run counts as ended, because these continue.
        false => {
            let timeout = RequestTimeout::starting_now(settings.timeout);
            open_violations(daemon, now, timeout).map(|page| page.open)
        }
    };
    let open = open.map(|open| {
        let open = open.into_iter();
        let open =
            open.filter(|open| was == PreviousState::SameMode || open.not_broken_since.is_none());
        let open = open.map(|open| {
            let consequence = match is_new(&open) {
                true => predict_consequence(&open, &rules, now),
                false => Consequence::Nothing,
            };
            (open, consequence)
        });
        open.collect()
    });
    let open = open.map_err(|why| why.to_string());
    Some(EditEffect {
        mode,
        previous: was,
        open,
    })
}

/// The consequences of any other edit, with its result `new`. Without mistakes in the rules they
/// are known.
pub(super) fn edit_consequences(
    (requested, held): (&GuardEdit, &str),
    new: EditedRules,
    before: &GuardReport,
    daemon: &Daemon,
    settings: &Settings,
) -> EditConsequences {
    let Some((text, rules)) = new else {
        return EditConsequences {
            statement: requested.to_string(),
            effect: None,
        };
    };
    let held = parse(held).ok();
    let no_rules = RuleSet::default();
    let known = held.as_ref().unwrap_or(&no_rules);
    EditConsequences {
        statement: guard::edit_statement(requested, known, &rules, before),
        effect: held.and_then(|held| edit_effect(&text, (held, rules), before, daemon, settings)),
    }
}

/// The violations of rules that an edit changes or that it makes applicable.
fn edit_effect(
    text: &str,
    (held, rules): (RuleSet, RuleSet),
    before: &GuardReport,
    daemon: &Daemon,
    settings: &Settings,
) -> Option<EditEffect> {
    let mode = rules.mode;
    let was = match before.mode == mode {
        true => PreviousState::Edited,
        false => PreviousState::EditedMode,
    };
    let is_stopped = before.tripped_at.is_some() && mode > GuardMode::DryRun;
    if mode == GuardMode::Disabled || is_stopped {
        let was = match is_stopped {
            true => PreviousState::StaysStopped,
            false => PreviousState::EditedMode,
        };
        let open = Ok(Vec::new());
        return (before.mode != mode).then_some(EditEffect {
            mode,
            previous: was,
            open,
        });
    }
    let compiled = (&CompiledRules::new(held), &CompiledRules::new(rules));
    let open = affected_violations(text, compiled, before, daemon, settings);
    let open = open.map_err(|why| why.to_string());
    Some(EditEffect {
        mode,
        previous: was,
        open,
    })
}

/// The violations by the rules in `text` that the previous rules, `held`, did not have.
fn affected_violations(
    text: &str,
    (held, rules): (&CompiledRules, &CompiledRules),
    before: &GuardReport,
    daemon: &Daemon,
    settings: &Settings,
) -> Result<Vec<(OpenViolation, Consequence)>, Error> {
    let now = now();
    let open = replay::evaluate_open_violations(text, daemon, settings)?;
    let page = open_violations(daemon, now, settings.request_timeout())?;
    let continues = |open: &OpenViolation| {
        let mut known = page.open.iter();
        let is_known = known.any(|it| (&it.rule, &it.subject) == (&open.rule, &open.subject));
        is_known && count_restarted(std::slice::from_ref(open), held, rules) == 0
    };
    let only_warns = before.doubt.is_some_and(|doubt| doubt.only_warn);
    let open = open.into_iter().filter(|open| !continues(open));
    let open = open.map(|open| {
        let consequence = match predict_consequence(&open, rules, now) {
            Consequence::EndsAtOnce | Consequence::EndsNotBefore(_)
                if only_warns && open.rule.kind.is_behaviour() =>
            {
                Consequence::Warned(ConsequenceReason::Rule)
            }
            consequence => consequence,
        };
        (open, consequence)
    });
    Ok(open.collect())
}

pub(super) fn open_violations(
    daemon: &Daemon,
    now: Timestamp,
    timeout: RequestTimeout,
) -> Result<ViolationPage, Error> {
    let query = ViolationQuery {
        since: now,
        until: now.plus_seconds(1),
        user: None,
        before: None,
        limit: 1,
    };
    call!(daemon, timeout, Violations { query })
}
