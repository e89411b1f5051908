//! The guard's rules: what of their file is not as with any other.

use crate::audit::{RulesOf, Store};
use crate::catalogue::tell;
use crate::rules_file::{self, Edited, Kind, Wrong};
use gpukill_policy::guard::Rulebook;
use gpukill_policy::guard::anew::begin_anew;
use gpukill_policy::guard::check::warnings;
use gpukill_policy::guard::edit::edit;
use gpukill_policy::guard::read::read;
use gpukill_policy::guard::rules::Rules;
use gpukill_proto::guard::edit::{EditError, GuardEdit, Mistake};
use gpukill_proto::guard::{GuardMode, OpenViolation, RulesRevision};
use gpukill_proto::refusal::Refusal;
use gpukill_proto::settings::place::Place;
use std::path::PathBuf;
use std::sync::Arc;
use told::{anew, limits_nobody};

mod told;

#[cfg(test)]
mod tests;

/// Keeps them.
pub(super) type Keeper = rules_file::Keeper<OfGuard>;

/// The guard's rules, and where they come from.
pub(crate) type InForce = rules_file::InForce<Books>;

/// What they say.
#[derive(Debug, Clone)]
pub(crate) struct Books {
    pub(crate) book: Arc<Rulebook>,
    /// The same rules, by which nobody is warned or ended.
    pub(crate) rehearsing: Arc<Rulebook>,
}

impl Books {
    fn of(rules: Rules) -> Self {
        let rehearsed = Rules {
            mode: rules.mode.min(GuardMode::DryRun),
            ..rules.clone()
        };
        Self {
            book: Arc::new(Rulebook::of(rules)),
            rehearsing: Arc::new(Rulebook::of(rehearsed)),
        }
    }
}

impl InForce {
    /// What they say.
    pub(crate) fn rules(&self) -> &Rules {
        self.rules.book.rules()
    }
}

/// The file `guard.toml`.
pub(super) struct OfGuard;

impl Kind for OfGuard {
    type Rules = Books;
    type Edit = GuardEdit;

    const OF: RulesOf = RulesOf::Guard;
    const CHECK: &str = "gpukillctl guard check";

    /// Nobody is limited.
    fn built_in() -> Books {
        Books::of(Rules::default())
    }

    fn read(text: &str) -> Result<Books, Vec<Wrong>> {
        let rules = read(text);
        let rules = rules.map_err(|mistakes| mistakes.iter().map(wrong).collect::<Vec<_>>())?;
        Ok(Books::of(rules))
    }

    fn edited(text: &str, asked: &GuardEdit, held: &Books) -> Result<String, String> {
        edit(text, asked).map_err(|error| match error {
            EditError::Broken(_) if held.book.rules().mode > GuardMode::DryRun => format!(
                "{error}\nthe rules of before hold, and end jobs: mend the file, replace it \
                 (gpukillctl guard import FILE), or stop gpukilld"
            ),
            error => error.to_string(),
        })
    }

    fn whole(asked: &GuardEdit) -> Option<&str> {
        match asked {
            GuardEdit::Replace(text) => Some(text),
            GuardEdit::SetPolicy { .. }
            | GuardEdit::RemovePolicy { .. }
            | GuardEdit::SetKey { .. }
            | GuardEdit::SetMode(_)
            | GuardEdit::ToggleDryRun => None,
        }
    }

    fn log(rules: &Books, revision: Option<&str>) {
        let rules = rules.book.rules();
        let (mode, rules) = (rules.mode.name(), rules.count());
        tell!(RulesInForce, mode, rules, revision);
    }
}

/// The mistakes of a text, as the daemon would find them when it reads it.
pub(crate) fn check_rules(text: &str) -> Result<(), Vec<Wrong>> {
    // With all that is compiled of them.
    OfGuard::read(text).map(drop).map_err(Wrong::first_ones)
}

/// Rules of a text.
///
/// # Errors
/// Every mistake in it.
pub(crate) fn read_rules(text: &str) -> Result<Rules, Refusal> {
    read(text).map_err(|mistakes| {
        let told: Vec<String> = mistakes.iter().map(ToString::to_string).collect();
        Refusal::Invalid(told.join("\n"))
    })
}

fn wrong(mistake: &Mistake) -> Wrong {
    let place = mistake
        .place
        .map(|Place { line, column }| format!("line {line}, column {column}"));
    Wrong::mistake(place, mistake.to_string())
}

impl Keeper {
    /// Reads the file at `path`. One that is wrong leaves `before` in force: what
    /// was so when the daemon last ran.
    pub(super) fn start(path: PathBuf, before: Option<String>, store: Store) -> Self {
        Self::from_before(path, before, store)
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
    ) -> Result<Edited<Books>, Refusal> {
        self.change(uid, asked, expected, is_dry_run, |held, new| {
            let (held, new) = (&held.book, &new.book);
            let odd = warnings(new.rules()).into_iter();
            limits_nobody(held.rules(), new.rules())
                .into_iter()
                .chain(anew(begin_anew(open, held, new)))
                .chain(odd.map(|warning| warning.to_string()))
                .collect()
        })
    }
}
