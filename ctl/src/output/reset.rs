//! What `reset` shows: of each GPU what would be done and what stands in the way,
//! and what became of it.

use super::line::{Line, Tone, shown, wrap};
use super::look::{Look, Symbols};
use gpukill_proto::kill::{Ending, KillReport, Respawn, Stage};
use gpukill_proto::reset::{
    Blocker, ResetEnding, ResetFate, ResetOutcome, ResetPlan, ResetReport, ResetTarget, Unblock,
};
use std::collections::BTreeMap;

/// The columns of what is said before each line's own words.
const WORDS: usize = 16;

/// What would be done, and everything that stands in the way.
pub(crate) fn planned(plan: &ResetPlan, look: &Look) -> Vec<Line> {
    let mut lines = Vec::new();
    let shared = shared_reasons(plan);
    for target in &plan.devices {
        lines.extend(heading(target, &shared, look));
        for blocker in &target.blockers {
            lines.extend(blocking(blocker, look));
        }
        if !target.peers.is_empty() {
            let peers: Vec<String> = target.peers.iter().map(u32::to_string).collect();
            let what = match peers.as_slice() {
                [one] => format!("GPU {one}, which shares its links"),
                several => format!("GPUs {}, which share its links", several.join(", ")),
            };
            lines.extend(said("is reset too", &what, Tone::Doubtful, look));
        }
        for note in &target.notes {
            lines.extend(said("note", note, Tone::Faint, look));
        }
    }
    for (why, indices) in &shared {
        let indices: Vec<String> = indices.iter().map(u32::to_string).collect();
        let text = format!("GPUs {} cannot be reset: {why}", indices.join(", "));
        let texts = wrap(&shown(&text, look.symbols), 0, 2, look.width).into_iter();
        lines.extend(texts.map(|text| Line::toned(text, Tone::Strong)));
    }
    lines
}

/// Why several GPUs cannot be reset, and which: what is missing on the box is said
/// once.
fn shared_reasons(plan: &ResetPlan) -> BTreeMap<&str, Vec<u32>> {
    let mut reasons: BTreeMap<&str, Vec<u32>> = BTreeMap::new();
    for target in &plan.devices {
        match &target.fate {
            ResetFate::Unsupported(why) => reasons.entry(why).or_default().push(target.index),
            ResetFate::Reset | ResetFate::Blocked => {}
        }
    }
    reasons.retain(|_, indices| indices.len() > 1);
    reasons
}

/// `GPU 3 H100 80GB HBM3 at 0000:1b:00.0: would be reset`
fn heading(target: &ResetTarget, shared: &BTreeMap<&str, Vec<u32>>, look: &Look) -> Vec<Line> {
    let what = match &target.fate {
        ResetFate::Reset => "would be reset".to_owned(),
        ResetFate::Blocked => "cannot be reset now".to_owned(),
        ResetFate::Unsupported(why) if shared.contains_key(why.as_str()) => {
            "cannot be reset".to_owned()
        }
        ResetFate::Unsupported(why) => {
            format!("cannot be reset: {}", shown(why, look.symbols))
        }
    };
    let texts = wrap(
        &format!("{}: {what}", label(target, look.symbols)),
        0,
        2,
        look.width,
    );
    let texts = texts.into_iter();
    texts.map(|text| Line::toned(text, Tone::Strong)).collect()
}

fn label(target: &ResetTarget, symbols: Symbols) -> String {
    let name = target.name.last_known().map(|name| {
        let name = name.strip_prefix("NVIDIA ").unwrap_or(name);
        format!(" {}", shown(name, symbols))
    });
    let pci = target.pci.last_known();
    let pci = pci.map(|pci| format!(" at {}", shown(pci, symbols)));
    format!(
        "GPU {}{}{}",
        target.index,
        name.unwrap_or_default(),
        pci.unwrap_or_default()
    )
}

fn blocking(blocker: &Blocker, look: &Look) -> Vec<Line> {
    let (words, tone) = match blocker.remedy {
        Unblock::Daemon => ("gpukill ends", Tone::Faint),
        Unblock::Force => ("--force ends", Tone::Plain),
        Unblock::Person => ("in the way", Tone::Doubtful),
    };
    said(words, &blocker.what, tone, look)
}

