//! The rules in force, the file they are written in, and its edits.
//!
//! A file that is wrong changes nothing: what was in force before stays, and every
//! mistake is told. An edit reads the file as it is at that moment, so that nobody's
//! edit is lost, neither an admin's with the client nor one's with an editor; what it
//! puts in force beyond itself, it tells.

use super::file::{self, Kept};
use crate::audit::{Act, ActKind, Event, Store};
use crate::catalogue::tell;
use crate::fingerprint::fingerprint;
use gpukill_policy::guard::Rulebook;
use gpukill_policy::guard::anew::begin_anew;
use gpukill_policy::guard::check::warnings;
use gpukill_policy::guard::diff::unified;
use gpukill_policy::guard::edit::edit;
use gpukill_policy::guard::read::read;
use gpukill_policy::guard::rules::Rules;
use gpukill_proto::guard::edit::{EditError, GuardEdit, Mistake};
use gpukill_proto::guard::{EditReport, GuardMode, OpenViolation, RulesRevision, RulesText};
use gpukill_proto::refusal::Refusal;
use gpukill_proto::service::LONGEST_PART;
use gpukill_proto::settings::place::Place;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::watch;
use told::{anew, limits_nobody, told, unread, unsafe_on_disk};

mod told;

#[cfg(test)]
mod tests;

/// Rules, and where they come from.
#[derive(Debug, Clone)]
pub(crate) struct InForce {
    pub(crate) book: Arc<Rulebook>,
    /// The same rules, by which nobody is warned or ended.
    pub(crate) rehearsing: Arc<Rulebook>,
    /// As they are written; empty where there is no file.
    pub(crate) text: Arc<str>,
    /// `None` where there is no file, and the built-in ones hold.
    pub(crate) revision: Option<RulesRevision>,
    /// Why the file as it was last read is not in force.
    pub(crate) mistakes: Vec<Wrong>,
    /// Names the text that has them.
    mistaken: Option<RulesRevision>,
}

/// What is wrong with a file of rules.
#[derive(Debug, Clone)]
pub(crate) enum Wrong {
    /// In what it says.
    Mistake(Mistake),
    /// It cannot be read.
    Unreadable(String),
}

impl Wrong {
    /// Where, without a word of what the file says.
    pub(crate) fn place(&self) -> String {
        match self {
            Self::Mistake(Mistake {
                place: Some(Place { line, column }),
                ..
            }) => format!("a mistake in line {line}, column {column}"),
            // A file that is read has lines.
            Self::Mistake(Mistake { place: None, .. }) => "a mistake".to_owned(),
            Self::Unreadable(why) => why.clone(),
        }
    }
}

impl fmt::Display for Wrong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Mistake(mistake) => mistake.fmt(f),
            Self::Unreadable(why) => f.write_str(why),
        }
    }
}

impl InForce {
    /// What holds where there is no file: nobody is limited.
    fn built_in() -> Self {
        Self::of(Rules::default(), "", None)
    }

    fn of(rules: Rules, text: &str, revision: Option<RulesRevision>) -> Self {
        let rehearsed = Rules {
            mode: rules.mode.min(GuardMode::DryRun),
            ..rules.clone()
        };
        Self {
            book: Arc::new(Rulebook::of(rules)),
            rehearsing: Arc::new(Rulebook::of(rehearsed)),
            text: text.into(),
            revision,
            mistakes: Vec::new(),
            mistaken: None,
        }
    }

    /// What they say.
    pub(crate) fn rules(&self) -> &Rules {
        self.book.rules()
    }
}

/// What an edit comes to.
#[derive(Debug)]
pub(super) struct Edited {
    pub(super) report: EditReport,
    /// The mode that the rules say then.
    pub(super) mode: GuardMode,
}

/// Keeps them.
pub(super) struct Keeper {
    path: PathBuf,
    in_force: watch::Sender<InForce>,
    store: Store,
    /// One edit at a time.
    editing: Mutex<()>,
    /// Puts a text in the place of the file's.
    replace: fn(&Path, &str) -> std::io::Result<Kept>,
}

