//! The rules in force of one kind, their file, and edits of it.
//!
//! A file with mistakes changes nothing: the rules in force stay, and all mistakes are reported. An
//! edit reads the file as it is at that moment, so that no edit is lost, whether it was made with
//! the client or with an editor; if it also loads a pending hand edit, it says so. The content of
//! the rules is known to their [`RulesKind`].

pub(crate) mod file;
mod kind;

use crate::evaluator::{EvaluatorError, EvaluatorRequest, run_in_child};
use crate::log_events::event;
use crate::store::{Action, ActionKind, RecordedEvent, Store};
use file::Durability;
use gpukill_policy::digest::digest_text;
use gpukill_policy::guard::rules::diff::unified_diff;
use gpukill_proto::guard::edit::Lint;
use gpukill_proto::guard::{EditReport, RulesRevision, RulesText};
use gpukill_proto::refusal::Refusal;
use gpukill_proto::service::MAX_PART_BYTES;
pub(crate) use kind::{RulesInForce, RulesKind, RulesMistake};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use tokio::sync::watch;

#[derive(Debug)]
pub(crate) struct EditResult<R> {
    pub(crate) report: EditReport,
    pub(crate) rules: R,
}

pub(crate) struct RuleStore<K: RulesKind> {
    path: PathBuf,
    in_force: watch::Sender<RulesInForce<K::Rules>>,
    store: Store,
    editing: Mutex<()>,
    /// Replaces the text of the file.
    pub(crate) replace: fn(&Path, &str) -> std::io::Result<Durability>,
}

impl<K: RulesKind> RuleStore<K> {
    /// Reads the file at `path`. If it has mistakes, `before` stays in force: the rules of the
    /// previous run.
    pub(crate) fn start(path: PathBuf, before: Option<String>, store: Store) -> Self {
        let before = before.and_then(|text| parse::<K>(Some(text)).ok());
        let built_in = || RulesInForce::new(K::built_in(), "", None);
        let (in_force, _) = watch::channel(before.unwrap_or_else(built_in));
        let rule_store = Self {
            path,
            in_force,
            store,
            editing: Mutex::default(),
            replace: file::replace,
        };
        // Records the rules in force if they differ from those before.
        rule_store.reload();
        rule_store
    }

