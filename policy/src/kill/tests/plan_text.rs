//! Renders a host and plans for it as text.

use super::fixture::*;
use crate::access::Caller;
use gpukill_proto::kill::{KillPlan, KillRequest, KillTarget, PlannedAction, RemainingJob};
use std::fmt::Write as _;

impl KillTestHost {
    /// The host and these plans as text.
    pub(super) fn render(&self, asked: &[(&str, Caller, KillRequest)]) -> String {
        let mut text = String::new();
        for process in self
            .process_table
            .values()
            .filter(|p| p.lineage.key.pid > 91)
        {
            let lineage = &process.lineage;
            let location = match (process.container.known(), &lineage.unit) {
                (Some(Some(container)), _) => container.to_string(),
                (_, Some(unit)) => unit.name.clone(),
                _ => String::new(),
            };
            let line = format!(
                "{:>6} below {:<6} {:<8} {:<15} {location}",
                lineage.key.pid,
                process.parent,
                name_of(lineage.uid.unwrap()),
                lineage.name,
            );
            writeln!(text, "{}", line.trim_end()).unwrap();
        }
        for (name, caller, request) in asked {
            let force = if request.force { " --force" } else { "" };
            let any = if request.any_process {
                " --any-process"
            } else {
                ""
            };
            let scope = request.scope.name();
            writeln!(
                text,
                "\n{name}: kill {} --scope {scope}{force}{any}",
                request.selector
            )
            .unwrap();
            text.push_str(&match self.plan(caller, request) {
                Ok(plan) => plan_text(&plan),
                Err(refusal) => format!("  {refusal:?}\n"),
            });
        }
        text
    }
}

fn plan_text(plan: &KillPlan) -> String {
    let mut text = String::new();
    for target in &plan.targets {
        writeln!(text, "  {}", target_text(target)).unwrap();
    }
    if plan.undetermined > 0 {
        writeln!(text, "  undetermined: {}", plan.undetermined).unwrap();
    }
    for rest in &plan.remaining_jobs {
        let RemainingJob {
            pid,
            job,
            remaining_processes: others,
        } = rest;
        writeln!(text, "  goes on: {others} of {job}, as {pid}").unwrap();
    }
    text
}

fn target_text(target: &KillTarget) -> String {
    let holds = target.holds.iter().map(|hold| {
        let memory = hold.memory.known();
        let memory = memory.map_or("?".into(), |bytes| format!("{}G", bytes.0 / GIB));
        format!("GPU {} {memory}", hold.index)
    });
    let holds: Vec<String> = holds.collect();
    let action = match &target.action {
        PlannedAction::End(signals) => {
            let signals: Vec<String> = signals.iter().map(ToString::to_string).collect();
            format!("ends by {}", signals.join(", "))
        }
        PlannedAction::Protected(protected) => match protected.override_hint() {
            Some(way) => format!("is protected: {}; {way}", protected.why),
            None => format!("is protected: {}", protected.why),
        },
        PlannedAction::Denied(ask) => format!("is denied: ask {ask}"),
        PlannedAction::Unclear(why) => format!("is unclear: {why}"),
        PlannedAction::Zombie(reaper) => {
            format!("is a zombie of {} {:?}", reaper.pid, reaper.name.known())
        }
    };
    let named = if target.named { "named" } else { "" };
    let job = target.job.known().map_or("?".into(), ToString::to_string);
    let owner = target.owner.known().map_or("?", String::as_str);
    let what = format!(
        "{:>6} {:<15} {owner:<8} {named:<5} {:<9} {job:<20} {action}",
        target.key.pid,
        target.name,
        holds.join(", "),
    );
    what.trim_end().to_owned()
}
