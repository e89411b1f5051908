//! The screens of `holders` and `explain`.

use super::hostile::make_hostile;
use super::*;
use crate::output::fixtures::{explanations, free, gone, held};
use crate::output::holders::HoldersView;
use gpukill_proto::holders::{HoldersReport, ProcessState};
use gpukill_proto::json::{ExplainDocument, HoldersDocument};
use gpukill_proto::units::Bytes;

fn holders(devices: &[HoldersReport], style: &OutputStyle) -> String {
    holders_and(devices, &[free(9), free(10), free(12)], vec![11], style)
}

/// The screen of GPUs that are in use, free, and unknown.
fn holders_and(
    devices: &[HoldersReport],
    free: &[HoldersReport],
    unknown: Vec<u32>,
    style: &OutputStyle,
) -> String {
    let shown = HoldersView {
        devices: devices.iter().collect(),
        free: free.iter().collect(),
        unknown,
        at: NOW,
    };
    text(&crate::output::holders::lines(&shown, style), style)
}

fn is_command(line: &str) -> bool {
    line.contains("kill ")
}

#[test]
fn holders_shows_causes_evidence_and_remedies() {
    check_widths("holders", &[120, 80], is_command, |style| {
        holders(&held(), style)
    });
    let shown = holders(&held()[6..7], &ascii(None));
    assert!(shown.is_ascii(), "{shown}");
    check("holders-ascii.txt", &shown);
}

#[test]
fn reason_of_several_gpus_is_stated_once() {
    let style = style(None);
    let with_reason = |index, why: &str| {
        let mut report = free(index);
        report.device.incomplete_reason = Some(why.into());
        report
    };
    let all = [
        with_reason(0, "process 1: not permitted"),
        with_reason(1, "process 1: not permitted"),
        with_reason(4, "timeout"),
    ];
    let shown = HoldersView {
        devices: all.iter().collect(),
        free: vec![],
        unknown: vec![],
        at: NOW,
    };
    let shown = text(&crate::output::holders::lines(&shown, &style), &style);
    assert_eq!(shown.matches("not permitted").count(), 1, "{shown}");
    let last = "\n\nGPUs 0-1: there may be others: process 1: not permitted\n";
    assert!(shown.ends_with(last), "{shown}");
    assert!(
        shown.contains("\n\nThere may be others: timeout\n"),
        "{shown}"
    );
}

#[test]
fn free_gpus_are_one_line() {
    let style = style(Some(80));
    let shown = |free: &[HoldersReport]| holders_and(&[], free, vec![], &style);
    let some = shown(&[free(0), free(1), free(3)]);
    assert_eq!(some, "GPUs 0-1, 3: nobody holds memory\n");
    assert_eq!(shown(&[]), "no GPU here\n");
}

#[test]
fn free_needs_known_unexplained_memory() {
    const MIB: u64 = 1 << 20;
    let used = |index, used, unattributed| {
        let mut report = free(index);
        report.device.memory_used = used;
        report.device.memory_unattributed = unattributed;
        report
    };
    let value = |mib| Reading::Value(Bytes(mib * MIB));
    let asleep = || Reading::Failed("asleep".to_owned());
    let others = [
        free(0),
        used(1, asleep(), asleep()),
        used(2, value(1434), Reading::Unsupported),
        used(3, asleep(), asleep()),
        // Used by the driver itself.
        used(4, value(300), value(0)),
        used(5, value(300), Reading::Unsupported),
        used(6, value(300), Reading::Failed("not permitted".into())),
        used(7, value(0), Reading::Failed("not permitted".into())),
        used(8, Reading::Stale(Bytes(0), 7), Reading::Stale(Bytes(0), 7)),
    ];
    let lines = holders_and(&[], &others, vec![], &style(Some(120)));
    let expected = "\
GPUs 0, 4-5, 7: nobody holds memory
GPUs 1, 3: how much is used is not known (asleep)
GPU 2: 1.4 GiB used, how much of it is explained is not known
GPU 6: 0.3 GiB used, how much of it is explained is not known (not permitted)
GPU 8: 0.0 GiB used 7 s ago
";
    assert_eq!(lines, expected);
}

