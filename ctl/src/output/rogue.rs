//! Who may be up to no good, for people: what a scan found, what is said of one process,
//! the mark of those in lists, and how the watch for them stands.

mod looked;

mod marked;

mod scanned;

pub(super) use looked::rows as looked;
pub(super) use marked::{RogueColumn, marked};
pub(crate) use scanned::{document, scanned};

use super::line::Tone;
use super::value::counted;
use gpukill_proto::rogue::{Lacks, Risk, RogueReport, Suspected, Verdict, WEIGHTY};

/// One line for `status`, and one for each mistake in the rules.
pub(super) fn brief(report: &RogueReport) -> Vec<(String, String, Tone)> {
    let (found, tone) = match report.findings {
        0 => ("watching, no findings".to_owned(), Tone::Plain),
        found => {
            let worst = report
                .worst
                .map_or_else(String::new, |risk| format!(", the worst {}", risk.name()));
            let found = counted(found as usize, "finding");
            let found = format!("{found}{worst}: gpukillctl rogue scan");
            (found, report.worst.map_or(Tone::Doubtful, tone))
        }
    };
    let beyond = match report.beyond {
        0 => String::new(),
        beyond => format!("; {} more than can be watched", processes(beyond as usize)),
    };
    let mistakes = match report.mistakes.len() {
        0 => String::new(),
        several => {
            let several = counted(several, "mistake");
            let holds = match report.revision {
                Some(_) => "what held before still holds",
                None => "the built-in rules hold",
            };
            format!("; {holds}: {several} in {}", report.file)
        }
    };
    let row = (
        "rogue".to_owned(),
        format!("{found}{beyond}{mistakes}"),
        tone,
    );
    let mistakes = report.mistakes.iter();
    let mistakes = mistakes.map(|it| ("mistake".to_owned(), it.clone(), Tone::Broken));
    std::iter::once(row).chain(mistakes).collect()
}

/// `1 process`, `300 processes`
pub(super) fn processes(number: usize) -> String {
    match number {
        1 => "1 process".to_owned(),
        several => format!("{several} processes"),
    }
}

/// That no rule may act on what is of high risk and more, and why, behind `no rule `;
/// `None` where one may, or where nobody expects it.
fn may_not_act(verdicts: &[Verdict]) -> Option<String> {
    let worst = Suspected::worst(verdicts).filter(|worst| worst.risk >= Risk::High)?;
    if worst.may_be_acted_on {
        return None;
    }
    let as_what = match Suspected::to_act_on(verdicts) {
        // It may be, as what it is a lesser risk of.
        Some(other) if other.may_be_acted_on => format!(" as a {}", worst.threat.words()),
        Some(_) | None => String::new(),
    };
    let of_worst = |it: &&Verdict| (it.risk, it.threat) == (worst.risk, worst.threat);
    let lacks = match verdicts.iter().find(of_worst)?.lacks()? {
        Lacks::NearProof => "that takes a sign of family A".to_owned(),
        Lacks::Second => "that takes a second sign, of another family".to_owned(),
        Lacks::Weight => {
            format!("that takes a second sign, of another family, that weighs at least {WEIGHTY}")
        }
        Lacks::Independence => {
            "that takes a sign besides the process's own name and arguments".to_owned()
        }
    };
    Some(format!("may act on it{as_what}: {lacks}"))
}

/// What the families of signs are.
const FAMILIES: &str = "A near a proof, B strong, C corroborates others and means nothing alone";

/// How a risk looks; its name says the same.
const fn tone(risk: Risk) -> Tone {
    match risk {
        Risk::Low => Tone::Plain,
        Risk::Medium => Tone::Doubtful,
        Risk::High | Risk::Critical => Tone::Broken,
    }
}
