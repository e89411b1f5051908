//! The output of `reset`: for each GPU the plan, the blockers and the outcome.

use super::style::{OutputStyle, Symbols};
use super::text::{Line, Tone, escaped, escaped_lines, wrap, wrapped_lines};
use gpukill_proto::kill::{KillReport, Outcome, Respawn, Stage};
use gpukill_proto::reset::{
    Blocker, PlannedReset, ResetOutcome, ResetPlan, ResetReport, ResetResult, ResetTarget,
    Unblocker,
};
use std::collections::BTreeMap;

/// The width of the label before a line's text.
const LABEL_WIDTH: usize = 16;

/// The plan for each GPU, and everything that prevents it.
pub(crate) fn plan_lines(plan: &ResetPlan, style: &OutputStyle) -> Vec<Line> {
    let mut lines = Vec::new();
    let shared = shared_reasons(plan);
    for target in &plan.devices {
        lines.extend(heading(target, &shared, style));
        for blocker in &target.blockers {
            lines.extend(blocker_lines(blocker, style));
        }
        if !target.peers.is_empty() {
            let peers: Vec<String> = target.peers.iter().map(u32::to_string).collect();
            let what = match peers.as_slice() {
                [one] => format!("GPU {one}, which shares its links"),
                several => format!("GPUs {}, which share its links", several.join(", ")),
            };
            lines.extend(labelled_lines("is reset too", &what, Tone::Doubtful, style));
        }
        for note in &target.notes {
            lines.extend(labelled_lines("note", note, Tone::Faint, style));
        }
    }
    for (why, indices) in &shared {
        let indices: Vec<String> = indices.iter().map(u32::to_string).collect();
        let text = format!("GPUs {} cannot be reset: {why}", indices.join(", "));
        lines.extend(escaped_lines(&text, Tone::Strong, style));
    }
    lines
}

/// Reasons that several GPUs share. Something missing on the host is reported once.
fn shared_reasons(plan: &ResetPlan) -> BTreeMap<&str, Vec<u32>> {
    let mut reasons: BTreeMap<&str, Vec<u32>> = BTreeMap::new();
    for target in &plan.devices {
        match &target.action {
            PlannedReset::Unsupported(why) => reasons.entry(why).or_default().push(target.index),
            PlannedReset::Reset | PlannedReset::Blocked => {}
        }
    }
    reasons.retain(|_, indices| indices.len() > 1);
    reasons
}

/// `GPU 3 H100 80GB HBM3 at 0000:1b:00.0: would be reset`
fn heading(
    target: &ResetTarget,
    shared: &BTreeMap<&str, Vec<u32>>,
    style: &OutputStyle,
) -> Vec<Line> {
    let what = match &target.action {
        PlannedReset::Reset => "would be reset".to_owned(),
        PlannedReset::Blocked => "cannot be reset now".to_owned(),
        PlannedReset::Unsupported(why) if shared.contains_key(why.as_str()) => {
            "cannot be reset".to_owned()
        }
        PlannedReset::Unsupported(why) => {
            format!("cannot be reset: {}", escaped(why, style.symbols))
        }
    };
    let text = format!("{}: {what}", label(target, style.symbols));
    wrapped_lines(&text, Tone::Strong, style)
}

fn label(target: &ResetTarget, symbols: Symbols) -> String {
    let name = target.name.last_known().map(|name| {
        let name = name.strip_prefix("NVIDIA ").unwrap_or(name);
        format!(" {}", escaped(name, symbols))
    });
    let pci = target.pci.last_known();
    let pci = pci.map(|pci| format!(" at {}", escaped(pci, symbols)));
    format!(
        "GPU {}{}{}",
        target.index,
        name.unwrap_or_default(),
        pci.unwrap_or_default()
    )
}

fn blocker_lines(blocker: &Blocker, style: &OutputStyle) -> Vec<Line> {
    let (words, tone) = match blocker.remedy {
        Unblocker::Daemon => ("gpukill ends", Tone::Faint),
        Unblocker::Force => ("--force ends", Tone::Plain),
        Unblocker::Person => ("in the way", Tone::Doubtful),
    };
    labelled_lines(words, &blocker.what, tone, style)
}

