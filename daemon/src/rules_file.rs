//! The rules in force of one kind, the file they are written in, and its edits.
//!
//! A file that is wrong changes nothing: what was in force before stays, and every
//! mistake is told. An edit reads the file as it is at that moment, so that nobody's
//! edit is lost, neither an admin's with the client nor one's with an editor; what it
//! puts in force beyond itself, it tells. What the rules say, their [`Kind`] knows.

mod kind;

pub(crate) mod file;

mod told;

use crate::audit::{Act, ActKind, Event, Store};
use crate::catalogue::tell;
use crate::evaluator::{Failed, Request, evaluate};
use file::Kept;
use gpukill_policy::digest::digest_text;
use gpukill_policy::guard::diff::unified;
use gpukill_proto::guard::{EditReport, RulesRevision, RulesText};
use gpukill_proto::refusal::Refusal;
use gpukill_proto::service::LONGEST_PART;
pub(crate) use kind::{InForce, Kind, Wrong};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use tokio::sync::watch;
use told::{Says, unread, unsafe_on_disk};

/// What an edit comes to.
#[derive(Debug)]
pub(crate) struct Edited<R> {
    pub(crate) report: EditReport,
    /// What the rules say then.
    pub(crate) rules: R,
}

/// Keeps them.
pub(crate) struct Keeper<K: Kind> {
    path: PathBuf,
    in_force: watch::Sender<InForce<K::Rules>>,
    store: Store,
    /// One edit at a time.
    editing: Mutex<()>,
    /// Puts a text in the place of the file's.
    pub(crate) replace: fn(&Path, &str) -> std::io::Result<Kept>,
}

