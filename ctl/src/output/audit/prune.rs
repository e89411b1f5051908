//! The samples that a prune deletes and keeps, for people.

use crate::output::style::OutputStyle;
use crate::output::text::Line;
use crate::output::value::{date_and_time, thousands};
use gpukill_proto::audit::{PruneReport, StoreContents};
use gpukill_proto::units::Timestamp;

/// Whether the prune has happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PruneTense {
    /// It is planned only.
    Would,
    Done,
}

/// Two lines: what is deleted, and what stays.
pub(crate) fn lines(
    report: &PruneReport,
    before: Timestamp,
    tense: PruneTense,
    style: &OutputStyle,
) -> [Line; 2] {
    let moment = date_and_time(before, style);
    let goes = match (contents_text(&report.deleted), tense) {
        (None, _) => format!("nothing is older than {moment}"),
        (Some(what), PruneTense::Would) => format!("{what} from before {moment} would be deleted"),
        (Some(what), PruneTense::Done) => format!("{what} from before {moment} are deleted"),
    };
    let left = contents_text(&report.left);
    let left = left.unwrap_or_else(|| "none of them".to_owned());
    let entries = match report.left.actions {
        1 => "1 entry".to_owned(),
        several => format!("{} entries", thousands(several)),
    };
    let stays = format!("left: {left}; the record of actions stays, with {entries}");
    [goes, stays].map(|text| Line::plain(text).cut(style.width, style.symbols))
}

/// The question before the prune.
pub(crate) fn question(report: &PruneReport) -> String {
    let what = contents_text(&report.deleted).unwrap_or_else(|| "nothing".to_owned());
    format!("delete {what} for good?")
}

/// The number of each kind; `None` when there are none.
pub(crate) fn contents_text(contents: &StoreContents) -> Option<String> {
    let kinds = [
        (contents.samples, "sample", "samples"),
        (contents.minutes, "sum of a minute", "sums of minutes"),
        (contents.hours, "sum of an hour", "sums of hours"),
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
    use crate::output::style::{Symbols, Zone};

    #[test]
    fn deleted_and_remaining_are_counted() {
        let style = OutputStyle {
            width: None,
            color: false,
            symbols: Symbols::Ascii,
            zone: Zone::Utc,
        };
        let report = PruneReport {
            deleted: StoreContents {
                samples: 12_345,
                minutes: 1,
                runs: 2,
                ..StoreContents::default()
            },
            left: StoreContents {
                hours: 7,
                actions: 1_000,
                ..StoreContents::default()
            },
        };
        let text = |report, tense| lines(report, Timestamp(0), tense, &style).map(|it| it.text());
        let stays = "left: 7 sums of hours; the record of actions stays, with 1,000 entries";
        assert_eq!(
            text(&report, PruneTense::Done),
            [
                "12,345 samples, 1 sum of a minute, 2 processes on GPUs from before 1970-01-01 \
                 00:00:00 are deleted",
                stays,
            ]
        );
        let nothing = PruneReport {
            deleted: StoreContents::default(),
            left: StoreContents::default(),
        };
        assert_eq!(
            text(&nothing, PruneTense::Would),
            [
                "nothing is older than 1970-01-01 00:00:00",
                "left: none of them; the record of actions stays, with 0 entries",
            ]
        );
    }
}
