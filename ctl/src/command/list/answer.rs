//! What a selection leaves of a snapshot, and whether that is an answer.

use crate::exit::Failure;
use crate::output::view::reads;
use gpukill_policy::select::{NoSuchDevice, Selection, narrow};
use gpukill_proto::snapshot::{
    BackendReport, BackendState, Device, DeviceId, LossKind, Snapshot, Vendor,
};
use gpukill_proto::text::visible;

/// What is left to show.
#[derive(Debug)]
pub(super) struct Answer {
    /// The chosen part; without devices and processes where nothing is chosen.
    pub snapshot: Snapshot,
    /// Why that is no answer, if it is none.
    pub verdict: Option<Failure>,
}

/// The part of a snapshot that is asked for. `may_be` tells whether there can be a
/// user of this name; it is asked only where the verdict hangs on it.
pub(super) fn answer(
    snapshot: Snapshot,
    selection: &Selection,
    may_be: &dyn Fn(&str) -> bool,
) -> Answer {
    let doubts = doubts(&snapshot, selection);
    let nothing = Snapshot {
        host: snapshot.host.clone(),
        backends: snapshot.backends.clone(),
        faults: snapshot.faults.clone(),
        devices: Vec::new(),
        processes: Vec::new(),
        ..snapshot
    };
    match narrow(snapshot, selection) {
        Ok(snapshot) => Answer {
            verdict: verdict(&snapshot, selection, &doubts, may_be),
            snapshot,
        },
        Err(error) => Answer {
            verdict: Some(no_such_device(error, &nothing.backends, selection)),
            snapshot: nothing,
        },
    }
}

/// A process of which too little is known to tell whether it is asked for.
struct Doubt {
    device: DeviceId,
    why: String,
}

fn doubts(snapshot: &Snapshot, selection: &Selection) -> Vec<Doubt> {
    let processes = snapshot.processes.iter();
    let doubts = processes.filter_map(|process| {
        let (what, why) = selection.doubt(process)?;
        Some(Doubt {
            device: process.device.clone(),
            why: format!("the {what} of process {} is unknown ({why})", process.pid),
        })
    });
    doubts.collect()
}

fn verdict(
    chosen: &Snapshot,
    selection: &Selection,
    doubts: &[Doubt],
    may_be: &dyn Fn(&str) -> bool,
) -> Option<Failure> {
    if chosen.devices.is_empty() {
        let failed = failed_backend(&chosen.backends, &selection.vendors);
        let vendors: Vec<&str> = selection.vendors.iter().map(|it| it.name()).collect();
        let vendors = vendors.join(" or ");
        let unmatched = || {
            let is_any = vendors.is_empty();
            (!is_any).then(|| Failure::NoMatch(format!("no {vendors} GPU here")))
        };
        return failed.or_else(unmatched);
    }
    let whose = processes_in_words(selection);
    let user = selection.user.as_deref();
    // Whoever does not exist uses nothing, whatever else is not known.
    let unless_nobody = |failure| match (&whose, user) {
        (Some(whose), Some(user)) if !may_be(user) => Failure::NoMatch(format!(
            "no GPU here is used by {whose}: no user is called {}",
            visible(user.as_bytes(), 80)
        )),
        (Some(_) | None, _) => failure,
    };
    let unknown = |device: &Device| device.process_count.last_known().is_none();
    // Named by the kernel driver alone.
    if chosen.devices.iter().all(unknown)
        && let Some(failed) = failed_backend(&chosen.backends, &selection.vendors)
    {
        return Some(unless_nobody(failed));
    }
    let nobody = chosen.processes.is_empty();
    let whose = whose.as_ref().filter(|_| nobody)?;
    // One whose list could not be had may be in use by them, and so may one that
    // somebody unknown uses; a lost one is in use by nobody's will.
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
        Some((index, why)) => unless_nobody(Failure::Vendor(format!(
            "whether GPU {index} is used by {whose} is not known: {why}"
        ))),
        None => Failure::NoMatch(format!("no GPU here is used by {whose}")),
    })
}

fn no_such_device(
    error: NoSuchDevice,
    backends: &[BackendReport],
    selection: &Selection,
) -> Failure {
    match &error {
        NoSuchDevice::Unknown { known, .. } if known.is_empty() => {
            failed_backend(backends, &selection.vendors).unwrap_or(error.into())
        }
        NoSuchDevice::Unknown { .. }
        | NoSuchDevice::Ambiguous { .. }
        | NoSuchDevice::Backwards { .. } => error.into(),
    }
}

