//! The hash of what a process executes, and when it is asked for.

use crate::host::hashes::Hash;
use crate::rogue::witness::Witness;
use gpukill_proto::snapshot::ProcessKey;

/// The hash, as far as it is known and wanted.
#[derive(Default)]
pub(super) struct Hashed {
    known: Option<Hash>,
    asked: Asked,
}

/// Whether it is asked for.
#[derive(Default, Clone, Copy, PartialEq, Eq)]
enum Asked {
    #[default]
    Not,
    Waits,
    /// The answer may be of what it executed before.
    WaitsForOld,
    Answered,
}

impl Hashed {
    /// Takes it where it is read by now, and asks for it where it is not; forgets it where
    /// nobody wants it. Whether it is another than before.
    pub(super) fn read(
        &mut self,
        (process, person): (ProcessKey, Option<u32>),
        is_wanted: bool,
        by: &dyn Witness,
    ) -> bool {
        if !is_wanted {
            return self.end(process, by);
        }
        if self.asked == Asked::Answered {
            return false;
        }
        if self.asked == Asked::Not {
            self.asked = Asked::Waits;
        }
        let Some(hash) = by.hash(process, person) else {
            return false;
        };
        // It is kept here.
        by.forget_hash(process);
        self.asked = if self.asked == Asked::WaitsForOld {
            Asked::Not
        } else {
            Asked::Answered
        };
        let before = self.known.replace(hash);
        before != self.known
    }

    fn end(&mut self, process: ProcessKey, by: &dyn Witness) -> bool {
        if self.asked != Asked::Not {
            by.forget_hash(process);
        }
        std::mem::take(self).known.is_some()
    }

    /// Has it asked for again, which costs no reading where the file is the same. What is
    /// known stands until there is an answer: whoever becomes another again and again
    /// is known by one of them.
    pub(super) const fn again(&mut self) {
        self.asked = match self.asked {
            Asked::Not | Asked::Answered => Asked::Not,
            Asked::Waits | Asked::WaitsForOld => Asked::WaitsForOld,
        };
    }

    pub(super) fn sha256(&self) -> Option<String> {
        self.known.clone()?.ok()
    }

    /// Why it is not known, where it is wanted.
    pub(super) fn unseen(&self) -> Option<String> {
        let why = match (&self.known, self.asked) {
            (Some(Ok(_)), _) | (None, Asked::Not) => return None,
            (Some(Err(why)), _) => why,
            (None, Asked::Waits | Asked::WaitsForOld | Asked::Answered) => "not read yet",
        };
        Some(format!("the hash of its executable: {why}"))
    }
}
