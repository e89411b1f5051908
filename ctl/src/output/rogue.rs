//! Suspicious processes, for people: scan results, one process, marks in lists, and the status
//! of the watch.

mod column;
mod process;
mod scan;

pub(super) use column::{RogueColumn, count_marked};
pub(super) use process::rows as looked;
pub(crate) use scan::{document, scan_lines};

use super::text::Tone;
use super::value::{counted, counted_processes};
use gpukill_proto::rogue::{
    MIN_ACTIONABLE_WEIGHT, MissingEvidence, Risk, RogueReport, Verdict, VerdictSummary,
};

/// One line for `status`, and one for each mistake in the rules.
pub(super) fn status_rows(report: &RogueReport) -> Vec<(String, String, Tone)> {
    let (found, tone) = match report.findings {
        0 => ("watching, no findings".to_owned(), Tone::Plain),
        found => {
            let worst = report
                .worst
                .map_or_else(String::new, |risk| format!(", the worst {}", risk.name()));
            let found = counted(found as usize, "finding");
            let found = format!("{found}{worst}: gpukillctl rogue scan");
            (found, report.worst.map_or(Tone::Doubtful, risk_tone))
        }
    };
    let unwatched = match report.unwatched {
        0 => String::new(),
        unwatched => format!(
            "; {} more than can be watched",
            counted_processes(unwatched as usize)
        ),
    };
    let mistakes = match report.mistakes.len() {
        0 => String::new(),
        several => {
            let several = counted(several, "mistake");
            let holds = match report.revision {
                Some(_) => "the previous rules still apply",
                None => "the built-in rules apply",
            };
            format!("; {holds}: {several} in {}", report.file)
        }
    };
    let row = (
        "rogue".to_owned(),
        format!("{found}{unwatched}{mistakes}"),
        tone,
    );
    let mistakes = report.mistakes.iter();
    let mistakes = mistakes.map(|it| ("mistake".to_owned(), it.clone(), Tone::Broken));
    std::iter::once(row).chain(mistakes).collect()
}

/// Why no rule may act on a verdict of high risk or more, as the rest of a sentence that begins
/// with `no rule `; `None` when a rule may act or no such verdict exists.
fn no_action_reason(verdicts: &[Verdict]) -> Option<String> {
    let worst = VerdictSummary::worst(verdicts).filter(|worst| worst.risk >= Risk::High)?;
    if worst.is_actionable {
        return None;
    }
    let as_what = match VerdictSummary::most_actionable(verdicts) {
        // Rules may act on another verdict of lesser risk.
        Some(other) if other.is_actionable => format!(" as a {}", worst.threat.label()),
        Some(_) | None => String::new(),
    };
    let of_worst = |it: &&Verdict| (it.risk, it.threat) == (worst.risk, worst.threat);
    let lacks = match verdicts.iter().find(of_worst)?.missing_evidence()? {
        MissingEvidence::NearProof => "that takes an indicator of family A".to_owned(),
        MissingEvidence::SecondFamily => {
            "that takes a second indicator, of another family".to_owned()
        }
        MissingEvidence::Weight => {
            format!(
                "that takes a second indicator, of another family, that weighs at least \
                {MIN_ACTIONABLE_WEIGHT}"
            )
        }
        MissingEvidence::Independence => {
            "that takes an indicator other than the process's own name and arguments".to_owned()
        }
    };
    Some(format!("may act on it{as_what}: {lacks}"))
}

const FAMILIES_LEGEND: &str =
    "A near a proof, B strong, C corroborates others and means nothing alone";

/// The tone of a risk; the name of the risk states the same.
const fn risk_tone(risk: Risk) -> Tone {
    match risk {
        Risk::Low => Tone::Plain,
        Risk::Medium => Tone::Doubtful,
        Risk::High | Risk::Critical => Tone::Broken,
    }
}