/// What became of one GPU.
pub(crate) fn done(outcome: &ResetOutcome, look: &Look) -> Vec<Line> {
    let (what, tone) = match &outcome.ending {
        ResetEnding::Reset(after) => (
            format!("reset, and it answers, after {}", seconds(*after)),
            Tone::Plain,
        ),
        ResetEnding::Blocked(_) => ("not reset".to_owned(), Tone::Strong),
        ResetEnding::Unsupported(why) => (format!("cannot be reset: {why}"), Tone::Strong),
        ResetEnding::Failed(why) => (format!("failed: {why}"), Tone::Strong),
        ResetEnding::Unreachable(how) => (format!("UNREACHABLE: {how}"), Tone::Strong),
    };
    let text = format!("GPU {}: {}", outcome.index, shown(&what, look.symbols));
    let texts = wrap(&text, 0, 2, look.width).into_iter();
    let mut lines: Vec<Line> = texts.map(|text| Line::toned(text, tone)).collect();
    match &outcome.ending {
        ResetEnding::Blocked(blockers) => {
            for blocker in blockers {
                lines.extend(blocking(blocker, look));
            }
        }
        ResetEnding::Reset(_)
        | ResetEnding::Unsupported(_)
        | ResetEnding::Failed(_)
        | ResetEnding::Unreachable(_) => {}
    }
    if let Some(ended) = &outcome.ended {
        lines.extend(ends(ended, look));
    }
    if let Some(note) = &outcome.note {
        lines.extend(said("note", note, Tone::Doubtful, look));
    }
    lines
}

/// Those that were ended for it.
fn ends(report: &KillReport, look: &Look) -> Vec<Line> {
    let outcomes = report.outcomes.iter();
    let each = outcomes.flat_map(|outcome| {
        let (name, pid) = (shown(&outcome.name, look.symbols), outcome.key.pid);
        match &outcome.ending {
            Ending::Ended(signal, after) => {
                let what = format!("{pid} {name}: {signal}, {}", seconds(*after));
                said("ended", &what, Tone::Plain, look)
            }
            Ending::Gone => said(
                "gone",
                &format!("{pid} {name}: had ended already"),
                Tone::Faint,
                look,
            ),
            // What is in the way still is named as that.
            Ending::Survived(..)
            | Ending::Changed(_)
            | Ending::Protected(_)
            | Ending::Denied(_)
            | Ending::Unclear(_)
            | Ending::Uninterruptible(_)
            | Ending::Zombie(_)
            | Ending::Failed(_) => {
                said("not ended", &format!("{pid} {name}"), Tone::Doubtful, look)
            }
        }
    });
    let again = report.respawned.iter();
    let again =
        again.flat_map(|respawn| said("started again", &anew(respawn), Tone::Doubtful, look));
    each.chain(again).collect()
}

/// `52003 python, by vllm.service: stop that first`
fn anew(respawn: &Respawn) -> String {
    let what = format!("{} {}", respawn.key.pid, respawn.name);
    let unit = respawn.unit.as_ref().map(|unit| unit.name.clone());
    let parent = || {
        let parent = respawn.parent.as_ref()?;
        let name = parent.name.last_known().map_or("", String::as_str);
        Some(format!("{} {name}", parent.pid))
    };
    match unit.or_else(parent) {
        Some(by) => format!("{what}, by {by}: stop that first"),
        None => what,
    }
}

/// What is to be known of all together.
pub(crate) fn closing(report: &ResetReport, look: &Look) -> Vec<Line> {
    let mut texts = Vec::new();
    if report.stage == Stage::Interrupted {
        texts.push("gpukilld stopped before it was done".to_owned());
    }
    if let Some(why) = &report.unrecorded {
        texts.push(format!("not recorded: {}", shown(why, look.symbols)));
    }
    let lines = texts
        .iter()
        .flat_map(|text| wrap(text, 0, 2, look.width))
        .map(|text| Line::toned(text, Tone::Doubtful));
    lines.collect()
}

/// What is asked before a plan is carried out.
pub(crate) fn question(plan: &ResetPlan) -> String {
    let mut fates = plan.devices.iter();
    let is_reset = |target: &&ResetTarget| target.fate == ResetFate::Reset;
    match fates.by_ref().filter(is_reset).count() {
        1 => "Reset it? What it does now is lost.".to_owned(),
        many => format!("Reset {many} GPUs? What they do now is lost."),
    }
}

fn said(words: &str, what: &str, tone: Tone, look: &Look) -> Vec<Line> {
    let indent = WORDS + 2;
    let mut texts = wrap(&shown(what, look.symbols), indent, indent, look.width);
    if let Some(first) = texts.first_mut() {
        *first = format!("  {words:<WORDS$}{first}");
    }
    let texts = texts.into_iter();
    texts.map(|text| Line::toned(text, tone)).collect()
}

/// `4.2 s`
fn seconds(milliseconds: u64) -> String {
    format!("{}.{} s", milliseconds / 1000, milliseconds % 1000 / 100)
}
