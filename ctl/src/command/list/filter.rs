//! Applies a selection to a snapshot and decides whether the result is an answer.

use crate::exit::Error;
use crate::output::list::view::reads_vendor;
use gpukill_policy::select::{DeviceSelectorError, SnapshotFilter, filter_snapshot};
use gpukill_proto::model::{
    BackendReport, BackendState, Device, DeviceId, LossKind, Snapshot, Vendor,
};
use gpukill_proto::text::sanitize;
use rustix::process::getuid;

/// The selected part of a snapshot.
#[derive(Debug)]
pub(super) struct SelectedSnapshot {
    /// The selected part; without devices and processes when nothing matches.
    pub snapshot: Snapshot,
    /// Why the selected part is not an answer.
    pub verdict: Option<Error>,
}

/// Applies the selection. `unknown_user` returns the name of a user that does not exist for a
/// message; it is called only when the verdict depends on it.
pub(super) fn select_part(
    snapshot: Snapshot,
    selection: &SnapshotFilter,
    unknown_user: &dyn Fn(&str) -> Option<String>,
) -> SelectedSnapshot {
    let doubts = undecided_processes(&snapshot, selection);
    let nothing = Snapshot {
        host: snapshot.host.clone(),
        backends: snapshot.backends.clone(),
        faults: snapshot.faults.clone(),
        devices: Vec::new(),
        processes: Vec::new(),
        ..snapshot
    };
    match filter_snapshot(snapshot, selection) {
        Ok(snapshot) => SelectedSnapshot {
            verdict: check_selection(&snapshot, selection, &doubts, unknown_user),
            snapshot,
        },
        Err(error) => SelectedSnapshot {
            verdict: Some(no_such_device(error, &nothing.backends, selection)),
            snapshot: nothing,
        },
    }
}

/// A process of which too little is known to decide whether it matches.
struct UndecidedProcess {
    device: DeviceId,
    why: String,
}

fn undecided_processes(snapshot: &Snapshot, selection: &SnapshotFilter) -> Vec<UndecidedProcess> {
    let processes = snapshot.processes.iter();
    let doubts = processes.filter_map(|process| {
        let (what, why) = selection.missing_fact(process)?;
        Some(UndecidedProcess {
            device: process.device.clone(),
            why: format!("the {what} of process {} is unknown ({why})", process.pid),
        })
    });
    doubts.collect()
}

fn check_selection(
    chosen: &Snapshot,
    selection: &SnapshotFilter,
    doubts: &[UndecidedProcess],
    unknown_user: &dyn Fn(&str) -> Option<String>,
) -> Option<Error> {
    if chosen.devices.is_empty() {
        let failed = failed_backend(&chosen.backends, &selection.vendors);
        let vendors: Vec<&str> = selection.vendors.iter().map(|it| it.name()).collect();
        let vendors = vendors.join(" or ");
        let unmatched = || match &selection.gpu {
            _ if vendors.is_empty() => None,
            Some(typed) => {
                let typed = sanitize(typed.as_bytes(), 80);
                Some(Error::NoMatch(format!("no {vendors} GPU matches {typed}")))
            }
            None => Some(Error::NoMatch(format!("no {vendors} GPU here"))),
        };
        return failed.or_else(unmatched);
    }
    let description = describe_processes(selection);
    let user = selection.user.as_deref();
    // A user who does not exist uses nothing, whatever else is unknown.
    let unless_unknown_user = |failure| match (&description, user.and_then(unknown_user)) {
        (Some(description), Some(user)) => Error::NoMatch(format!(
            "no GPU here is used by {description}: no user is called {user}"
        )),
        (Some(_) | None, _) => failure,
    };
    let unknown = |device: &Device| device.process_count.last_known().is_none();
    // Only the kernel driver reports these devices.
    if chosen.devices.iter().all(unknown)
        && let Some(failed) = failed_backend(&chosen.backends, &selection.vendors)
    {
        return Some(unless_unknown_user(failed));
    }
    let has_no_process = chosen.processes.is_empty();
    let description = description.as_ref().filter(|_| has_no_process)?;
    // The processes may use a device with an unknown process list, and a device that an unknown
    // user uses. A lost device is not usable.
    let is_lost = |device: &&Device| {
        let loss = device.lost.as_ref();
        loss.is_some_and(|loss| matches!(loss.kind, LossKind::Lost | LossKind::Gone))
    };
    let mut reachable = chosen.devices.iter().filter(|device| !is_lost(device));
    let in_doubt = reachable.find_map(|device| {
        let unlisted = unknown(device).then(|| device.process_count.reason().unwrap_or_default());
        let doubt = || doubts.iter().find(|doubt| doubt.device == device.id);
        let why = unlisted.or_else(|| Some(doubt()?.why.clone()))?;
        Some((device.index, why))
    });
    Some(match in_doubt {
        Some((index, why)) => unless_unknown_user(Error::Vendor(format!(
            "it is not known whether GPU {index} is used by {description}: {why}"
        ))),
        None => unless_unknown_user(Error::NoMatch(format!(
            "no GPU here is used by {description}"
        ))),
    })
}

