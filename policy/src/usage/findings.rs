//! The findings of a usage report: what an admin looks at first after a period.

#[cfg(test)]
mod tests;

use gpukill_proto::audit::{ActionRecord, AuditSummary, Gap, OwnerTime};
use gpukill_proto::collect::SortIndirect as _;
use gpukill_proto::model::{DeviceId, EventKind};
use gpukill_proto::units::Timestamp;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::time::Duration;

/// The most findings of a report.
pub const MAX_FINDINGS: usize = 5;

/// The most owners with a finding about their idle time.
const MAX_IDLE_OWNERS: usize = 3;

/// Shorter times without samples are a restart or an update.
const MIN_UNRECORDED: Duration = Duration::from_secs(3_600);

/// The kinds of recorded actions that [`ActionTotals::add`] counts, as
/// [`ActionQuery::kind`](gpukill_proto::audit::ActionQuery::kind) takes them.
pub const COUNTED_KINDS: &str = "kill,reset,xid,device,fault,alert,started,booted";

/// A request or a device event in words, and its device.
pub type FaultKey = (Option<DeviceId>, String);

/// Counts of the recorded actions of a period.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ActionTotals {
    /// Kills by each rule of the guard.
    pub by_rule: BTreeMap<String, KillTotals>,
    /// Kills by each user, by name or else by number; without refused ones.
    pub by_user: BTreeMap<String, KillTotals>,
    /// Kills with a request that is hidden from the caller, by each user as above. Those of the
    /// guard are among them, and their rules are not known.
    pub hidden: BTreeMap<String, KillTotals>,
    /// Resets, without refused ones.
    pub resets: u64,
    /// Kills and resets that were refused.
    pub refused: u64,
    /// XIDs and other events of devices.
    pub device_events: BTreeMap<FaultKey, EventTotals>,
    /// Faults of the daemon, its configuration and the drivers.
    pub faults: BTreeMap<FaultKey, EventTotals>,
    /// Alerts, as for a temperature.
    pub alerts: BTreeMap<FaultKey, EventTotals>,
    /// Starts of the daemon.
    pub starts: u64,
    /// Starts of the host.
    pub boots: u64,
}

/// Counts of kills.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct KillTotals {
    /// All, whatever their result.
    pub all: u64,
    /// Those after which at least one process still ran.
    pub failed: u64,
    /// Those with a result that is not known, as after a stop of the daemon.
    pub unknown: u64,
}

/// Counts of an event.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct EventTotals {
    /// The number of occurrences.
    pub times: u64,
    /// The time of the last one.
    pub last: Timestamp,
}

impl ActionTotals {
    /// Counts an entry. Entries of other kinds than [`COUNTED_KINDS`] count nothing.
    pub fn add(&mut self, record: &ActionRecord) {
        let times = record.times.max(1);
        let is_refused = record.result.as_deref() == Some("refused");
        let events = match record.kind.as_str() {
            "kill" | "reset" if is_refused => {
                self.refused = self.refused.saturating_add(times);
                return;
            }
            "kill" => return self.add_kill(record, times),
            "reset" => {
                self.resets = self.resets.saturating_add(times);
                return;
            }
            "started" => {
                self.starts = self.starts.saturating_add(times);
                return;
            }
            "booted" => {
                self.boots = self.boots.saturating_add(times);
                return;
            }
            "xid" | "device" => &mut self.device_events,
            "fault" => &mut self.faults,
            "alert" => &mut self.alerts,
            _ => return,
        };
        let what = record.what.clone().unwrap_or_default();
        let event = events.entry((record.device.clone(), what)).or_default();
        event.times = event.times.saturating_add(times);
        event.last = event.last.max(record.at);
    }

    fn add_kill(&mut self, record: &ActionRecord, times: u64) {
        let kills = match (record.guard_rule(), &record.what) {
            (Some(rule), _) => self.by_rule.entry(rule.to_owned()).or_default(),
            (None, what) => {
                let number = || record.uid.map(|uid| uid.to_string());
                let user = record.user.clone().or_else(number).unwrap_or_default();
                let kills = match what {
                    Some(_) => &mut self.by_user,
                    None => &mut self.hidden,
                };
                kills.entry(user).or_default()
            }
        };
        kills.all = kills.all.saturating_add(times);
        let count = match record.result.as_deref() {
            // A kill without a result is under way.
            None | Some("done") => return,
            Some("partly" | "failed") => &mut kills.failed,
            Some(_) => &mut kills.unknown,
        };
        *count = count.saturating_add(times);
    }

    /// The number of kills after which a process still ran.
    #[must_use]
    pub fn failed_kills(&self) -> u64 {
        let kills = self.by_rule.values().chain(self.by_user.values());
        let kills = kills.chain(self.hidden.values());
        kills.fold(0, |sum, it| sum.saturating_add(it.failed))
    }
}

