//! Unknown lists of processes are shown as unknown, not as empty.

use super::*;
use gpukill_proto::model::{EventKind, Fault, FaultCode, GpuEvent, Vendor};
use gpukill_proto::units::Bytes;

fn details(snapshot: &Snapshot, width: usize) -> String {
    listed(snapshot, &view(Rows::Processes), &style(Some(width)))
}

#[test]
fn suspended_gpu_has_a_sentence() {
    let mut snapshot = snapshot();
    snapshot.devices.truncate(1);
    snapshot.devices[0].vitals.suspended = Reading::Value(true);
    let shown = listed(&snapshot, &view(Rows::Gpus), &style(Some(100)));
    let row = " 0  H100 80GB HBM3  asleep: not woken for a reading";
    assert!(
        shown.lines().any(|line| line.trim() == row.trim()),
        "{shown}"
    );
}

#[test]
fn recent_xid_marks_its_gpu() {
    let mut snapshot = snapshot();
    snapshot.faults.clear();
    snapshot.devices.truncate(1);
    snapshot.devices[0].last_xid = Some(GpuEvent {
        device: Some(snapshot.devices[0].id.clone()),
        instance: None,
        at: NOW.plus_seconds(-60),
        kind: EventKind::Xid(48),
    });
    let shown = |snapshot: &Snapshot| listed(snapshot, &view(Rows::Gpus), &style(Some(100)));
    let message = " !0  XID 48 at 14:01:31: a memory error that could not be corrected\n";
    let marked = shown(&snapshot);
    assert!(marked.contains(message), "{marked}");
    assert_eq!(marked.matches("\n  !0  ").count(), 2, "{marked}");
    // The error of a program is no news about the GPU.
    snapshot.devices[0].last_xid.as_mut().unwrap().kind = EventKind::Xid(31);
    assert!(!shown(&snapshot).contains('!'));
}

/// Seven GPUs of which one is in use; each of the others has another reason.
fn of_every_kind() -> Snapshot {
    let mut it = snapshot();
    it.faults.clear();
    it.processes.retain(|process| process.pid == 48213);
    it.devices.truncate(7);
    for device in &mut it.devices {
        device.memory_unattributed = Reading::Value(Bytes(0));
        device.process_count = Reading::Value(0);
    }
    it.devices[0].process_count =
        Reading::Failed("not all processes have been scanned yet".to_owned());
    it.devices[2].process_count = Reading::Failed("the driver does not answer".to_owned());
    it.devices[3].vitals.suspended = Reading::Value(true);
    it.devices[3].process_count = Reading::Failed("asleep: not woken for a reading".to_owned());
    it.devices[4].process_count = Reading::Value(0).aged(12);
    it.devices[5].process_count = Reading::Unsupported;
    it.devices[6].process_count = Reading::Withheld;
    it
}

#[test]
fn details_state_why_processes_are_unknown() {
    check_widths("details-unlisted", &[100, 60], WRAPPED, |style| {
        listed(&of_every_kind(), &view(Rows::Processes), style)
    });
}

#[test]
fn no_process_needs_known_lists() {
    let nobody = |shown: &str| shown.contains("no process uses a GPU");
    let mut idle = of_every_kind();
    idle.processes.clear();
    for device in &mut idle.devices {
        device.process_count = Reading::Value(0);
    }
    assert!(nobody(&details(&idle, 100)));
    let of_others = of_every_kind().devices;
    for unknown in [0, 2, 3, 4, 5, 6] {
        let mut doubtful = idle.clone();
        doubtful.devices[unknown] = of_others[unknown].clone();
        let shown = details(&doubtful, 100);
        assert!(!nobody(&shown), "{shown}");
        assert!(shown.contains("users unknown: "), "{shown}");
        // Also when only one user's processes are selected.
        let only = View {
            only: Some("processes of zoe".to_owned()),
            ..view(Rows::Processes)
        };
        let shown = listed(&doubtful, &only, &style(Some(100)));
        assert!(!nobody(&shown), "{shown}");
    }
}

#[test]
fn only_relevant_faults_are_counted() {
    let mut it = snapshot();
    let fault = |part: &str| Fault {
        part: part.to_owned(),
        code: FaultCode::DriverError,
        what: "broken".to_owned(),
        since: NOW,
    };
    let parts = ["nvidia", "amd", "GPU 0", "GPU 1", "GPU 10", "processes"];
    it.faults = parts.into_iter().map(fault).collect();
    let mut amd = it.backends[0].clone();
    amd.name = "amd".to_owned();
    it.backends = vec![it.backends[0].clone(), amd];
    let counted = |it: &Snapshot, only_some_gpus| {
        let view = View {
            only_some_gpus,
            ..view(Rows::Gpus)
        };
        let shown = listed(it, &view, &style(Some(100)));
        let last = shown.lines().last().map(str::to_owned);
        last.filter(|last| last.contains("fault"))
    };
    let hint = |faults: &str| Some(format!("{faults}: gpukillctl status"));
    assert_eq!(counted(&it, false), hint("6 faults"));
    it.devices.truncate(1);
    it.processes.clear();
    // Faults of nvidia, of GPU 0 and of the processes.
    assert_eq!(counted(&it, true), hint("3 faults"));
    it.devices[0].vendor = Vendor::Amd;
    it.devices[0].index = 4;
    it.faults.retain(|fault| fault.part != "processes");
    assert_eq!(counted(&it, true), hint("1 fault"));
    it.faults.retain(|fault| fault.part != "amd");
    assert_eq!(counted(&it, true), None);
}
