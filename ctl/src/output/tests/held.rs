//! The screens of `holders` and `explain`.

use super::*;
use crate::output::holders::Shown;
use crate::output::sample::{explanations, free, gone, held};
use gpukill_proto::document::{ExplainDocument, HoldersDocument};
use gpukill_proto::holders::HoldersReport;

fn holders(devices: &[HoldersReport], look: &Look) -> String {
    let others = [free(9), free(10), free(12)];
    let shown = Shown {
        devices: devices.iter().collect(),
        free: others.iter().collect(),
        unknown: vec![11],
        at: NOW,
    };
    text(&holders::lines(&shown, look), look)
}

/// Commands are not wrapped, so that they can be copied.
fn fits(text: &str, width: usize) -> bool {
    let mut lines = text.lines().filter(|line| !line.contains("kill "));
    lines.all(|line| line::width(line) <= width)
}

#[test]
fn holders_shows_each_cause_with_its_evidence_and_what_frees_it() {
    for width in [120, 80] {
        let look = look(Some(width));
        let shown = holders(&held(), &look);
        assert!(fits(&shown, width), "{width}");
        check(&format!("holders-{width}.txt"), &shown);
    }
    let ascii = Look {
        symbols: Symbols::Ascii,
        ..look(None)
    };
    let shown = holders(&held()[6..7], &ascii);
    assert!(shown.is_ascii(), "{shown}");
    check("holders-ascii.txt", &shown);
}

#[test]
fn where_nobody_holds_anything_one_line_says_so() {
    let look = look(Some(80));
    let others = [free(0), free(1), free(3)];
    let shown = Shown {
        devices: vec![],
        free: others.iter().collect(),
        unknown: vec![],
        at: NOW,
    };
    let lines = text(&holders::lines(&shown, &look), &look);
    assert_eq!(lines, "GPUs 0-1, 3: nobody holds memory\n");
    let none = Shown {
        free: vec![],
        ..shown
    };
    assert_eq!(text(&holders::lines(&none, &look), &look), "no GPU here\n");
}

#[test]
fn explain_tells_all_of_a_process() {
    for width in [100, 60] {
        let look = look(Some(width));
        let [notebook, worker] = explanations();
        let shown = [notebook, worker, gone()]
            .map(|explained| text(&explain::lines(&explained, &look), &look))
            .join("\n");
        assert!(fits(&shown, width), "{width}");
        check(&format!("explain-{width}.txt"), &shown);
    }
}

#[test]
fn nothing_that_a_holder_is_called_can_steer_the_terminal() {
    const HOSTILE: &str = "a\x1b[2J\x1b]0;x\x07\u{9b}31m\r\n\u{202e}\u{200b}\u{7f}b";
    let mut reports = held();
    for report in &mut reports {
        let device = &mut report.device;
        device.name = Reading::Value(HOSTILE.into());
        device.id.0.push_str(HOSTILE);
        device.unseen = Some(HOSTILE.into());
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
    worker.may_end.never = Some(HOSTILE.into());
    worker.holds[0].1 = reports[6].device.holders[2].clone();
    worker.findings[0].1.evidence = vec![HOSTILE.into()];
    let look = look(None);
    let document = HoldersDocument::new(NOW, &reports);
    let mut printed = vec![
        holders(&reports, &look),
        json::pretty(&document).expect("texts"),
    ];
    for explained in [&notebook, &worker] {
        printed.push(text(&explain::lines(explained, &look), &look));
        let document = ExplainDocument::from(explained);
        printed.push(json::pretty(&document).expect("texts"));
    }
    for text in printed {
        let steering = text
            .chars()
            .find(|c| *c != '\n' && (c.is_control() || matches!(c, '\u{202e}' | '\u{200b}')));
        assert_eq!(steering, None, "{text}");
    }
}