fn no_such_device(
    error: DeviceSelectorError,
    backends: &[BackendReport],
    selection: &SnapshotFilter,
) -> Error {
    match &error {
        // A driver that does not work may have the device.
        DeviceSelectorError::Unknown { known, .. }
        | DeviceSelectorError::Unmatched { known, .. } => {
            match failed_backend(backends, &selection.vendors) {
                Some(failed) if known.is_empty() => failed,
                Some(failed) => Error::Vendor(format!("{error}; {failed}")),
                None => error.into(),
            }
        }
        DeviceSelectorError::Ambiguous { .. } | DeviceSelectorError::ReversedRange { .. } => {
            error.into()
        }
    }
}

/// Why a backend that could have the missing device failed, or that it has not answered yet.
fn failed_backend(backends: &[BackendReport], vendors: &[Vendor]) -> Option<Error> {
    backends
        .iter()
        .filter(|backend| {
            let mut wanted = vendors.iter();
            vendors.is_empty() || wanted.any(|vendor| reads_vendor(&backend.name, *vendor))
        })
        .find_map(|backend| match &backend.state {
            BackendState::Failed(_, why) => {
                Some(Error::Vendor(format!("{} failed: {why}", backend.name)))
            }
            BackendState::Starting => Some(Error::Vendor(format!(
                "{} has not answered yet",
                backend.name
            ))),
            BackendState::Ready | BackendState::Absent(_) | BackendState::Quiesced(_) => None,
        })
}

/// Whether there is no device yet and a backend may still find some.
pub(super) fn is_starting(snapshot: &Snapshot) -> bool {
    let mut backends = snapshot.backends.iter();
    snapshot.devices.is_empty() && backends.any(|backend| backend.state == BackendState::Starting)
}

/// The selected processes in words; `None` when all are selected.
pub(super) fn describe_processes(selection: &SnapshotFilter) -> Option<String> {
    if !selection.narrows_processes() {
        return None;
    }
    let mut text = describe_pids(&selection.pids);
    // The typed text is escaped, so that it cannot start another line.
    let typed = |text: &str| sanitize(text.as_bytes(), 80);
    match &selection.user {
        Some(user) if *user == getuid().as_raw().to_string() => text.insert_str(0, "your "),
        Some(user) => {
            text.push_str(" of ");
            text.push_str(&typed(user));
        }
        None => {}
    }
    if let Some(name) = &selection.name {
        text.push_str(" like ");
        text.push_str(&typed(name.as_str()));
    }
    Some(text)
}

/// Number of pids that a description lists.
const MAX_LISTED_PIDS: usize = 8;

