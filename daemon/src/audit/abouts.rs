//! What rules saw of each process, written each time that it changes.
//!
//! A blob's first byte is the version of its form; what follows is postcard. JSON
//! would not do: it writes what is not known and what there is none of alike.

use gpukill_policy::guard::about::About;
use rusqlite::{OptionalExtension as _, Transaction, params};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The version of the form.
const VERSION: u8 = 1;

/// As it is stored.
fn pack(about: &About) -> Vec<u8> {
    // Nothing in it can fail to be written: lengths are known.
    postcard::to_extend(about, vec![VERSION]).unwrap_or_else(|_| vec![VERSION])
}

/// What was stored; nothing is known where that is not in our form.
pub(super) fn unpack(blob: &[u8]) -> About {
    let about = match blob {
        [VERSION, packed @ ..] => postcard::from_bytes(packed).ok(),
        _ => None,
    };
    about.unwrap_or_default()
}

/// What was written last, by the process's row.
#[derive(Default)]
pub(super) struct Abouts(BTreeMap<i64, Arc<About>>);

impl Abouts {
    /// Writes it down, from this sample on, where it is not what was written last.
    pub(super) fn write(
        &mut self,
        transaction: &Transaction<'_>,
        process: i64,
        sample: i64,
        about: &Arc<About>,
    ) -> rusqlite::Result<()> {
        if self.0.get(&process) == Some(about) {
            return Ok(());
        }
        let packed = pack(about);
        let last = "SELECT about FROM about WHERE process = ?1 ORDER BY sample DESC LIMIT 1";
        let last: Option<Vec<u8>> = transaction
            .prepare_cached(last)?
            .query_row([process], |row| row.get(0))
            .optional()?;
        if last.as_ref() != Some(&packed) {
            let insert = "INSERT INTO about (process, sample, about)
                VALUES (?1, ?2, ?3)";
            transaction
                .prepare_cached(insert)?
                .execute(params![process, sample, packed])?;
        }
        self.0.insert(process, Arc::clone(about));
        Ok(())
    }

    /// Forgets those whose rows are not among these.
    pub(super) fn keep(&mut self, is_kept: impl Fn(i64) -> bool) {
        self.0.retain(|process, _| is_kept(*process));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpukill_proto::guard::Person;
    use gpukill_proto::snapshot::NetworkRole;

    #[test]
    fn facts_are_read_as_they_were_written() {
        let about = About {
            owner: Some(Person {
                name: "ann".into(),
                uid: Some(1000),
            }),
            account: Some(None),
            nameless: vec![7, 4242],
            network: Some(NetworkRole::Service(vec![80, 8000])),
            ..About::default()
        };
        let packed = pack(&about);
        assert_eq!((packed[0], unpack(&packed)), (VERSION, about));
    }

    #[test]
    fn nothing_is_known_of_what_is_not_in_our_form() {
        let cut = pack(&About::default());
        for blob in [
            &b""[..],
            b"\x00",
            b"\x01\x01",
            b"\x02\x01",
            &cut[..cut.len() - 1],
        ] {
            assert_eq!(unpack(blob), About::default(), "{blob:?}");
        }
    }
}
