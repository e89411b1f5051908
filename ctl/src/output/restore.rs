//! What a restore puts in the place of what, for people.

use super::line::Line;
use super::look::Look;
use super::prune::{Tense, counted};
use super::value::{date_and_clock, thousands};
use gpukill_proto::audit::{Contents, RestoreReport};
use gpukill_proto::text::visible;
use std::path::Path;

/// What a person is asked before it.
pub(crate) const QUESTION: &str = "put this copy in the place of the store?";

/// The copy, what it takes the place of, what is kept of that, and where the rest
/// lies: a line each.
pub(crate) fn lines(report: &RestoreReport, tense: Tense, look: &Look) -> [Line; 5] {
    let host = visible(report.host.as_bytes(), usize::MAX);
    let made = date_and_clock(report.made_at, look);
    let copy = format!(
        "the copy was made on {host} at {made} and has {}",
        holds(&report.then, look)
    );
    let place = match tense {
        Tense::Would => "it would take",
        Tense::Done => "it has taken",
    };
    let now = match &report.now {
        Some(now) => holds(now, look),
        None => "a store that cannot be counted".to_owned(),
    };
    let place = format!("{place} the place of {now}");
    let kept = match (report.carried, tense) {
        (0, _) => "nothing is recorded beyond it".to_owned(),
        (1, Tense::Would) => "1 entry that is recorded beyond it would be kept".to_owned(),
        (1, Tense::Done) => "1 entry that was recorded beyond it is kept".to_owned(),
        (several, Tense::Would) => format!(
            "{} entries that are recorded beyond it would be kept",
            thousands(several)
        ),
        (several, Tense::Done) => format!(
            "{} entries that were recorded beyond it are kept",
            thousands(several)
        ),
    };
    let aside = match &report.set_aside {
        None => "what is there now would be set aside, whole".to_owned(),
        Some(place) => format!("what was there lies in {}", name(Path::new(place))),
    };
    let since = match tense {
        Tense::Would => format!("samples of after {made} would be gone with it"),
        Tense::Done => format!("samples of after {made} are gone with it"),
    };
    [copy, place, kept, since, aside].map(|text| Line::plain(text).cut(look.width, look.symbols))
}

/// A path as a terminal may show it.
pub(crate) fn name(path: &Path) -> String {
    visible(path.display().to_string().as_bytes(), usize::MAX)
}

fn holds(contents: &Contents, look: &Look) -> String {
    let mut text = counted(contents).unwrap_or_else(|| "no samples".to_owned());
    if let (Some(since), Some(until)) = (contents.since, contents.until) {
        let moment = |at| date_and_clock(at, look);
        text.push_str(&format!(" from {} to {}", moment(since), moment(until)));
    }
    let entries = match contents.actions {
        1 => "1 entry".to_owned(),
        several => format!("{} entries", thousands(several)),
    };
    format!("{text}, and {entries} of what was done")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::look::{Symbols, Zone};
    use gpukill_proto::units::Timestamp;

    fn text(report: &RestoreReport, tense: Tense) -> [String; 5] {
        let look = Look {
            width: None,
            color: false,
            symbols: Symbols::Ascii,
            zone: Zone::Utc,
        };
        lines(report, tense, &look).map(|line| line.text())
    }

    #[test]
    fn a_copy_and_what_it_takes_the_place_of_are_told_before_and_after() {
        let then = Contents {
            samples: 12_345,
            minutes: 1,
            actions: 1,
            since: Some(Timestamp(0)),
            until: Some(Timestamp(86_400_000)),
            ..Contents::default()
        };
        let mut report = RestoreReport {
            now: Some(Contents {
                actions: 1_000,
                ..Contents::default()
            }),
            then,
            host: "box\u{1b}[2J".into(),
            made_at: Timestamp(1_795_269_751_250),
            carried: 999,
            set_aside: None,
        };
        let copy = "the copy was made on box\\x1b[2J at 2026-11-21 14:02:31 and has 12,345 samples, \
             1 minute from 1970-01-01 00:00:00 to 1970-01-02 00:00:00, and 1 entry of what was done";
        assert_eq!(
            text(&report, Tense::Would),
            [
                copy,
                "it would take the place of no samples, and 1,000 entries of what was done",
                "999 entries that are recorded beyond it would be kept",
                "samples of after 2026-11-21 14:02:31 would be gone with it",
                "what is there now would be set aside, whole",
            ]
        );
        report.now = None;
        report.carried = 0;
        report.set_aside = Some("/var/lib/gpukill/replaced-1".into());
        assert_eq!(
            text(&report, Tense::Done),
            [
                copy,
                "it has taken the place of a store that cannot be counted",
                "nothing is recorded beyond it",
                "samples of after 2026-11-21 14:02:31 are gone with it",
                "what was there lies in /var/lib/gpukill/replaced-1",
            ]
        );
    }
}
