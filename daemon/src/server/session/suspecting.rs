//! What the watch for rogues says, as far as this caller may see it.

use super::super::sight::Sight;
use super::Session;
use crate::rogue::scan::scan;
use crate::rules_file::Wrong;
use gpukill_proto::collect::IntoMap as _;
use gpukill_proto::reading::Reading;
use gpukill_proto::refusal::Refusal;
use gpukill_proto::rogue::{Finding, Looked, RogueReport, ScanReport, Suspected};
use gpukill_proto::service::{LONGEST_SCAN, MOST_SUSPECTED};
use gpukill_proto::snapshot::{GpuProcess, ProcessKey, Snapshot};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Seconds in an hour.
const HOUR: i64 = 3_600;

impl Session {
    /// Who may be up to no good, now and in the last so many hours.
    pub(super) async fn scan_past(&self, hours: u32) -> Result<ScanReport, Refusal> {
        if !(1..=LONGEST_SCAN).contains(&hours) {
            let what = format!("a scan is of 1 to {LONGEST_SCAN} hours");
            return Err(Refusal::Invalid(what));
        }
        let (caller, roles) = (Arc::clone(&self.caller), self.shared.roles());
        let (rogue, store) = (self.shared.rogue.clone(), self.shared.store.clone());
        let state = self.shared.state.clone();
        self.look_back(move |is_wanted| {
            let snapshot = Arc::clone(&state.borrow().snapshot);
            let since = snapshot.taken_at.plus_seconds(-i64::from(hours) * HOUR);
            let rules = rogue.in_force().rules;
            let sight = Sight {
                caller: &caller,
                roles: &roles,
            };
            let here = here(&snapshot);
            let is_told = |finding: &Finding| is_seen(finding, &here, sight);
            let now = (&*snapshot, &*rogue.standing());
            scan(&store, (*rules).clone(), since, now, &is_told, is_wanted)
        })
        .await
    }

    /// What a list of this snapshot shows of it.
    pub(super) fn suspected(&self, snapshot: &Snapshot) -> Vec<(ProcessKey, Suspected)> {
        let mut suspected = self.all_suspected(snapshot);
        suspected.truncate(MOST_SUSPECTED);
        suspected
    }

    /// All whom the caller sees, the worst first.
    fn all_suspected(&self, snapshot: &Snapshot) -> Vec<(ProcessKey, Suspected)> {
        let roles = self.shared.roles();
        let standing = self.shared.rogue.standing();
        let here = here(snapshot);
        let seen = standing.findings.iter();
        let seen = seen.filter(|finding| is_seen(finding, &here, self.sight(&roles)));
        let marks = seen.filter_map(|finding| {
            let worst = Suspected::worst(&finding.verdicts)?;
            Some((finding.process, worst))
        });
        marks.collect()
    }

    /// What one of these looks like, which are one process on each of its devices.
    pub(super) fn looked_like(&self, process: &GpuProcess) -> Reading<Looked> {
        let roles = self.shared.roles();
        if !self.sight(&roles).of_process(process) {
            return Reading::Withheld;
        }
        let standing = self.shared.rogue.standing();
        let looked = process.key().and_then(|key| standing.looked.get(&key));
        match looked {
            Some(looked) => Reading::Value((**looked).clone()),
            None => Reading::Failed("not looked at yet".into()),
        }
    }

    /// How it stands. What a mistake quotes of the file is for whoever may change it.
    pub(super) fn rogue_report(&self, snapshot: &Snapshot) -> RogueReport {
        let rogue = &self.shared.rogue;
        let (in_force, standing) = (rogue.in_force(), rogue.standing());
        let seen: Vec<Suspected> = self
            .all_suspected(snapshot)
            .into_iter()
            .map(|(_, it)| it)
            .collect();
        let may_edit = self.may_edit_rogue().is_ok();
        let mistakes = in_force.mistakes.iter().map(|wrong| match may_edit {
            true => wrong.to_string(),
            false => Wrong::place(wrong),
        });
        let count = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
        RogueReport {
            file: rogue.keeper.path().display().to_string(),
            revision: in_force.revision.clone(),
            mistakes: mistakes.collect(),
            watched: count(standing.looked.len()),
            beyond: standing.beyond,
            findings: count(seen.len()),
            worst: seen.iter().map(|it| it.risk).max(),
        }
    }
}

/// Who uses a device.
fn here(snapshot: &Snapshot) -> BTreeMap<ProcessKey, &GpuProcess> {
    let processes = snapshot.processes.iter();
    processes.filter_map(|it| Some((it.key()?, it))).into_map()
}

/// Whether somebody sees this: whoever sees what the process does.
fn is_seen(finding: &Finding, here: &BTreeMap<ProcessKey, &GpuProcess>, sight: Sight<'_>) -> bool {
    match here.get(&finding.process) {
        Some(process) => sight.of_process(process),
        None => sight.of_user(finding.uid),
    }
}