impl Keeper {
    /// Reads the file at `path`. One that is wrong leaves `before` in force: what
    /// was so when the daemon last ran.
    pub(super) fn start(path: PathBuf, before: Option<String>, store: Store) -> Self {
        let before = before.and_then(|text| understood(Some(text)).ok());
        let (in_force, _) = watch::channel(before.unwrap_or_else(InForce::built_in));
        let keeper = Self {
            path,
            in_force,
            store,
            editing: Mutex::default(),
            replace: file::replace,
        };
        // What is in force is recorded where it is not what was so before.
        keeper.reload();
        keeper
    }

    /// Whoever reads this sees what is in force, and is woken when it changes.
    pub(super) fn subscribe(&self) -> watch::Receiver<InForce> {
        self.in_force.subscribe()
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Reads the file again. Mistakes keep the old rules, and say so.
    pub(super) fn reload(&self) {
        let _one_at_a_time = self.lock();
        match file::read(&self.path) {
            Ok(text) => {
                let named = text.as_deref().map(revision);
                match understood(text) {
                    Ok(new) => self.put_in_force(new),
                    Err(mistakes) => {
                        let wrong = mistakes.into_iter().map(Wrong::Mistake);
                        self.keep_old(wrong.collect(), named);
                    }
                }
            }
            Err(error) => self.keep_old(vec![Wrong::Unreadable(error.to_string())], None),
        }
    }

    /// Whether the file says something else than when it was last read.
    pub(super) fn is_changed(&self) -> bool {
        let _no_edit_meanwhile = self.lock();
        let written = file::read(&self.path);
        let in_force = self.in_force.borrow();
        let was_right = in_force.mistakes.is_empty();
        match written {
            Ok(text) => {
                let last_read = match was_right {
                    true => &in_force.revision,
                    false => &in_force.mistaken,
                };
                text.as_deref().map(revision) != *last_read
            }
            Err(_) => was_right,
        }
    }

    /// Changes what is written, or says what that would change. `expected` is what
    /// whoever asks has seen there; `open` are the violations that go on.
    ///
    /// # Errors
    /// Every mistake in it, or why it cannot be written or recorded.
    pub(super) fn edit(
        &self,
        uid: u32,
        asked: &GuardEdit,
        expected: Option<&RulesRevision>,
        is_dry_run: bool,
        open: &[OpenViolation],
    ) -> Result<Edited, Refusal> {
        let _one_at_a_time = self.lock();
        let written = self.written()?;
        let before = written.as_deref().map(revision);
        if expected.is_some() && expected != before.as_ref() {
            return Err(Refusal::Invalid(format!(
                "somebody has changed {} meanwhile: look at it again",
                self.path.display()
            )));
        }
        let in_force = self.in_force.borrow().clone();
        let is_gone = written.is_none() && in_force.revision.is_some();
        if is_gone && !matches!(asked, GuardEdit::Replace(_)) {
            return Err(Refusal::Invalid(format!(
                "{} is gone, and the rules that it held are in force still: put it back, or \
                 have gpukilld read it again (systemctl reload gpukilld) to go on without them",
                self.path.display()
            )));
        }
        let text = written.as_deref().unwrap_or_default();
        let new = edit(text, asked).map_err(|error| {
            Refusal::Invalid(match error {
                EditError::Broken(_) if in_force.rules().mode > GuardMode::DryRun => format!(
                    "{error}\nthe rules of before hold, and end jobs: mend the file, replace it \
                 (gpukillctl guard import FILE), or stop gpukilld"
                ),
                error => error.to_string(),
            })
        })?;
        let rules = understood(Some(new.clone()))
            .map_err(|mistakes| Refusal::Invalid(told(&mistakes).join("\n")))?;
        let name = self.path.display().to_string();
        let unread = unread(&name, (&in_force.text, text, &new), asked);
        // What somebody wrote by hand and did not load is no part of what held.
        let held = match unread {
            Some(_) => format!("{name} (in force)"),
            None => name.clone(),
        };
        let odd = warnings(rules.rules()).into_iter();
        let mut report = EditReport {
            before,
            after: revision(&new),
            difference: unified((&held, &in_force.text), (&name, &new)),
            warnings: unread
                .into_iter()
                .chain(limits_nobody(in_force.rules(), rules.rules()))
                .chain(anew(begin_anew(open, &in_force.book, &rules.book)))
                .chain(odd.map(|warning| warning.to_string()))
                .collect(),
        };
        let is_written = written.as_deref() == Some(&new);
        let is_in_force = in_force.revision == rules.revision && in_force.mistakes.is_empty();
        let mode = rules.rules().mode;
        if is_dry_run || (is_written && is_in_force) {
            return Ok(Edited { report, mode });
        }
        if !is_written {
            let warning = self.write(uid, asked, &report, &new)?;
            report.warnings.extend(warning);
        }
        self.put_in_force(rules);
        Ok(Edited { report, mode })
    }

    /// Recorded before, and what came of it after: with a warning where a power cut may
    /// undo it.
    fn write(
        &self,
        uid: u32,
        asked: &GuardEdit,
        report: &EditReport,
        new: &str,
    ) -> Result<Option<String>, Refusal> {
        let plan = serde_json::json!({
            "before": report.before.as_ref().map(|it| &it.0),
            "after": report.after.0,
            "difference": report.difference,
        });
        let act = Act {
            kind: ActKind::EditRules,
            uid,
            asked: asked.to_string(),
            plan: plan.to_string(),
        };
        let unavailable = |why: String| Refusal::Unavailable(why);
        let open = self.store.intend(act).map_err(|why| {
            unavailable(format!(
                "the edit cannot be recorded, and is not made: {why}"
            ))
        })?;
        match (self.replace)(&self.path, new) {
            Ok(Kept::ForGood) => {
                open.settle("done", "{}".into());
                Ok(None)
            }
            Ok(Kept::WhilePowered(error)) => {
                let warning = unsafe_on_disk(&self.path.display().to_string(), &error);
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

    /// A part of what is written, from this byte on.
    pub(super) fn text(&self, offset: u64) -> Result<RulesText, Refusal> {
        let text = self.written()?;
        let revision = text.as_deref().map(revision);
        Ok(self.part(revision, text.as_deref().unwrap_or_default(), offset))
    }

    /// A part of what is in force, from this byte on.
    pub(super) fn text_in_force(&self, offset: u64) -> RulesText {
        let in_force = self.in_force.borrow();
        self.part(in_force.revision.clone(), &in_force.text, offset)
    }

    fn part(&self, revision: Option<RulesRevision>, text: &str, offset: u64) -> RulesText {
        let bytes = text.as_bytes();
        let from = usize::try_from(offset)
            .unwrap_or(usize::MAX)
            .min(bytes.len());
        let until = from.saturating_add(LONGEST_PART).min(bytes.len());
        RulesText {
            file: self.path.display().to_string(),
            revision,
            part: bytes[from..until].to_vec(),
        }
    }

    fn written(&self) -> Result<Option<String>, Refusal> {
        file::read(&self.path).map_err(|error| {
            Refusal::Unavailable(format!("cannot read {}: {error}", self.path.display()))
        })
    }

    /// Recorded where it is not what was so before.
    fn put_in_force(&self, new: InForce) {
        let is_new = self.in_force.borrow().revision != new.revision;
        let (mode, policies) = (new.rules().mode.name(), new.rules().policies());
        let revision = new.revision.as_ref().map(|it| it.0.as_str());
        tell!(RulesInForce, mode, policies, revision);
        self.in_force.send_replace(new);
        if is_new {
            self.record();
        }
    }

    fn keep_old(&self, mistakes: Vec<Wrong>, mistaken: Option<RulesRevision>) {
        let file = self.path.display().to_string();
        for mistake in &mistakes {
            tell!(RulesRefused, file, mistake = mistake.to_string());
        }
        self.in_force.send_modify(|it| {
            it.mistakes = mistakes;
            it.mistaken = mistaken;
        });
    }

    fn record(&self) {
        let it = self.in_force.borrow();
        self.store.record(Event::Rules {
            revision: it.revision.as_ref().map(|it| it.0.clone()),
            text: it.text.to_string(),
        });
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, ()> {
        self.editing.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Names this text.
pub(crate) fn revision(text: &str) -> RulesRevision {
    RulesRevision(fingerprint(text))
}

/// What a text says; where there is none, the built-in defaults.
fn understood(text: Option<String>) -> Result<InForce, Vec<Mistake>> {
    let Some(text) = text else {
        return Ok(InForce::built_in());
    };
    let rules = read(&text)?;
    Ok(InForce::of(rules, &text, Some(revision(&text))))
}