    /// A receiver of the rules in force, which is woken when they change.
    pub(crate) fn subscribe(&self) -> watch::Receiver<RulesInForce<K::Rules>> {
        self.in_force.subscribe()
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Reads the file again. Mistakes keep the old rules in force, and are logged.
    pub(crate) fn reload(&self) {
        let _one_at_a_time = self.lock();
        match file::read(&self.path) {
            Ok(text) => {
                let named = text.as_deref().map(text_revision);
                match check_in_child::<K>(text.as_deref()).and_then(|()| parse::<K>(text)) {
                    Ok(new) => self.put_in_force(new),
                    Err(mistakes) => self.keep_old(mistakes, named),
                }
            }
            Err(error) => self.keep_old(vec![RulesMistake::unreadable(&error)], None),
        }
    }

    /// Whether the file has changed since it was last read.
    pub(crate) fn is_changed(&self) -> bool {
        let _no_edit_meanwhile = self.lock();
        let written = file::read(&self.path);
        let in_force = self.in_force.borrow();
        let was_right = in_force.mistakes.is_empty();
        match written {
            Ok(text) => {
                let last_read = match was_right {
                    true => &in_force.revision,
                    false => &in_force.mistaken_revision,
                };
                text.as_deref().map(text_revision) != *last_read
            }
            Err(_) => was_right,
        }
    }

    /// The fault if the file has mistakes.
    pub(crate) fn fault(&self) -> Option<String> {
        let in_force = self.in_force.borrow();
        // All users see faults, but only those who may edit the file may see a quotation from it.
        let first = in_force.mistakes.first()?.position();
        let more = match in_force.mistakes.len() {
            1 => String::new(),
            several => format!(", and {} more", several - 1),
        };
        let holds = match in_force.revision {
            Some(_) => "the previous rules stay in force",
            None => "the built-in rules apply",
        };
        let file = self.path.display();
        let check = K::CHECK_COMMAND;
        Some(format!(
            "{file}: {first}{more}: {holds}; see {check} {file}"
        ))
    }

    /// Changes the file, or only reports what that would change. `expected` is the revision that
    /// the caller has seen; `lint_warnings` returns warnings from the rules in force and the new
    /// ones.
    ///
    /// # Errors
    /// All mistakes in the new rules, or why they cannot be written or recorded.
    pub(crate) fn change(
        &self,
        uid: u32,
        asked: &K::Edit,
        expected: Option<&RulesRevision>,
        is_dry_run: bool,
        lint_warnings: impl FnOnce(&K::Rules, &K::Rules) -> Vec<String>,
    ) -> Result<EditResult<K::Rules>, Refusal> {
        let _one_at_a_time = self.lock();
        let written = self.read_file()?;
        let before = written.as_deref().map(text_revision);
        let name = self.path.display().to_string();
        if expected.is_some() && expected != before.as_ref() {
            return Err(Refusal::Invalid(format!(
                "{name} has changed since you read it: read it again"
            )));
        }
        let in_force = self.in_force.borrow().clone();
        let is_gone = written.is_none() && in_force.revision.is_some();
        if is_gone && K::replacement_text(asked).is_none() {
            return Err(Refusal::Invalid(format!(
                "{name} is gone, but its rules are still in force: restore it, or reload gpukilld \
                 (systemctl reload gpukilld) to continue without them"
            )));
        }
        check_in_child::<K>(K::replacement_text(asked))
            .map_err(|wrong| mistakes_refusal(&wrong))?;
        let text = written.as_deref().unwrap_or_default();
        let new = K::apply_edit(text, asked, &in_force.rules).map_err(Refusal::Invalid)?;
        let rules = parse::<K>(Some(new.clone())).map_err(|wrong| mistakes_refusal(&wrong))?;
        let says = match K::replacement_text(asked) {
            Some(_) => EditExtent::Everything,
            None => EditExtent::Part,
        };
        let unloaded = unloaded_changes_warning(&name, (&in_force.text, text, &new), says);
        // A hand edit that was not loaded is not in force.
        let held = match unloaded {
            Some(_) => format!("{name} (in force)"),
            None => name.clone(),
        };
        let mut report = EditReport {
            before,
            after: text_revision(&new),
            difference: unified_diff((&held, &in_force.text), (&name, &new)),
            warnings: unloaded
                .into_iter()
                .chain(lint_warnings(&in_force.rules, &rules.rules))
                .collect(),
            affected: None,
        };
        let is_written = written.as_deref() == Some(&new);
        let reply = rules.rules.clone();
        let is_in_force = in_force.revision == rules.revision && in_force.mistakes.is_empty();
        if is_dry_run || (is_written && is_in_force) {
            return Ok(EditResult {
                report,
                rules: reply,
            });
        }
        if !is_written {
            let warning = self.write_recorded(uid, asked, &report, &new)?;
            report.warnings.extend(warning);
        }
        self.put_in_force(rules);
        Ok(EditResult {
            report,
            rules: reply,
        })
    }

    /// Writes the file. The action is recorded before, and its outcome after; returns a warning if
    /// a power loss may undo it.
    fn write_recorded(
        &self,
        uid: u32,
        asked: &K::Edit,
        report: &EditReport,
        new: &str,
    ) -> Result<Option<String>, Refusal> {
        let plan = serde_json::json!({
            "before": report.before.as_ref().map(|it| &it.0),
            "after": report.after.0,
            "difference": report.difference,
        });
        let action = Action {
            kind: ActionKind::EditRules,
            uid,
            request: format!("{}{asked}", K::KIND.record_prefix()),
            plan: plan.to_string(),
        };
        let unavailable = |why: String| Refusal::Unavailable(why);
        let open = self.store.record_intent(action).map_err(|why| {
            unavailable(format!(
                "the edit cannot be recorded, so it is not made: {why}"
            ))
        })?;
        match (self.replace)(&self.path, new) {
            Ok(Durability::Durable) => {
                open.settle("done", "{}".into());
                Ok(None)
            }
            Ok(Durability::NotSynced(error)) => {
                let warning = durability_warning(&self.path.display().to_string(), &error);
                let outcome = serde_json::json!({ "warning": warning });
                open.settle("done", outcome.to_string());
                Ok(Some(warning))
            }
            Err(error) => {
                let why = format!("cannot write {}: {error}", self.path.display());
                open.settle("failed", serde_json::json!({ "why": why }).to_string());
                Err(unavailable(why))
            }
        }
    }

    /// A part of the written text, from this byte on.
    pub(crate) fn text(&self, offset: u64) -> Result<RulesText, Refusal> {
        let text = self.read_file()?;
        let revision = text.as_deref().map(text_revision);
        Ok(self.text_part(revision, text.as_deref().unwrap_or_default(), offset))
    }

    /// A part of the text in force, from this byte on.
    pub(crate) fn text_in_force(&self, offset: u64) -> RulesText {
        let in_force = self.in_force.borrow();
        self.text_part(in_force.revision.clone(), &in_force.text, offset)
    }

    fn text_part(&self, revision: Option<RulesRevision>, text: &str, offset: u64) -> RulesText {
        let bytes = text.as_bytes();
        let from = usize::try_from(offset)
            .unwrap_or(usize::MAX)
            .min(bytes.len());
        let until = from.saturating_add(MAX_PART_BYTES).min(bytes.len());
        RulesText {
            file: self.path.display().to_string(),
            revision,
            part: bytes[from..until].to_vec(),
        }
    }

    fn read_file(&self) -> Result<Option<String>, Refusal> {
        file::read(&self.path).map_err(|error| {
            Refusal::Unavailable(format!("cannot read {}: {error}", self.path.display()))
        })
    }

    /// Puts rules in force, and records them if they differ from those before.
    fn put_in_force(&self, new: RulesInForce<K::Rules>) {
        let is_new = self.in_force.borrow().revision != new.revision;
        K::log_in_force(&new.rules, new.revision.as_ref().map(|it| it.0.as_str()));
        self.in_force.send_replace(new);
        if is_new {
            self.record();
        }
    }

    fn keep_old(&self, mistakes: Vec<RulesMistake>, mistaken: Option<RulesRevision>) {
        let file = self.path.display().to_string();
        for mistake in &mistakes {
            event!(RulesRefused, file, mistake = mistake.to_string());
        }
        self.in_force.send_modify(|rules| {
            rules.mistakes = mistakes;
            rules.mistaken_revision = mistaken;
        });
    }

    fn record(&self) {
        let rules = self.in_force.borrow();
        self.store.record(RecordedEvent::Rules {
            rule_set: K::KIND,
            revision: rules.revision.as_ref().map(|rules| rules.0.clone()),
            text: rules.text.to_string(),
        });
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, ()> {
        self.editing.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The lints that rules did not have before an edit. The lines may have moved.
pub(crate) fn new_lints(before: &[Lint], after: Vec<Lint>) -> Vec<String> {
    let is_known = |lint: &Lint| {
        let mut before = before.iter();
        before.any(|it| (&it.path, &it.what) == (&lint.path, &lint.what))
    };
    let new = after.into_iter().filter(|lint| !is_known(lint));
    new.map(|lint| lint.to_string()).collect()
}

/// The mistakes of a text, as the daemon would find them when it reads the file.
pub(crate) fn check_rules<K: RulesKind>(text: &str) -> Result<(), Vec<RulesMistake>> {
    K::parse(text).map(drop).map_err(RulesMistake::truncate)
}

pub(crate) fn mistakes_refusal<M: ToString>(mistakes: &[M]) -> Refusal {
    let lines: Vec<String> = mistakes.iter().map(M::to_string).collect();
    Refusal::Invalid(lines.join("\n"))
}

pub(crate) fn text_revision(text: &str) -> RulesRevision {
    RulesRevision(digest_text(text).to_string())
}

/// Lets a child read a text, so that a text that crashes it or takes much memory does not affect
/// the daemon.
fn check_in_child<K: RulesKind>(text: Option<&str>) -> Result<(), Vec<RulesMistake>> {
    // The program of the unit tests is not gpukilld.
    let Some(text) = text.filter(|_| !cfg!(test)) else {
        return Ok(());
    };
    match run_in_child(&EvaluatorRequest::check(K::KIND, text), &|| true) {
        Ok(answer) => answer,
        Err(EvaluatorError::Ended(why)) => Err(vec![RulesMistake::at_position(None, why)]),
        Err(EvaluatorError::Cancelled) => Err(Vec::new()),
    }
}

/// Parses a text; without a text, the built-in defaults apply.
pub(crate) fn parse<K: RulesKind>(
    text: Option<String>,
) -> Result<RulesInForce<K::Rules>, Vec<RulesMistake>> {
    let Some(text) = text else {
        return Ok(RulesInForce::new(K::built_in(), "", None));
    };
    let rules = K::parse(&text)?;
    Ok(RulesInForce::new(rules, &text, Some(text_revision(&text))))
}

/// How much of the rules an edit replaces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum EditExtent {
    Everything,
    Part,
}

/// A warning about a hand edit that is not in force yet.
fn unloaded_changes_warning(
    name: &str,
    (held, written, new): (&str, &str, &str),
    says: EditExtent,
) -> Option<String> {
    if held == written {
        return None;
    }
    let becomes = match says {
        EditExtent::Everything if written != new => "these rules replace them too",
        EditExtent::Everything | EditExtent::Part => "they come into force with this edit",
    };
    Some(format!(
        "{name} has changes that are not loaded yet: {becomes}"
    ))
}

/// A warning that a power loss may undo the edit.
fn durability_warning(name: &str, error: &std::io::Error) -> String {
    format!(
        "{name} is changed and in force, but not known to be on the disk, and may not survive a \
         power loss: {error}"
    )
}
