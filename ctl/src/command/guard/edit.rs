//! Edits the guard's rules and shows what changed.

use super::{host_warnings, now, open_connection};
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
use gpukill_policy::guard::consequences::{Consequence, predict_affected};
use gpukill_policy::guard::rules::RuleSet;
use gpukill_policy::guard::rules::edit::edit;
use gpukill_policy::guard::rules::parse::parse;
use gpukill_proto::guard::edit::GuardEdit;
use gpukill_proto::guard::{
    EditReport, GuardMode, GuardReport, OpenViolation, RulesRevision, ViolationPage, ViolationQuery,
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
    let change = RulesChange::Guard(Some(&requested));
    // Without the right, the edit itself is refused, and the refusal is recorded.
    let planned = match status.caller.rights.contains(&Right::EditRules) {
        true => Some(daemon.edit_rules(change, None, Mode::DryRun, timeout())?),
        false => None,
    };
    let EditConsequences {
        statement,
        mut effect,
    } = match &planned {
        Some(planned) => {
            predict_consequences((&requested, planned), &status.guard, &daemon, settings)
        }
        None => EditConsequences::default(),
    };
    let view = |doing| EditView {
        doing,
        difference: Difference::from_options(options),
        statement: &statement,
    };
    let may_end = effect.as_ref().is_some_and(EditEffect::may_end_jobs);
    let is_question = may_end && mode == Mode::Apply && !options.yes;
    let (daemon, expected) = match planned.as_ref().filter(|_| is_question) {
        Some(planned) => {
            // The daemon hangs up on an idle connection, and a person may take time to answer.
            drop(daemon);
            let style = OutputStyle::for_stdout(settings);
            let view = view(Mode::DryRun);
            let shown = guard::edit_lines(planned, view, effect.as_ref(), now(), &style);
            confirm::print_subject(&shown, &style)?;
            confirm::require_agreement("make this change?", "nothing was changed")?;
            effect = effect.map(EditEffect::without_jobs);
            let daemon = open_connection(settings)?;
            (daemon, planned.before.clone())
        }
        None => (daemon, None),
    };
    let report = match planned.filter(|_| mode == Mode::DryRun) {
        Some(planned) => planned,
        None => daemon.edit_rules(change, expected.as_ref(), mode, timeout())?,
    };
    let shown = (view(mode), effect.as_ref());
    print_edit(&report, shown, settings, || {
        host_warnings::edit_warnings(&requested, &daemon, timeout())
    })
}

/// The consequences of an edit of the rules as the daemon holds them, before it is made.
fn predict_consequences(
    (requested, planned): (&GuardEdit, &EditReport),
    before: &GuardReport,
    daemon: &Daemon,
    settings: &Settings,
) -> EditConsequences {
    let timeout = settings.request_timeout();
    let (revision, held) = match daemon.rules(RulesKind::Guard, timeout) {
        Ok((_, revision, held)) => (revision, held),
        // The edit is made nevertheless.
        Err(why) => {
            settings
                .messages()
                .warn(&format!("the affected jobs are not known: {why}"));
            return EditConsequences::default();
        }
    };
    let new = edited_rules(requested, &held);
    if changes_mode(requested, new.as_ref(), before.mode) {
        let (asked, revision) = ((requested, planned), revision.as_ref());
        let effect =
            |(_, rules)| mode_change_effect(asked, rules, revision, before, (daemon, timeout));
        return EditConsequences {
            statement: String::new(),
            effect: new.and_then(effect),
        };
    }
    let is_same_text = new.as_ref().is_some_and(|(text, _)| *text == held);
    if is_same_text && revision == before.revision {
        return EditConsequences::default();
    }
    edit_consequences((requested, &held), new, planned, before)
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
    (requested, planned): (&GuardEdit, &EditReport),
    rules: RuleSet,
    revision: Option<&RulesRevision>,
    before: &GuardReport,
    (daemon, timeout): (&Daemon, RequestTimeout),
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
            exempt: Vec::new(),
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
    let affected = affected_jobs(planned, &CompiledRules::new(rules), now);
    // The deadlines of the same mode stay. Only doubted rules act again, once confirmed.
    let open = match was {
        PreviousState::SameMode => with_open_violations(affected.open, daemon, now, timeout),
        PreviousState::OtherMode
        | PreviousState::Stopped
        | PreviousState::Edited
        | PreviousState::EditedMode
        | PreviousState::StaysStopped => affected.open,
    };
    Some(EditEffect {
        mode,
        previous: was,
        open,
        exempt: affected.exempt,
    })
}

/// The open violations, each with its consequence if it is affected.
fn with_open_violations(
    affected: Result<Vec<(OpenViolation, Consequence)>, String>,
    daemon: &Daemon,
    now: Timestamp,
    timeout: RequestTimeout,
) -> Result<Vec<(OpenViolation, Consequence)>, String> {
    let affected = affected?;
    // Includes the violations of jobs that a dry run counts as ended, because these continue.
    let page = open_violations(daemon, now, timeout).map_err(|why| why.to_string())?;
    let open = page.open.into_iter().map(|open| {
        let mut affected = affected.iter();
        let is_it = |(it, _): &&(OpenViolation, Consequence)| {
            (&it.rule, &it.subject) == (&open.rule, &open.subject)
        };
        let consequence = affected.find(is_it).map(|(_, consequence)| *consequence);
        (open, consequence.unwrap_or(Consequence::Nothing))
    });
    Ok(open.collect())
}

/// The consequences of any other edit, with its result `new`. Without mistakes in the rules they
/// are known.
pub(super) fn edit_consequences(
    (requested, held): (&GuardEdit, &str),
    new: EditedRules,
    planned: &EditReport,
    before: &GuardReport,
) -> EditConsequences {
    let Some((_, rules)) = new else {
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
        effect: held.and_then(|_| edit_effect(rules, planned, before)),
    }
}

/// The violations of rules that an edit changes or that it makes applicable.
fn edit_effect(rules: RuleSet, planned: &EditReport, before: &GuardReport) -> Option<EditEffect> {
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
        return (before.mode != mode).then_some(EditEffect {
            mode,
            previous: was,
            open: Ok(Vec::new()),
            exempt: Vec::new(),
        });
    }
    let affected = affected_jobs(planned, &CompiledRules::new(rules), now());
    Some(EditEffect {
        mode,
        previous: was,
        open: affected.open,
        exempt: affected.exempt,
    })
}

/// The violations that an edit begins or restarts.
struct AffectedJobs {
    /// Each with its consequence; or why they are not known.
    open: Result<Vec<(OpenViolation, Consequence)>, String>,
    /// Why no job is ended for some.
    exempt: Vec<String>,
}

/// What the daemon found of a planned edit, with its consequences by the new rules.
fn affected_jobs(planned: &EditReport, rules: &CompiledRules, now: Timestamp) -> AffectedJobs {
    let Some(affected) = &planned.affected else {
        return AffectedJobs {
            open: Err("the guard does not answer in time".to_owned()),
            exempt: Vec::new(),
        };
    };
    let (mut open, mut exempt) = (Vec::new(), Vec::new());
    for it in affected {
        let consequence = predict_affected(it, rules, now);
        if let (Consequence::Exempt, Some(why)) = (consequence, &it.exempt) {
            exempt.push(format!("{}, {}: {why}", it.open.subject, it.open.rule));
        }
        open.push((it.open.clone(), consequence));
    }
    AffectedJobs {
        open: Ok(open),
        exempt,
    }
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