/// The failure of a backend that could have had what is missing, or its silence.
fn failed_backend(backends: &[BackendReport], vendors: &[Vendor]) -> Option<Failure> {
    backends
        .iter()
        .filter(|backend| {
            let mut wanted = vendors.iter();
            vendors.is_empty() || wanted.any(|vendor| reads(&backend.name, *vendor))
        })
        .find_map(|backend| match &backend.state {
            BackendState::Failed(_, why) => {
                Some(Failure::Vendor(format!("{} failed: {why}", backend.name)))
            }
            BackendState::Starting => Some(Failure::Vendor(format!(
                "{} has not answered yet",
                backend.name
            ))),
            BackendState::Ready | BackendState::Absent(_) | BackendState::Quiesced(_) => None,
        })
}

/// Whether there is no device, and a backend that may still find some.
pub(super) fn is_starting(snapshot: &Snapshot) -> bool {
    let mut backends = snapshot.backends.iter();
    snapshot.devices.is_empty() && backends.any(|backend| backend.state == BackendState::Starting)
}

/// Which processes a selection takes, in words; `None` where it takes all.
pub(super) fn processes_in_words(selection: &Selection) -> Option<String> {
    // What was typed stands in a line, and cannot begin another.
    let typed = |text: &str| visible(text.as_bytes(), 80);
    let user = selection.user.as_deref().map(typed);
    let name = selection.name.as_ref().map(|name| typed(name.as_str()));
    match (user, name) {
        (None, None) => None,
        (Some(user), None) => Some(format!("processes of {user}")),
        (None, Some(name)) => Some(format!("processes like {name}")),
        (Some(user), Some(name)) => Some(format!("processes of {user} like {name}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::sample;
    use gpukill_policy::select::pattern;
    use gpukill_proto::reading::Reading;
    use gpukill_proto::snapshot::FaultCode;

    fn said(snapshot: Snapshot, selection: &Selection) -> (usize, usize, Option<(u8, String)>) {
        let is_zoe_or_number = |user: &str| user == "zoe" || user.parse::<u32>().is_ok();
        let Answer { snapshot, verdict } = answer(snapshot, selection, &is_zoe_or_number);
        let verdict = verdict.map(|failure| (failure.exit() as u8, failure.to_string()));
        (snapshot.devices.len(), snapshot.processes.len(), verdict)
    }

    fn without_devices(state: BackendState) -> Snapshot {
        let mut snapshot = sample::snapshot();
        snapshot.devices.clear();
        snapshot.processes.clear();
        snapshot.backends.truncate(1);
        snapshot.backends[0].state = state;
        snapshot
    }

    fn gpu(typed: &str) -> Selection {
        Selection {
            gpu: Some(typed.into()),
            ..Selection::default()
        }
    }

    #[test]
    fn all_is_an_answer_even_when_it_is_nothing() {
        let all = Selection::default();
        let none = without_devices(BackendState::Absent("no library".into()));
        assert_eq!(said(none, &all), (0, 0, None));
        let (devices, _, verdict) = said(sample::snapshot(), &all);
        assert_eq!((devices, verdict), (10, None));
    }

    #[test]
    fn what_matches_nothing_is_no_answer_and_still_a_document() {
        let amd = Selection {
            vendors: vec![Vendor::Amd],
            ..Selection::default()
        };
        let verdict = Some((8, "no amd GPU here".to_owned()));
        assert_eq!(said(sample::snapshot(), &amd), (0, 0, verdict));
        let two = Selection {
            vendors: vec![Vendor::Amd, Vendor::Apple],
            ..Selection::default()
        };
        let verdict = Some((8, "no amd or apple GPU here".to_owned()));
        assert_eq!(said(sample::snapshot(), &two), (0, 0, verdict));
        let one_of_them = Selection {
            vendors: vec![Vendor::Amd, Vendor::Nvidia],
            ..Selection::default()
        };
        let (devices, _, verdict) = said(sample::snapshot(), &one_of_them);
        assert_eq!((devices, verdict), (10, None));
        let (devices, processes, verdict) = said(sample::snapshot(), &gpu("99"));
        assert_eq!((devices, processes), (0, 0));
        assert_eq!(verdict.map(|(code, _)| code), Some(8));
        let nobody = Selection {
            user: Some("zoe".into()),
            name: pattern("^x").ok(),
            ..Selection::default()
        };
        let text = "no GPU here is used by processes of zoe like ^x".to_owned();
        assert_eq!(said(sample::snapshot(), &nobody), (10, 0, Some((8, text))));
    }

    fn of(user: Option<&str>, name: Option<&str>) -> Selection {
        Selection {
            user: user.map(str::to_owned),
            name: name.and_then(|name| pattern(name).ok()),
            ..Selection::default()
        }
    }

    #[test]
    fn nothing_is_denied_that_may_be_so_and_whoever_does_not_exist_uses_nothing() {
        let mut whose = sample::snapshot();
        whose.processes.truncate(1);
        let process = &mut whose.processes[0];
        process.pid = 77;
        process.name = Reading::Value("python".into());
        process.uid = Reading::Failed("permission denied".into());
        process.user = process.uid.because();
        process.owner = process.uid.because();
        let device = process.device.clone();
        whose.devices.retain(|it| it.id == device);
        let mut named = whose.clone();
        named.processes[0].uid = Reading::Value(1000);
        named.processes[0].user = Reading::Failed("it does not answer".into());
        let mut nameless = whose.clone();
        nameless.processes[0].name = Reading::Failed("permission denied".into());
        let mut unlisted = whose.clone();
        unlisted.processes.clear();
        unlisted.devices[0].process_count = Reading::Failed("not permitted".into());
        let mut broken = unlisted.clone();
        broken.backends[0].state =
            BackendState::Failed(FaultCode::VersionMismatch, "version mismatch".into());
        unlisted.backends.clear();
        let mut lost = unlisted.clone();
        lost.devices[0].lost = Some(gpukill_proto::snapshot::Loss {
            since: lost.taken_at,
            reason: "GPU is lost".into(),
            kind: LossKind::Lost,
        });
        // Nobody uses the other, and whoever is not known uses this one.
        let mut two = whose.clone();
        let mut free = two.devices[0].clone();
        free.id = DeviceId("another".into());
        free.index = 90;
        free.process_count = Reading::Value(0);
        two.devices.push(free);
        let zoe_on_the_other = Selection {
            gpu: Some("90".into()),
            ..of(Some("zoe"), None)
        };
        let index = whose.devices[0].index;
        let unknown = |whose: &str, why: &str| {
            let text = format!("whether GPU {index} is used by {whose} is not known: {why}");
            Some((2, text))
        };
        let nobody = |whose: &str| Some((8, format!("no GPU here is used by {whose}")));
        let denied = "the user of process 77 is unknown (permission denied)";
        let silent = "the user of process 77 is unknown (it does not answer)";
        let its_name = "the name of process 77 is unknown (permission denied)";
        let failed = "nvidia failed: version mismatch".to_owned();
        let typo = "processes of zeo: no user is called zeo";
        let cases = [
            (
                &whose,
                of(Some("zoe"), None),
                unknown("processes of zoe", denied),
            ),
            (
                &whose,
                of(Some("42"), None),
                unknown("processes of 42", denied),
            ),
            (&whose, of(Some("zeo"), None), nobody(typo)),
            // Its name is known, and another.
            (
                &whose,
                of(Some("zoe"), Some("^x")),
                nobody("processes of zoe like ^x"),
            ),
            (
                &named,
                of(Some("zoe"), None),
                unknown("processes of zoe", silent),
            ),
            (&named, of(Some("42"), None), nobody("processes of 42")),
            (
                &nameless,
                of(None, Some("^x")),
                unknown("processes like ^x", its_name),
            ),
            (
                &unlisted,
                of(Some("zoe"), None),
                unknown("processes of zoe", "failed: not permitted"),
            ),
            (&unlisted, of(Some("zeo"), None), nobody(typo)),
            (&lost, of(Some("zoe"), None), nobody("processes of zoe")),
            (&two, zoe_on_the_other, nobody("processes of zoe")),
            (&broken, of(Some("zoe"), None), Some((2, failed))),
            (&broken, of(Some("zeo"), None), nobody(typo)),
        ];
        for (snapshot, selection, expected) in cases {
            let (_, left, verdict) = said(snapshot.clone(), &selection);
            assert_eq!((left, verdict), (0, expected), "{selection:?}");
        }
    }

    #[test]
    fn what_was_typed_stays_in_its_line() {
        let typed = of(Some("al\nhint: ice"), None);
        let (_, _, verdict) = said(sample::snapshot(), &typed);
        let (_, text) = verdict.expect("nobody is called so");
        assert_eq!(text.lines().count(), 1, "{text}");
    }

    #[test]
    fn a_failed_vendor_is_the_reason_when_there_is_nothing_to_show() {
        let failed = || {
            without_devices(BackendState::Failed(
                FaultCode::VersionMismatch,
                "version mismatch".into(),
            ))
        };
        let text = "nvidia failed: version mismatch".to_owned();
        let verdict = Some((2, text));
        for selection in [Selection::default(), gpu("0")] {
            assert_eq!(said(failed(), &selection), (0, 0, verdict.clone()));
        }
        let amd = Selection {
            vendors: vec![Vendor::Amd],
            ..Selection::default()
        };
        let unmatched = Some((8, "no amd GPU here".to_owned()));
        assert_eq!(said(failed(), &amd), (0, 0, unmatched));
    }
}
