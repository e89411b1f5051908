//! The rules by which rogues are known: what of their file is not as with any other.

use crate::audit::{RulesOf, Store};
use crate::catalogue::tell;
use crate::rules_file::{self, Kind, Wrong};
use gpukill_policy::rogue::edit::edit;
use gpukill_policy::rogue::odd::warnings;
use gpukill_policy::rogue::read::read;
use gpukill_policy::rogue::rules::Rules;
use gpukill_proto::guard::{EditReport, RulesRevision};
use gpukill_proto::refusal::Refusal;
use gpukill_proto::rogue::RogueEdit;
use gpukill_proto::settings::Mistake;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::SystemTime;

#[cfg(test)]
mod tests;

/// Keeps them.
pub(crate) type Keeper = rules_file::Keeper<OfRogues>;

/// These rules, and where they come from.
pub(crate) type InForce = rules_file::InForce<Arc<Rules>>;

/// The file `rogue.toml`.
pub(crate) struct OfRogues;

impl Kind for OfRogues {
    type Rules = Arc<Rules>;
    type Edit = RogueEdit;

    const OF: RulesOf = RulesOf::Rogues;
    const CHECK: &str = "gpukillctl rogue check";

    fn built_in() -> Arc<Rules> {
        Arc::default()
    }

    fn read(text: &str) -> Result<Arc<Rules>, Vec<Wrong>> {
        let rules = read(text);
        rules
            .map(Arc::new)
            .map_err(|mistakes| mistakes.iter().map(wrong).collect())
    }

    fn edited(text: &str, asked: &RogueEdit, _: &Arc<Rules>) -> Result<String, String> {
        edit(text, asked, SystemTime::now().into()).map_err(|error| error.to_string())
    }

    fn whole(asked: &RogueEdit) -> Option<&str> {
        match asked {
            RogueEdit::Replace(text) => Some(text),
            RogueEdit::SetKey { .. } | RogueEdit::Allow(..) | RogueEdit::Disallow(..) => None,
        }
    }

    fn log(_: &Arc<Rules>, revision: Option<&str>) {
        tell!(RogueRulesInForce, revision);
    }
}

/// The mistakes of a text, as the daemon would find them when it reads it.
pub(crate) fn check_rules(text: &str) -> Result<(), Vec<Wrong>> {
    OfRogues::read(text).map(drop).map_err(Wrong::first_ones)
}

fn wrong(mistake: &Mistake) -> Wrong {
    let place = mistake.line.map(|line| format!("line {line}"));
    Wrong::mistake(place, mistake.to_string())
}

impl Keeper {
    /// Reads the file at `path`. With one that is wrong the built-in rules hold.
    pub(crate) fn start(path: PathBuf, store: Store) -> Self {
        Self::from_before(path, None, store)
    }

    /// Changes what is written, or says what that would change. `expected` is what
    /// whoever asks has seen there.
    ///
    /// # Errors
    /// Every mistake in it, or why it cannot be written or recorded.
    pub(crate) fn edit(
        &self,
        uid: u32,
        asked: &RogueEdit,
        expected: Option<&RulesRevision>,
        is_dry_run: bool,
    ) -> Result<EditReport, Refusal> {
        let odd = |_: &Arc<Rules>, new: &Arc<Rules>| {
            let odd = warnings(new).into_iter();
            odd.map(|warning| warning.to_string()).collect()
        };
        let edited = self.change(uid, asked, expected, is_dry_run, odd)?;
        Ok(edited.report)
    }
}
