//! Reads and changes rules of both kinds.

use super::daemon::{Daemon, Mode, call};
use super::timeout::RequestTimeout;
use crate::exit::Error;
use gpukill_proto::guard::edit::GuardEdit;
use gpukill_proto::guard::{EditReport, RulesRevision, RulesText};
use gpukill_proto::rogue::RogueEdit;
use gpukill_proto::service::{MAX_PART_BYTES, MAX_RULES_BYTES};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RulesKind {
    /// The guard's rules.
    Guard,
    /// The rules for detecting rogues.
    Rogues,
}

impl RulesKind {
    pub(crate) const fn replace_by_offered(self) -> RulesChange<'static> {
        match self {
            Self::Guard => RulesChange::Guard(None),
            Self::Rogues => RulesChange::Rogues(None),
        }
    }
}

/// A change of rules; `None` replaces all rules by the offered ones.
#[derive(Debug, Clone, Copy)]
pub(crate) enum RulesChange<'a> {
    Guard(Option<&'a GuardEdit>),
    Rogues(Option<&'a RogueEdit>),
}

impl Daemon {
    /// The rules as written: their file, revision and text.
    pub(crate) fn rules(
        &self,
        kind: RulesKind,
        timeout: RequestTimeout,
    ) -> Result<(String, Option<RulesRevision>, String), Error> {
        let mut bytes: Vec<u8> = Vec::new();
        let mut first: Option<(String, Option<RulesRevision>)> = None;
        loop {
            let offset = bytes.len() as u64;
            let RulesText {
                file,
                revision,
                part,
            } = match kind {
                RulesKind::Guard => call!(self, timeout, RulesText { offset })?,
                RulesKind::Rogues => call!(self, timeout, RogueText { offset })?,
            };
            let is_same = first.as_ref().is_none_or(|(_, before)| *before == revision);
            if !is_same {
                // The rules changed between two parts. No person wrote a mixture of both, so
                // start again.
                bytes.clear();
                first = None;
                continue;
            }
            first.get_or_insert((file, revision));
            if part.is_empty() {
                break;
            }
            bytes.extend(part);
            if bytes.len() > MAX_RULES_BYTES {
                return Err(Error::ConnectionLost("its rules do not end".into()));
            }
        }
        let (file, revision) = first.unwrap_or_default();
        let text = String::from_utf8(bytes);
        let text = text.map_err(|_| Error::ConnectionLost("its rules are no text".into()))?;
        Ok((file, revision, text))
    }

    /// Uploads rules of the caller's own.
    pub(crate) fn offer_rules(&self, text: &str, timeout: RequestTimeout) -> Result<(), Error> {
        let mut offset = 0;
        let nothing: &[u8] = &[];
        // Empty rules are valid: they mean the built-in defaults.
        let first = text.is_empty().then_some(nothing);
        let parts = text.as_bytes().chunks(MAX_PART_BYTES);
        for part in first.into_iter().chain(parts) {
            let next = offset + part.len() as u64;
            let part = part.to_vec();
            call!(self, timeout, OfferRules { offset, part })?;
            offset = next;
        }
        Ok(())
    }

    /// Changes rules, or reports what would change.
    pub(crate) fn edit_rules(
        &self,
        change: RulesChange<'_>,
        expected: Option<&RulesRevision>,
        mode: Mode,
        timeout: RequestTimeout,
    ) -> Result<EditReport, Error> {
        let is_dry_run = mode == Mode::DryRun;
        let expected = expected.cloned();
        match change {
            RulesChange::Guard(edit) => {
                let edit = edit.cloned();
                call!(
                    self,
                    timeout,
                    EditRules {
                        edit,
                        expected,
                        is_dry_run
                    }
                )
            }
            RulesChange::Rogues(edit) => {
                let edit = edit.cloned();
                call!(
                    self,
                    timeout,
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