pub(crate) fn outcome_lines(outcome: &ResetOutcome, style: &OutputStyle) -> Vec<Line> {
    let (what, tone) = match &outcome.result {
        ResetResult::Reset(after) => (
            format!("reset, and it answers, after {}", seconds_text(*after)),
            Tone::Plain,
        ),
        ResetResult::Blocked(_) => ("not reset".to_owned(), Tone::Strong),
        ResetResult::Unsupported(why) => (format!("cannot be reset: {why}"), Tone::Strong),
        ResetResult::Failed(why) => (format!("failed: {why}"), Tone::Strong),
        ResetResult::Unreachable(how) => (format!("UNREACHABLE: {how}"), Tone::Strong),
    };
    let text = format!("GPU {}: {}", outcome.index, escaped(&what, style.symbols));
    let mut lines = wrapped_lines(&text, tone, style);
    match &outcome.result {
        ResetResult::Blocked(blockers) => {
            for blocker in blockers {
                lines.extend(blocker_lines(blocker, style));
            }
        }
        ResetResult::Reset(_)
        | ResetResult::Unsupported(_)
        | ResetResult::Failed(_)
        | ResetResult::Unreachable(_) => {}
    }
    if let Some(ended) = &outcome.ended {
        lines.extend(ended_lines(ended, style));
    }
    if let Some(note) = &outcome.note {
        lines.extend(labelled_lines("note", note, Tone::Doubtful, style));
    }
    lines
}

/// The processes that were ended for the reset.
fn ended_lines(report: &KillReport, style: &OutputStyle) -> Vec<Line> {
    let outcomes = report.outcomes.iter();
    let each = outcomes.flat_map(|outcome| {
        let (name, pid) = (escaped(&outcome.name, style.symbols), outcome.key.pid);
        let (called, what, tone) = match &outcome.outcome {
            Outcome::Ended(signal, after) => {
                let what = format!(": {signal}, {}", seconds_text(*after));
                ("ended", what, Tone::Plain)
            }
            Outcome::Gone => ("gone", ": had ended already".to_owned(), Tone::Faint),
            // A process that still blocks the reset is listed as a blocker too.
            Outcome::Survived(..)
            | Outcome::Changed(_)
            | Outcome::Protected(_)
            | Outcome::Denied(_)
            | Outcome::Unclear(_)
            | Outcome::Uninterruptible(_)
            | Outcome::Zombie(_)
            | Outcome::Failed(_) => ("not ended", String::new(), Tone::Doubtful),
        };
        labelled_lines(called, &format!("{pid} {name}{what}"), tone, style)
    });
    let again = report.respawned.iter();
    let again = again.flat_map(|respawn| {
        labelled_lines(
            "started again",
            &respawn_text(respawn),
            Tone::Doubtful,
            style,
        )
    });
    each.chain(again).collect()
}

/// `52003 python, by vllm.service: stop that first`
fn respawn_text(respawn: &Respawn) -> String {
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

/// Facts about the reset as a whole.
pub(crate) fn closing_lines(report: &ResetReport, style: &OutputStyle) -> Vec<Line> {
    let mut texts = Vec::new();
    if report.stage == Stage::Interrupted {
        texts.push("gpukilld stopped before it was done".to_owned());
    }
    if let Some(why) = &report.unrecorded {
        texts.push(format!("not recorded: {}", escaped(why, style.symbols)));
    }
    let lines = texts.iter();
    lines
        .flat_map(|text| wrapped_lines(text, Tone::Doubtful, style))
        .collect()
}

/// The question before a plan is carried out.
pub(crate) fn question(plan: &ResetPlan) -> String {
    let mut targets = plan.devices.iter();
    let is_reset = |target: &&ResetTarget| target.action == PlannedReset::Reset;
    match targets.by_ref().filter(is_reset).count() {
        1 => "Reset it? What it does now is lost.".to_owned(),
        many => format!("Reset {many} GPUs? What they do now is lost."),
    }
}

fn labelled_lines(words: &str, what: &str, tone: Tone, style: &OutputStyle) -> Vec<Line> {
    let indent = LABEL_WIDTH + 2;
    let mut texts = wrap(&escaped(what, style.symbols), indent, indent, style.width);
    if let Some(first) = texts.first_mut() {
        *first = format!("  {words:<LABEL_WIDTH$}{first}");
    }
    let texts = texts.into_iter();
    texts.map(|text| Line::with_tone(text, tone)).collect()
}

/// `4.2 s`
fn seconds_text(milliseconds: u64) -> String {
    format!("{}.{} s", milliseconds / 1000, milliseconds % 1000 / 100)
}
