//! The facts that rules see of each process, written each time that they change.
//!
//! The first byte of a blob is its format version; the rest is postcard. JSON would not do: it
//! writes an unknown value and an empty one alike.

use gpukill_policy::guard::facts::ProcessFacts;
use gpukill_proto::collect::RetainEntries as _;
use rusqlite::{OptionalExtension as _, Transaction, params};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The format version of the blob.
const VERSION: u8 = 1;

fn encode(facts: &ProcessFacts) -> Vec<u8> {
    // Serialization cannot fail: all lengths are known.
    postcard::to_extend(facts, vec![VERSION]).unwrap_or_else(|_| vec![VERSION])
}

/// Decodes a stored blob. A blob in another format yields unknown facts.
pub(super) fn decode(blob: &[u8]) -> ProcessFacts {
    let facts = match blob {
        [VERSION, packed @ ..] => postcard::from_bytes(packed).ok(),
        _ => None,
    };
    facts.unwrap_or_default()
}

/// The facts written last, by the row id of the process.
#[derive(Default)]
pub(super) struct RuleFactsCache(BTreeMap<i64, Arc<ProcessFacts>>);

impl RuleFactsCache {
    /// Writes the facts, valid from this sample on, unless they equal the ones written last.
    pub(super) fn write(
        &mut self,
        transaction: &Transaction<'_>,
        process: i64,
        sample: i64,
        facts: &Arc<ProcessFacts>,
    ) -> rusqlite::Result<()> {
        if self.0.get(&process) == Some(facts) {
            return Ok(());
        }
        let packed = encode(facts);
        let last = "SELECT facts FROM rule_facts WHERE process = ?1 ORDER BY sample DESC LIMIT 1";
        let last: Option<Vec<u8>> = transaction
            .prepare_cached(last)?
            .query_row([process], |row| row.get(0))
            .optional()?;
        if last.as_ref() != Some(&packed) {
            let insert = "INSERT INTO rule_facts (process, sample, facts)
                VALUES (?1, ?2, ?3)";
            transaction
                .prepare_cached(insert)?
                .execute(params![process, sample, packed])?;
        }
        self.0.insert(process, Arc::clone(facts));
        Ok(())
    }

    /// Drops the entries of rows that are not kept.
    pub(super) fn retain(&mut self, is_kept: impl Fn(i64) -> bool) {
        self.0.retain_entries(|process, _| is_kept(*process));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpukill_proto::guard::Person;
    use gpukill_proto::model::NetworkRole;

    #[test]
    fn round_trips() {
        let facts = ProcessFacts {
            owner: Some(Person {
                name: "ann".into(),
                uid: Some(1000),
            }),
            account: Some(None),
            nameless_uids: vec![7, 4242],
            network: Some(NetworkRole::Service(vec![80, 8000])),
            ..ProcessFacts::default()
        };
        let packed = encode(&facts);
        assert_eq!((packed[0], decode(&packed)), (VERSION, facts));
    }

    #[test]
    fn other_formats_yield_unknown_facts() {
        let cut = encode(&ProcessFacts::default());
        for blob in [
            &b""[..],
            b"\x00",
            b"\x01\x01",
            b"\x02\x01",
            &cut[..cut.len() - 1],
        ] {
            assert_eq!(decode(blob), ProcessFacts::default(), "{blob:?}");
        }
    }
}
