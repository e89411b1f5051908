//! The screens of `holders` and `explain`.

use super::hostile::make_hostile;
use super::*;
use crate::output::fixtures::{explanations, free, gone, held};
use crate::output::holders::HoldersView;
use gpukill_proto::holders::{HoldersReport, ProcessState};
use gpukill_proto::json::{ExplainDocument, HoldersDocument};
use gpukill_proto::units::Bytes;

fn holders(devices: &[HoldersReport], style: &OutputStyle) -> String {
    let others = [free(9), free(10), free(12)];
    let shown = HoldersView {
        devices: devices.iter().collect(),
        free: others.iter().collect(),
        unknown: vec![11],
        at: NOW,
    };
    text(&crate::output::holders::lines(&shown, style), style)
}

/// Commands are not wrapped, so that they can be copied.
fn fits(text: &str, width: usize) -> bool {
    let mut lines = text.lines().filter(|line| !line.contains("kill "));
    lines.all(|line| text::width(line) <= width)
}

#[test]
fn holders_shows_causes_evidence_and_remedies() {
    for width in [120, 80] {
        let style = style(Some(width));
        let shown = holders(&held(), &style);
        assert!(fits(&shown, width), "{width}");
        check(&format!("holders-{width}.txt"), &shown);
    }
    let ascii = OutputStyle {
        symbols: Symbols::Ascii,
        ..style(None)
    };
    let shown = holders(&held()[6..7], &ascii);
    assert!(shown.is_ascii(), "{shown}");
    check("holders-ascii.txt", &shown);
}

#[test]
fn free_gpus_are_one_line() {
    let style = style(Some(80));
    let others = [free(0), free(1), free(3)];
    let shown = HoldersView {
        devices: vec![],
        free: others.iter().collect(),
        unknown: vec![],
        at: NOW,
    };
    let lines = text(&crate::output::holders::lines(&shown, &style), &style);
    assert_eq!(lines, "GPUs 0-1, 3: nobody holds memory\n");
    let none = HoldersView {
        free: vec![],
        ..shown
    };
    assert_eq!(
        text(&crate::output::holders::lines(&none, &style), &style),
        "no GPU here\n"
    );
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
    let shown = HoldersView {
        devices: vec![],
        free: others.iter().collect(),
        unknown: vec![],
        at: NOW,
    };
    let style = style(Some(120));
    let lines = text(&crate::output::holders::lines(&shown, &style), &style);
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
    let shown = HoldersView {
        devices: vec![&report],
        free: vec![],
        unknown: vec![],
        at: NOW,
    };
    let style = style(None);
    let lines = text(&crate::output::holders::lines(&shown, &style), &style);
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
        let lines = text(
            &explain::lines(&notebook, ExplainDetail::Usual, &style),
            &style,
        );
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
    for width in [100, 60] {
        let style = style(Some(width));
        let [notebook, worker] = explanations();
        let shown = [notebook, worker, gone()]
            .map(|explained| {
                text(
                    &explain::lines(&explained, ExplainDetail::Usual, &style),
                    &style,
                )
            })
            .join("\n");
        assert!(fits(&shown, width), "{width}");
        check(&format!("explain-{width}.txt"), &shown);
    }
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
        printed.push(text(
            &explain::lines(explained, ExplainDetail::Usual, &style),
            &style,
        ));
        let document = ExplainDocument::from(explained);
        printed.push(json::pretty(&document).expect("texts"));
    }
    for screen in printed {
        assert_steers_nothing(&screen);
    }
}