fn describe_pids(pids: &[u32]) -> String {
    let mut text = match pids {
        [] => return "processes".to_owned(),
        [pid] => return format!("process {pid}"),
        [..] => "processes".to_owned(),
    };
    for (position, pid) in pids.iter().take(MAX_LISTED_PIDS).enumerate() {
        text.push_str(if position > 0 { ", " } else { " " });
        text.push_str(&pid.to_string());
    }
    if pids.len() > MAX_LISTED_PIDS {
        text.push_str(", …");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::fixtures;
    use gpukill_policy::select::compile_pattern;
    use gpukill_proto::model::FaultCode;
    use gpukill_proto::reading::Reading;

    fn counts(
        snapshot: Snapshot,
        selection: &SnapshotFilter,
    ) -> (usize, usize, Option<(u8, String)>) {
        // This host has the user zoe, and users with numbers.
        let unknown_user = |user: &str| {
            let may_be = user == "zoe" || user.parse::<u32>().is_ok();
            (!may_be).then(|| sanitize(user.as_bytes(), 80))
        };
        let SelectedSnapshot { snapshot, verdict } =
            select_part(snapshot, selection, &unknown_user);
        let verdict = verdict.map(|failure| (failure.exit_code() as u8, failure.to_string()));
        (snapshot.devices.len(), snapshot.processes.len(), verdict)
    }

    fn without_devices(state: BackendState) -> Snapshot {
        let mut snapshot = fixtures::snapshot();
        snapshot.devices.clear();
        snapshot.processes.clear();
        snapshot.backends.truncate(1);
        snapshot.backends[0].state = state;
        snapshot
    }

    fn gpu(typed: &str) -> SnapshotFilter {
        SnapshotFilter {
            gpu: Some(typed.into()),
            ..SnapshotFilter::default()
        }
    }

    fn of_vendors(vendors: &[Vendor]) -> SnapshotFilter {
        SnapshotFilter {
            vendors: vendors.to_vec(),
            ..SnapshotFilter::default()
        }
    }

    #[test]
    fn everything_is_an_answer_even_if_empty() {
        let all = SnapshotFilter::default();
        let none = without_devices(BackendState::Absent("no library".into()));
        assert_eq!(counts(none, &all), (0, 0, None));
        let (devices, _, verdict) = counts(fixtures::snapshot(), &all);
        assert_eq!((devices, verdict), (10, None));
    }

    #[test]
    fn no_match_still_has_a_document() {
        let amd = of_vendors(&[Vendor::Amd]);
        let verdict = Some((8, "no amd GPU here".to_owned()));
        assert_eq!(counts(fixtures::snapshot(), &amd), (0, 0, verdict));
        let two = of_vendors(&[Vendor::Amd, Vendor::Apple]);
        let verdict = Some((8, "no amd or apple GPU here".to_owned()));
        assert_eq!(counts(fixtures::snapshot(), &two), (0, 0, verdict));
        let one_of_them = of_vendors(&[Vendor::Amd, Vendor::Nvidia]);
        let (devices, _, verdict) = counts(fixtures::snapshot(), &one_of_them);
        assert_eq!((devices, verdict), (10, None));
        // An unknown GPU is a mistake; a pattern that no name matches is none.
        for (typed, expected) in [("99", 3), ("GPU-9999", 3), ("*A100*", 8)] {
            let mut snapshot = fixtures::snapshot();
            let begin = format!("no GPU matches \"{typed}\": this host has GPU 0, ");
            // The failed driver of the last backend may have it.
            let (_, _, verdict) = counts(snapshot.clone(), &gpu(typed));
            let (code, text) = verdict.expect("there is no such GPU");
            assert!(code == 2 && text.starts_with(&begin), "{text}");
            assert!(text.contains("; intel failed: "), "{text}");
            snapshot.backends.truncate(1);
            let (devices, processes, verdict) = counts(snapshot, &gpu(typed));
            assert_eq!((devices, processes), (0, 0), "{typed}");
            let (code, text) = verdict.expect("there is no such GPU");
            assert_eq!(code, expected, "{typed}");
            assert!(text.starts_with(&begin), "{text}");
        }
        let amd_0 = SnapshotFilter {
            vendors: vec![Vendor::Amd],
            ..gpu("0")
        };
        let verdict = Some((8, "no amd GPU matches 0".to_owned()));
        assert_eq!(counts(fixtures::snapshot(), &amd_0), (0, 0, verdict));
        let has_no_process = SnapshotFilter {
            user: Some("zoe".into()),
            name: compile_pattern("^x").ok(),
            ..SnapshotFilter::default()
        };
        let text = "no GPU here is used by processes of zoe like ^x".to_owned();
        assert_eq!(
            counts(fixtures::snapshot(), &has_no_process),
            (10, 0, Some((8, text)))
        );
    }

    #[test]
    fn pids_narrow_processes() {
        let snapshot = fixtures::snapshot();
        let process = snapshot.processes[0].clone();
        let pids = |pids: &[u32]| SnapshotFilter {
            pids: pids.to_vec(),
            ..SnapshotFilter::default()
        };
        let of_pid = snapshot.processes.iter().filter(|it| it.pid == process.pid);
        let expected = (snapshot.devices.len(), of_pid.count(), None);
        let wanted = pids(&[4_000_000, process.pid]);
        assert_eq!(counts(snapshot.clone(), &wanted), expected);
        let other_user = SnapshotFilter {
            user: Some("zoe".into()),
            ..wanted
        };
        let nobody = |description: &str| {
            let text = format!("no GPU here is used by {description}");
            (snapshot.devices.len(), 0, Some((8, text)))
        };
        let description = format!("processes 4000000, {} of zoe", process.pid);
        assert_eq!(counts(snapshot.clone(), &other_user), nobody(&description));
        assert_eq!(
            counts(snapshot.clone(), &pids(&[4_000_000])),
            nobody("process 4000000")
        );
        let many: Vec<u32> = (4_000_000..4_000_009).collect();
        let listed: Vec<String> = many.iter().take(8).map(ToString::to_string).collect();
        let description = format!("processes {}, …", listed.join(", "));
        assert_eq!(counts(snapshot.clone(), &pids(&many)), nobody(&description));
    }

    fn of(user: Option<&str>, name: Option<&str>) -> SnapshotFilter {
        SnapshotFilter {
            user: user.map(str::to_owned),
            name: name.and_then(|name| compile_pattern(name).ok()),
            ..SnapshotFilter::default()
        }
    }

    #[test]
    fn doubt_is_no_denial() {
        let mut description = fixtures::snapshot();
        description.processes.truncate(1);
        let process = &mut description.processes[0];
        process.pid = 77;
        process.name = Reading::Value("python".into());
        process.uid = Reading::Failed("permission denied".into());
        process.user = process.uid.as_unknown();
        process.owner = process.uid.as_unknown();
        let device = process.device.clone();
        description.devices.retain(|it| it.id == device);
        let mut named = description.clone();
        named.processes[0].uid = Reading::Value(1000);
        named.processes[0].user = Reading::Failed("it does not answer".into());
        let mut nameless = description.clone();
        nameless.processes[0].name = Reading::Failed("permission denied".into());
        let mut unlisted = description.clone();
        unlisted.processes.clear();
        unlisted.devices[0].process_count = Reading::Failed("not permitted".into());
        let mut broken = unlisted.clone();
        broken.backends[0].state =
            BackendState::Failed(FaultCode::VersionMismatch, "version mismatch".into());
        unlisted.backends.clear();
        let mut lost = unlisted.clone();
        lost.devices[0].lost = Some(gpukill_proto::model::Loss {
            since: lost.taken_at,
            reason: "GPU is lost".into(),
            kind: LossKind::Lost,
        });
        // No process uses the other GPU, and an unknown user uses this one.
        let mut two = description.clone();
        let mut free = two.devices[0].clone();
        free.id = DeviceId("another".into());
        free.index = 90;
        free.process_count = Reading::Value(0);
        two.devices.push(free);
        let zoe_on_the_other = SnapshotFilter {
            user: Some("zoe".into()),
            ..gpu("90")
        };
        let index = description.devices[0].index;
        let unknown = |description: &str, why: &str| {
            let text =
                format!("it is not known whether GPU {index} is used by {description}: {why}");
            Some((2, text))
        };
        let has_no_process =
            |description: &str| Some((8, format!("no GPU here is used by {description}")));
        let denied = "the user of process 77 is unknown (permission denied)";
        let silent = "the user of process 77 is unknown (it does not answer)";
        let its_name = "the name of process 77 is unknown (permission denied)";
        let failed = "nvidia failed: version mismatch".to_owned();
        let typo = "processes of zeo: no user is called zeo";
        let user = |user| of(Some(user), None);
        let zoe = "processes of zoe";
        // The name is known and does not match.
        let misnamed = has_no_process("processes of zoe like ^x");
        let cases = [
            (&description, user("zoe"), unknown(zoe, denied)),
            (&description, user("42"), unknown("processes of 42", denied)),
            (&description, user("zeo"), has_no_process(typo)),
            (&description, of(Some("zoe"), Some("^x")), misnamed),
            (&named, user("zoe"), unknown(zoe, silent)),
            (&named, user("42"), has_no_process("processes of 42")),
            (
                &nameless,
                of(None, Some("^x")),
                unknown("processes like ^x", its_name),
            ),
            (
                &unlisted,
                user("zoe"),
                unknown(zoe, "failed: not permitted"),
            ),
            (&unlisted, user("zeo"), has_no_process(typo)),
            (&lost, user("zoe"), has_no_process(zoe)),
            (&two, zoe_on_the_other, has_no_process(zoe)),
            (&broken, user("zoe"), Some((2, failed))),
            (&broken, user("zeo"), has_no_process(typo)),
        ];
        for (snapshot, selection, expected) in cases {
            let (_, left, verdict) = counts(snapshot.clone(), &selection);
            assert_eq!((left, verdict), (0, expected), "{selection:?}");
        }
    }

    #[test]
    fn typed_text_stays_in_its_line() {
        let typed = of(Some("al\nhint: ice"), None);
        let (_, _, verdict) = counts(fixtures::snapshot(), &typed);
        let (_, text) = verdict.expect("nobody is called so");
        assert_eq!(text.lines().count(), 1, "{text}");
    }

    #[test]
    fn failed_vendor_explains_an_empty_answer() {
        let failed = || {
            without_devices(BackendState::Failed(
                FaultCode::VersionMismatch,
                "version mismatch".into(),
            ))
        };
        let text = "nvidia failed: version mismatch".to_owned();
        let verdict = Some((2, text));
        for selection in [SnapshotFilter::default(), gpu("0")] {
            assert_eq!(counts(failed(), &selection), (0, 0, verdict.clone()));
        }
        let amd = of_vendors(&[Vendor::Amd]);
        let unmatched = Some((8, "no amd GPU here".to_owned()));
        assert_eq!(counts(failed(), &amd), (0, 0, unmatched));
    }
}