/// Something to look at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum UsageFinding<'a> {
    /// A device had these events, each with its number, the most frequent first.
    DeviceEvents(&'a DeviceId, Vec<(&'a str, u64)>),
    /// So many kills left a process behind.
    FailedKills(u64),
    /// Nothing was recorded for this time in all. The longest gap is named.
    Unrecorded(Duration, Gap),
    /// This owner held devices for long without using them.
    IdleOwner(&'a OwnerTime),
    /// This alert was raised so often.
    Alert(&'a FaultKey, u64),
    /// Processes held these devices, by index, for less than a hundredth of the period.
    UnusedDevices(Vec<u32>),
    /// It is unknown for this part of the held time whether the devices were at work, in
    /// milliseconds: the part and the whole.
    UnknownUse(u64, u64),
}

/// The findings, the most important first, at most [`MAX_FINDINGS`]. Broken devices come first,
/// because they lose work; then what makes the report itself incomplete; then waste. `period` is
/// the requested time: only the part of a gap within it counts.
#[must_use]
pub fn usage_findings<'a>(
    summary: &'a AuditSummary,
    totals: &'a ActionTotals,
    period: (Timestamp, Timestamp),
) -> Vec<UsageFinding<'a>> {
    let mut findings = device_findings(totals);
    let failed = totals.failed_kills();
    if failed > 0 {
        findings.push(UsageFinding::FailedKills(failed));
    }
    findings.extend(unrecorded(&summary.gaps, period));
    findings.extend(idle_owners(summary));
    let mut alerts: Vec<_> = totals.alerts.iter().collect();
    alerts.sort_indirect_by_key(|(_, it)| Reverse(it.times));
    let alerts = alerts.into_iter();
    findings.extend(alerts.map(|(key, it)| UsageFinding::Alert(key, it.times)));
    findings.extend(unused_devices(summary));
    findings.extend(unknown_use(summary));
    findings.truncate(MAX_FINDINGS);
    findings
}

/// A finding for each device with events, the most events first. A change by an admin and a return
/// are no failures.
fn device_findings(totals: &ActionTotals) -> Vec<UsageFinding<'_>> {
    type Events<'a> = (u64, Vec<(&'a str, u64)>);
    let mut devices: BTreeMap<&DeviceId, Events<'_>> = BTreeMap::new();
    let harmless = [EventKind::MigChange, EventKind::Returned].map(|kind| kind.to_string());
    for ((device, what), event) in &totals.device_events {
        let Some(device) = device.as_ref().filter(|_| !harmless.contains(what)) else {
            continue;
        };
        let (sum, events) = devices.entry(device).or_default();
        *sum = sum.saturating_add(event.times);
        events.push((what, event.times));
    }
    let mut devices: Vec<_> = devices.into_iter().collect();
    devices.sort_indirect_by_key(|(_, (sum, _))| Reverse(*sum));
    let findings = devices.into_iter().map(|(device, (_, mut events))| {
        events.sort_indirect_by_key(|(_, times)| Reverse(*times));
        UsageFinding::DeviceEvents(device, events)
    });
    findings.collect()
}

fn unrecorded<'a>(
    gaps: &[Gap],
    (since, until): (Timestamp, Timestamp),
) -> Option<UsageFinding<'a>> {
    let length = |gap: &Gap| gap.until.min(until).since(gap.from.max(since));
    let total = gaps.iter().map(length);
    let total = total.fold(Duration::ZERO, Duration::saturating_add);
    let longest = gaps.iter().max_by_key(|gap| length(gap))?;
    (total >= MIN_UNRECORDED).then_some(UsageFinding::Unrecorded(total, *longest))
}

/// The owners with an idle time of at least a hundredth of the time of all devices and a fifth of
/// their own, the longest first.
fn idle_owners(summary: &AuditSummary) -> Vec<UsageFinding<'_>> {
    let whole = summary.total_times().total_ms();
    let is_waste = |it: &&OwnerTime| {
        it.used.idle_ms.saturating_mul(100) >= whole.max(1)
            && it.used.idle_share().is_some_and(|share| share >= 0.2)
    };
    let mut owners: Vec<&OwnerTime> = summary.owners.iter().filter(is_waste).collect();
    owners.sort_indirect_by_key(|it| Reverse(it.used.idle_ms));
    owners.truncate(MAX_IDLE_OWNERS);
    owners.into_iter().map(UsageFinding::IdleOwner).collect()
}

fn unused_devices<'a>(summary: &AuditSummary) -> Option<UsageFinding<'a>> {
    let unused = summary.devices.iter().filter(|it| {
        let whole = it.times.total_ms();
        let held = whole.saturating_sub(it.times.free_ms);
        whole > 0 && held.saturating_mul(100) < whole
    });
    let unused: Vec<u32> = unused.map(|it| it.index).collect();
    (!unused.is_empty()).then_some(UsageFinding::UnusedDevices(unused))
}

/// From a tenth of the held time on.
fn unknown_use<'a>(summary: &AuditSummary) -> Option<UsageFinding<'a>> {
    let times = summary.total_times();
    let held = times.total_ms().saturating_sub(times.free_ms);
    let unknown = times.unknown_ms;
    (held > 0 && unknown.saturating_mul(10) >= held)
        .then_some(UsageFinding::UnknownUse(unknown, held))
}