impl<K: Kind> Keeper<K> {
    /// Reads the file at `path`. One that is wrong leaves `before` in force: what
    /// was so when the daemon last ran.
    pub(crate) fn from_before(path: PathBuf, before: Option<String>, store: Store) -> Self {
        let before = before.and_then(|text| understood::<K>(Some(text)).ok());
        let built_in = || InForce::of(K::built_in(), "", None);
        let (in_force, _) = watch::channel(before.unwrap_or_else(built_in));
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
    pub(crate) fn subscribe(&self) -> watch::Receiver<InForce<K::Rules>> {
        self.in_force.subscribe()
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Reads the file again. Mistakes keep the old rules, and say so.
    pub(crate) fn reload(&self) {
        let _one_at_a_time = self.lock();
        match file::read(&self.path) {
            Ok(text) => {
                let named = text.as_deref().map(revision);
                match tried::<K>(text.as_deref()).and_then(|()| understood::<K>(text)) {
                    Ok(new) => self.put_in_force(new),
                    Err(mistakes) => self.keep_old(mistakes, named),
                }
            }
            Err(error) => self.keep_old(vec![Wrong::unreadable(&error)], None),
        }
    }

    /// Whether the file says something else than when it was last read.
    pub(crate) fn is_changed(&self) -> bool {
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

    /// That the file has mistakes, in words for faults.
    pub(crate) fn fault(&self) -> Option<String> {
        let in_force = self.in_force.borrow();
        // Everybody sees faults, and what a mistake quotes is for whoever may change
        // the file.
        let first = in_force.mistakes.first()?.place();
        let more = match in_force.mistakes.len() {
            1 => String::new(),
            several => format!(", and {} more", several - 1),
        };
        let holds = match in_force.revision {
            Some(_) => "the rules of before hold",
            None => "the built-in rules hold",
        };
        let file = self.path.display();
        let check = K::CHECK;
        Some(format!(
            "{file}: {first}{more}: {holds}; see {check} {file}"
        ))
    }

    /// Changes what is written, or says what that would change. `expected` is what
    /// whoever asks has seen there; `odd` is what they are told of the rules that were
    /// in force and of those that will be.
    ///
    /// # Errors
    /// Every mistake in it, or why it cannot be written or recorded.
    pub(crate) fn change(
        &self,
        uid: u32,
        asked: &K::Edit,
        expected: Option<&RulesRevision>,
        is_dry_run: bool,
        odd: impl FnOnce(&K::Rules, &K::Rules) -> Vec<String>,
    ) -> Result<Edited<K::Rules>, Refusal> {
        let _one_at_a_time = self.lock();
        let written = self.written()?;
        let before = written.as_deref().map(revision);
        let name = self.path.display().to_string();
        if expected.is_some() && expected != before.as_ref() {
            return Err(Refusal::Invalid(format!(
                "somebody has changed {name} meanwhile: look at it again"
            )));
        }
        let in_force = self.in_force.borrow().clone();
        let is_gone = written.is_none() && in_force.revision.is_some();
        if is_gone && K::whole(asked).is_none() {
            return Err(Refusal::Invalid(format!(
                "{name} is gone, and the rules that it held are in force still: put it back, or \
                 have gpukilld read it again (systemctl reload gpukilld) to go on without them"
            )));
        }
        tried::<K>(K::whole(asked)).map_err(|wrong| refused(&wrong))?;
        let text = written.as_deref().unwrap_or_default();
        let new = K::edited(text, asked, &in_force.rules).map_err(Refusal::Invalid)?;
        let rules = understood::<K>(Some(new.clone())).map_err(|wrong| refused(&wrong))?;
        let says = match K::whole(asked) {
            Some(_) => Says::All,
            None => Says::Part,
        };
        let unread = unread(&name, (&in_force.text, text, &new), says);
        // What somebody wrote by hand and did not load is no part of what held.
        let held = match unread {
            Some(_) => format!("{name} (in force)"),
            None => name.clone(),
        };
        let mut report = EditReport {
            before,
            after: revision(&new),
            difference: unified((&held, &in_force.text), (&name, &new)),
            warnings: unread
                .into_iter()
                .chain(odd(&in_force.rules, &rules.rules))
                .collect(),
        };
        let is_written = written.as_deref() == Some(&new);
        let said = rules.rules.clone();
        let is_in_force = in_force.revision == rules.revision && in_force.mistakes.is_empty();
        if is_dry_run || (is_written && is_in_force) {
            return Ok(Edited {
                report,
                rules: said,
            });
        }
        if !is_written {
            let warning = self.write(uid, asked, &report, &new)?;
            report.warnings.extend(warning);
        }
        self.put_in_force(rules);
        Ok(Edited {
            report,
            rules: said,
        })
    }

    /// Recorded before, and what came of it after: with a warning where a power cut may
    /// undo it.
    fn write(
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
        let act = Act {
            kind: ActKind::EditRules,
            uid,
            asked: format!("{}{asked}", K::OF.prefix()),
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
    pub(crate) fn text(&self, offset: u64) -> Result<RulesText, Refusal> {
        let text = self.written()?;
        let revision = text.as_deref().map(revision);
        Ok(self.part(revision, text.as_deref().unwrap_or_default(), offset))
    }

    /// A part of what is in force, from this byte on.
    pub(crate) fn text_in_force(&self, offset: u64) -> RulesText {
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
    fn put_in_force(&self, new: InForce<K::Rules>) {
        let is_new = self.in_force.borrow().revision != new.revision;
        K::log(&new.rules, new.revision.as_ref().map(|it| it.0.as_str()));
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
            of: K::OF,
            revision: it.revision.as_ref().map(|it| it.0.clone()),
            text: it.text.to_string(),
        });
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, ()> {
        self.editing.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Every mistake on a line.
fn refused(mistakes: &[Wrong]) -> Refusal {
    let lines: Vec<String> = mistakes.iter().map(ToString::to_string).collect();
    Refusal::Invalid(lines.join("\n"))
}

/// Names this text.
pub(crate) fn revision(text: &str) -> RulesRevision {
    RulesRevision(digest_text(text).to_string())
}

/// Has a child read a text, so that one that is broken or takes much memory costs the
/// daemon none.
fn tried<K: Kind>(text: Option<&str>) -> Result<(), Vec<Wrong>> {
    // The program of the unit tests is no gpukilld.
    let Some(text) = text.filter(|_| !cfg!(test)) else {
        return Ok(());
    };
    match evaluate(&Request::check(K::OF, text), &|| true) {
        Ok(answer) => answer,
        Err(Failed::Ended(why)) => Err(vec![Wrong::mistake(None, why)]),
        Err(Failed::Unwanted) => Err(Vec::new()),
    }
}

/// What a text says; where there is none, the built-in defaults.
pub(crate) fn understood<K: Kind>(text: Option<String>) -> Result<InForce<K::Rules>, Vec<Wrong>> {
    let Some(text) = text else {
        return Ok(InForce::of(K::built_in(), "", None));
    };
    let rules = K::read(&text)?;
    Ok(InForce::of(rules, &text, Some(revision(&text))))
}
