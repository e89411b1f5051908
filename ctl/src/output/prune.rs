//! What a prune deletes and what stays, for people.

use super::line::Line;
use super::look::Look;
use super::value::{date_and_clock, thousands};
use gpukill_proto::audit::{Contents, PruneReport};
use gpukill_proto::units::Timestamp;

/// Whether it has happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tense {
    /// Not yet, or not at all.
    Would,
    /// It has.
    Done,
}

/// Two lines: what goes, and what stays.
pub(crate) fn lines(
    report: &PruneReport,
    before: Timestamp,
    tense: Tense,
    look: &Look,
) -> [Line; 2] {
    let moment = date_and_clock(before, look);
    let goes = match (counted(&report.deleted), tense) {
        (None, _) => format!("nothing is older than {moment}"),
        (Some(what), Tense::Would) => format!("{what} of before {moment} would be deleted"),
        (Some(what), Tense::Done) => format!("{what} of before {moment} are deleted"),
    };
    let left = counted(&report.left);
    let left = left.unwrap_or_else(|| "none of them".to_owned());
    let entries = match report.left.actions {
        1 => "1 entry".to_owned(),
        several => format!("{} entries", thousands(several)),
    };
    let stays = format!("left: {left}; the record of what was done stays, with {entries}");
    [goes, stays].map(|text| Line::plain(text).cut(look.width, look.symbols))
}

/// What a person is asked before it.
pub(crate) fn question(report: &PruneReport) -> String {
    let what = counted(&report.deleted).unwrap_or_else(|| "nothing".to_owned());
    format!("delete {what} for good?")
}

/// How many of each; `None` where there are none at all.
pub(crate) fn counted(contents: &Contents) -> Option<String> {
    let kinds = [
        (contents.samples, "sample", "samples"),
        (contents.minutes, "minute", "minutes"),
        (contents.hours, "hour", "hours"),
        (contents.runs, "process on a GPU", "processes on GPUs"),
    ];
    let some = kinds.into_iter().filter(|(count, ..)| *count > 0);
    let texts: Vec<String> = some
        .map(|(count, one, several)| {
            let word = if count == 1 { one } else { several };
            format!("{} {word}", thousands(count))
        })
        .collect();
    (!texts.is_empty()).then(|| texts.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::look::{Symbols, Zone};

    #[test]
    fn what_goes_and_what_stays_is_counted_in_words() {
        let look = Look {
            width: None,
            color: false,
            symbols: Symbols::Ascii,
            zone: Zone::Utc,
        };
        let report = PruneReport {
            deleted: Contents {
                samples: 12_345,
                minutes: 1,
                runs: 2,
                ..Contents::default()
            },
            left: Contents {
                hours: 7,
                actions: 1_000,
                ..Contents::default()
            },
        };
        let text = |report, tense| lines(report, Timestamp(0), tense, &look).map(|it| it.text());
        let stays = "left: 7 hours; the record of what was done stays, with 1,000 entries";
        assert_eq!(
            text(&report, Tense::Done),
            [
                "12,345 samples, 1 minute, 2 processes on GPUs of before 1970-01-01 00:00:00 are deleted",
                stays,
            ]
        );
        let nothing = PruneReport {
            deleted: Contents::default(),
            left: Contents::default(),
        };
        assert_eq!(
            text(&nothing, Tense::Would),
            [
                "nothing is older than 1970-01-01 00:00:00",
                "left: none of them; the record of what was done stays, with 0 entries",
            ]
        );
    }
}
