//! What rules saw of each process, written each time that it changes.
//!
//! A blob's first byte is the version of its form; what follows is postcard. JSON
//! would not do: it writes what is not known and what there is none of alike.

use gpukill_policy::guard::about::About;
use rusqlite::{OptionalExtension as _, Transaction, params};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The fifth form. The first said nothing of who has no name, neither it nor the second
/// what is known of who logged in, none of the three whether it is in a container, and
/// none of the four what it is taken for.
const VERSION: u8 = 5;

/// How postcard writes that there is none of something, as often as older forms lack it.
const OF_FIRST: &[u8] = &[0, 0, 0, 0, 0];

const OF_SECOND: &[u8] = &[0, 0, 0, 0];

const OF_THIRD: &[u8] = &[0, 0];

const OF_FOURTH: &[u8] = &[0];

/// As it is stored.
fn pack(about: &About) -> Vec<u8> {
    // Nothing in it can fail to be written: lengths are known.
    postcard::to_extend(about, vec![VERSION]).unwrap_or_else(|_| vec![VERSION])
}

/// What was stored; nothing is known where that is in no form of ours.
pub(super) fn unpack(blob: &[u8]) -> About {
    let about = match blob {
        [VERSION, packed @ ..] => postcard::from_bytes(packed).ok(),
        [4, packed @ ..] => postcard::from_bytes(&[packed, OF_FOURTH].concat()).ok(),
        [3, packed @ ..] => postcard::from_bytes(&[packed, OF_THIRD].concat()).ok(),
        [2, packed @ ..] => postcard::from_bytes(&[packed, OF_SECOND].concat()).ok(),
        [1, packed @ ..] => postcard::from_bytes(&[packed, OF_FIRST].concat()).ok(),
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
    use gpukill_proto::rogue::{Risk, Suspected, Threat};
    use gpukill_proto::snapshot::Scheduler;

    const MINER: Suspected = Suspected {
        risk: Risk::High,
        threat: Threat::CryptoMiner,
        may_be_acted_on: true,
    };

    #[test]
    fn what_was_stored_in_older_forms_is_read_for_ever() {
        // As it was written when accounts were not read yet, and since.
        let of_ann = b"\x01\x01\x03ann\x01\xe8\x07\x01\x01\x03ann\xe8\x07\x01\x00\x01\x01\
            \x01\x01\x02ml\x01\x06python\x00\x00\x01\x00\x01\x00\x01\x00\x01\x01\x00\x0212";
        let rest = b"\x01\x03tt1\x06tree 1\x01\x00";
        let about = |account: Option<Option<&str>>| About {
            owner: Some(Person {
                name: "ann".into(),
                uid: Some(1000),
            }),
            user: Some((Some("ann".into()), 1000)),
            login_uid: Some(None),
            is_of_the_box: Some(true),
            groups: Some(vec!["ml".into()]),
            name: Some("python".into()),
            image: Some(None),
            unit: Some(None),
            pod: Some(None),
            scheduler: Some(Some((Scheduler::Slurm, "12".into()))),
            account: account.map(|account| account.map(str::to_owned)),
            job: Some(("tt1".into(), "tree 1".into())),
            is_orphaned: Some(false),
            ..About::default()
        };
        for (account, written) in [
            (None, &b"\x00"[..]),
            (Some(None), b"\x01\x00"),
            (Some(Some("vision")), b"\x01\x01\x06vision"),
        ] {
            let blob = [&of_ann[..], written, rest].concat();
            assert_eq!(unpack(&blob), about(account), "{account:?}");
            let second = [b"\x02", &blob[1..], b"\x00"].concat();
            assert_eq!(unpack(&second), about(account), "{account:?}");
            let third = [b"\x03", &blob[1..], b"\x00\x00\x00"].concat();
            assert_eq!(unpack(&third), about(account), "{account:?}");
            let fourth = [b"\x04", &third[1..], b"\x00"].concat();
            assert_eq!(unpack(&fourth), about(account), "{account:?}");
            let fifth = [b"\x05", &fourth[1..], b"\x00"].concat();
            assert_eq!(unpack(&fifth), about(account), "{account:?}");
            assert_eq!(pack(&about(account)), fifth, "{account:?}");
        }
    }

    #[test]
    fn each_form_tells_what_the_ones_before_did_and_more() {
        let about = About {
            nameless: vec![7, 4242],
            ..About::default()
        };
        let second = [&[2][..], &[0; 15], b"\x02\x07\x92\x21"].concat();
        assert_eq!(unpack(&second), about);
        let about = About {
            login_name: Some("ann".into()),
            login_groups: Some(vec!["ml".into()]),
            ..about
        };
        let third = [b"\x03", &second[1..], b"\x01\x03ann\x01\x01\x02ml"].concat();
        assert_eq!(unpack(&third), about);
        let about = About {
            is_contained: Some(true),
            ..about
        };
        let fourth = [b"\x04", &third[1..], b"\x01\x01"].concat();
        assert_eq!(unpack(&fourth), about);
        for (suspected, written) in [
            (None, &b"\x00"[..]),
            (Some(None), b"\x01\x00"),
            (Some(Some(MINER)), b"\x01\x01\x02\x00\x01"),
        ] {
            let about = About {
                suspected,
                ..about.clone()
            };
            let fifth = [b"\x05", &fourth[1..], written].concat();
            assert_eq!(pack(&about), fifth, "{suspected:?}");
            assert_eq!(unpack(&fifth), about, "{suspected:?}");
        }
    }

    #[test]
    fn nothing_is_known_of_what_is_in_no_form_of_ours() {
        for blob in [
            &b""[..],
            b"\x00",
            b"\x05\x01",
            b"\x04\x01",
            b"\x03\x01",
            b"\x02\x01",
            b"\x01",
            b"\x01\x01\xff",
        ] {
            assert_eq!(unpack(blob), About::default(), "{blob:?}");
        }
    }
}