#[test]
fn listing_is_unknown_without_the_drivers_list() {
    let mut report = held().remove(9);
    let why = "asleep: not woken for a reading";
    report.device.memory_used = Reading::Failed(why.into());
    report.device.memory_unattributed = Reading::Failed(why.into());
    report.device.holders[0].memory = Reading::Failed(why.into());
    report.findings.clear();
    let lines = holders_and(&[report], &[], vec![], &style(None));
    let expected = "\
GPU 13 H100 80GB HBM3: how much is used is not known (asleep: not woken for a reading)

  PID  USER  STATE     HOLDS                LISTED  WHAT IT IS
 1600  dana  sleeping  nvidia6, nvidia-uvm       ?  blender: has it open; whether it is listed is not known
";
    assert_eq!(lines, expected);
}

#[test]
fn explain_states_why_a_process_is_not_running() {
    let style = style(None);
    let row = |state| {
        let [mut notebook, _] = explanations();
        notebook.holds[0].1.state = Reading::Value(state);
        let lines = explanation_text(&notebook, &style);
        let row = lines.lines().find(|line| line.starts_with(" state "));
        row.map(str::to_owned)
    };
    let stuck = |function: Option<&str>| ProcessState::Uninterruptible(function.map(str::to_owned));
    let cases = [
        (ProcessState::Running, None),
        (ProcessState::Sleeping, None),
        (
            stuck(Some("amdgpu_vm_wait")),
            Some(" state    stuck in the kernel (amdgpu_vm_wait): no signal reaches it now"),
        ),
        (
            stuck(None),
            Some(" state    stuck in the kernel: no signal reaches it now"),
        ),
        (
            ProcessState::Stopped,
            Some(" state    stopped or traced, and not running"),
        ),
        (
            ProcessState::Zombie,
            Some(" state    has ended, and its parent 48200 (bash) has not reaped it"),
        ),
    ];
    for (state, expected) in cases {
        assert_eq!(row(state.clone()).as_deref(), expected, "{state:?}");
    }
}

#[test]
fn explain_shows_all_of_a_process() {
    let [notebook, worker] = explanations();
    check_widths("explain", &[100, 60], is_command, |style| {
        [&notebook, &worker, &gone()]
            .map(|explained| explanation_text(explained, style))
            .join("\n")
    });
}

#[test]
fn holder_texts_cannot_control_the_terminal() {
    let mut reports = held();
    for report in &mut reports {
        let device = &mut report.device;
        device.name = Reading::Value(HOSTILE.into());
        device.id.0.push_str(HOSTILE);
        device.incomplete_reason = Some(HOSTILE.into());
        for holder in &mut device.holders {
            for text in [&mut holder.user, &mut holder.name, &mut holder.command] {
                *text = Reading::Value(HOSTILE.into());
            }
            holder.parent_name = Reading::Value(HOSTILE.into());
            holder.holds = vec![HOSTILE.into()];
            holder.owner = Reading::Value(Owner {
                name: HOSTILE.into(),
                uid: None,
                kind: OwnerKind::Label,
            });
        }
        for finding in &mut report.findings {
            finding.evidence = vec![HOSTILE.into()];
        }
    }
    let [mut notebook, mut worker] = explanations();
    make_hostile(&mut notebook.uses[0].1, HOSTILE);
    notebook.uses[0].1.command = Reading::Value(HOSTILE.into());
    notebook.may_end.people = vec![HOSTILE.into()];
    worker.may_end.never_reason = Some(HOSTILE.into());
    worker.holds[0].1 = reports[6].device.holders[2].clone();
    worker.findings[0].1.evidence = vec![HOSTILE.into()];
    let style = style(None);
    let document = HoldersDocument::new(NOW, &reports);
    let mut printed = vec![
        holders(&reports, &style),
        json::pretty(&document).expect("texts"),
    ];
    for explained in [&notebook, &worker] {
        printed.push(explanation_text(explained, &style));
        let document = ExplainDocument::from(explained);
        printed.push(json::pretty(&document).expect("texts"));
    }
    assert_steer_nothing(printed);
}
