//! The rules of either kind as they are written, and their changes.

use super::Doing;
use super::daemon::{Daemon, question};
use super::patience::Patience;
use crate::exit::Failure;
use gpukill_proto::guard::edit::GuardEdit;
use gpukill_proto::guard::{EditReport, RulesRevision, RulesText};
use gpukill_proto::rogue::RogueEdit;
use gpukill_proto::service::{LONGEST_PART, LONGEST_RULES};

/// Which rules.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RulesOf {
    /// Those by which the guard judges.
    Guard,
    /// Those by which rogues are known.
    Rogues,
}

impl RulesOf {
    /// To what was offered, in the place of all.
    pub(crate) const fn to_offered(self) -> Change<'static> {
        match self {
            Self::Guard => Change::Guard(None),
            Self::Rogues => Change::Rogues(None),
        }
    }
}

/// A change of rules; `None` for one to what was offered.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Change<'a> {
    Guard(Option<&'a GuardEdit>),
    Rogues(Option<&'a RogueEdit>),
}

impl Daemon {
    /// The rules as they are written: where, what names them, and their text.
    pub(crate) fn rules(
        &self,
        of: RulesOf,
        patience: Patience,
    ) -> Result<(String, Option<RulesRevision>, String), Failure> {
        let mut bytes: Vec<u8> = Vec::new();
        let mut first: Option<(String, Option<RulesRevision>)> = None;
        loop {
            let offset = bytes.len() as u64;
            let RulesText {
                file,
                revision,
                part,
            } = match of {
                RulesOf::Guard => question!(self, patience, RulesText { offset })?,
                RulesOf::Rogues => question!(self, patience, RogueText { offset })?,
            };
            let is_same = first.as_ref().is_none_or(|(_, before)| *before == revision);
            if !is_same {
                // Somebody changed them meanwhile: a mixture is nobody's rules.
                bytes.clear();
                first = None;
                continue;
            }
            first.get_or_insert((file, revision));
            if part.is_empty() {
                break;
            }
            bytes.extend(part);
            if bytes.len() > LONGEST_RULES {
                return Err(Failure::Broken("its rules do not end".into()));
            }
        }
        let (file, revision) = first.unwrap_or_default();
        let text = String::from_utf8(bytes);
        let text = text.map_err(|_| Failure::Broken("its rules are no text".into()))?;
        Ok((file, revision, text))
    }

    /// Offers rules of one's own.
    pub(crate) fn offer_rules(&self, text: &str, patience: Patience) -> Result<(), Failure> {
        let mut offset = 0;
        let nothing: &[u8] = &[];
        // Rules that say nothing are rules: the built-in defaults.
        let first = text.is_empty().then_some(nothing);
        let parts = text.as_bytes().chunks(LONGEST_PART);
        for part in first.into_iter().chain(parts) {
            let part_of_it = part.to_vec();
            question!(
                self,
                patience,
                OfferRules {
                    offset,
                    part: part_of_it
                }
            )?;
            offset += part.len() as u64;
        }
        Ok(())
    }

    /// Changes rules, or says what that would change.
    pub(crate) fn edit_rules(
        &self,
        change: Change<'_>,
        expected: Option<&RulesRevision>,
        doing: Doing,
        patience: Patience,
    ) -> Result<EditReport, Failure> {
        let is_dry_run = doing == Doing::Saying;
        let expected = expected.cloned();
        match change {
            Change::Guard(edit) => {
                let edit = edit.cloned();
                question!(
                    self,
                    patience,
                    EditRules {
                        edit,
                        expected,
                        is_dry_run
                    }
                )
            }
            Change::Rogues(edit) => {
                let edit = edit.cloned();
                question!(
                    self,
                    patience,
                    EditRogue {
                        edit,
                        expected,
                        is_dry_run
                    }
                )
            }
        }
    }
}
