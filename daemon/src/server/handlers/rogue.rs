//! The calls about rogue processes: the findings that this caller may see, and the rules.

use super::super::visibility::Visibility;
use super::Session;
use crate::rogue::scan::scan;
use crate::rules_file::RulesMistake;
use crate::store::RuleSetKind;
use gpukill_proto::collect::IntoMap as _;
use gpukill_proto::model::{GpuProcess, ProcessKey, Snapshot};
use gpukill_proto::reading::Reading;
use gpukill_proto::refusal::Refusal;
use gpukill_proto::rogue::{
    RogueAssessment, RogueFinding, RogueReport, ScanReport, VerdictSummary,
};
use gpukill_proto::service::{MAX_SCAN_HOURS, MAX_VERDICTS};
use std::collections::BTreeMap;
use std::sync::Arc;

const HOUR: i64 = 3_600;

impl Session {
    /// Lists the suspicious processes of now and of the last `hours`.
    pub(crate) async fn scan_past(&self, hours: u32) -> Result<ScanReport, Refusal> {
        if !(1..=MAX_SCAN_HOURS).contains(&hours) {
            let what = format!("a scan covers 1 to {MAX_SCAN_HOURS} hours");
            return Err(Refusal::Invalid(what));
        }
        let (caller, roles) = (Arc::clone(&self.caller), self.shared.roles());
        let (rogue, store) = (self.shared.rogue.clone(), self.shared.store.clone());
        let state = self.shared.state.clone();
        self.run_lookback(move |is_wanted| {
            let snapshot = Arc::clone(&state.borrow().snapshot);
            let since = snapshot.taken_at.plus_seconds(-i64::from(hours) * HOUR);
            let rules = rogue.in_force().rules;
            let visibility = Visibility {
                caller: &caller,
                roles: &roles,
            };
            let present = processes_by_key(&snapshot);
            let is_reported = |finding: &RogueFinding| is_visible(finding, &present, visibility);
            let now = (&*snapshot, &*rogue.status());
            scan(
                &store,
                (*rules).clone(),
                since,
                now,
                &is_reported,
                is_wanted,
            )
        })
        .await
    }

    /// The suspicious processes in a list of this snapshot.
    pub(crate) fn suspected_processes(
        &self,
        snapshot: &Snapshot,
    ) -> Vec<(ProcessKey, VerdictSummary)> {
        let mut suspected = self.all_suspected_processes(snapshot);
        suspected.truncate(MAX_VERDICTS);
        suspected
    }

    /// All suspicious processes that the caller may see, the worst first.
    fn all_suspected_processes(&self, snapshot: &Snapshot) -> Vec<(ProcessKey, VerdictSummary)> {
        let roles = self.shared.roles();
        let status = self.shared.rogue.status();
        let present = processes_by_key(snapshot);
        let visible = status.findings.iter();
        let visible =
            visible.filter(|finding| is_visible(finding, &present, self.visibility(&roles)));
        let marks = visible.filter_map(|finding| {
            let worst = VerdictSummary::worst(&finding.verdicts)?;
            Some((finding.process, worst))
        });
        marks.collect()
    }

    /// The assessment of a process, which is the same on each of its devices.
    pub(super) fn rogue_assessment(&self, process: &GpuProcess) -> Reading<RogueAssessment> {
        let roles = self.shared.roles();
        if !self.visibility(&roles).sees_process(process) {
            return Reading::Withheld;
        }
        let status = self.shared.rogue.status();
        let assessment = process.key().and_then(|key| status.assessments.get(&key));
        match assessment {
            Some(assessment) => Reading::Value((**assessment).clone()),
            None => Reading::Failed("not inspected yet".into()),
        }
    }

    /// The status of the watch. A mistake quotes the file only to callers who may edit it.
    pub(super) fn rogue_report(&self, snapshot: &Snapshot) -> RogueReport {
        let rogue = &self.shared.rogue;
        let (in_force, status) = (rogue.in_force(), rogue.status());
        let visible: Vec<VerdictSummary> = self
            .all_suspected_processes(snapshot)
            .into_iter()
            .map(|(_, it)| it)
            .collect();
        let may_edit = self.may_edit_rules(RuleSetKind::Rogues).is_ok();
        let mistakes = in_force.mistakes.iter().map(|wrong| match may_edit {
            true => wrong.to_string(),
            false => RulesMistake::position(wrong),
        });
        let count = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
        RogueReport {
            file: rogue.store.path().display().to_string(),
            revision: in_force.revision.clone(),
            mistakes: mistakes.collect(),
            watched: count(status.assessments.len()),
            unwatched: status.overflow,
            findings: count(visible.len()),
            worst: visible.iter().map(|it| it.risk).max(),
        }
    }
}

/// The processes that use a device, by key.
fn processes_by_key(snapshot: &Snapshot) -> BTreeMap<ProcessKey, &GpuProcess> {
    let processes = snapshot.processes.iter();
    processes.filter_map(|it| Some((it.key()?, it))).into_map()
}

/// Whether the caller may see a finding: only if the caller may see the process.
fn is_visible(
    finding: &RogueFinding,
    present: &BTreeMap<ProcessKey, &GpuProcess>,
    visibility: Visibility<'_>,
) -> bool {
    match present.get(&finding.process) {
        Some(process) => visibility.sees_process(process),
        None => visibility.sees_user(finding.uid),
    }
}
