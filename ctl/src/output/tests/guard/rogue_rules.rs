//! The screens of the rogue rules.

use super::*;
use crate::connect::Mode;
use crate::output::guard::rules::{
    Difference, EditView, checked_lines, edit_lines, mistake_lines, rogue_statement, rogue_summary,
};
use gpukill_policy::guard::rules::diff::unified_diff;
use gpukill_policy::rogue::edit::edit;
use gpukill_policy::rogue::lints::lint;
use gpukill_policy::rogue::read::read;
use gpukill_proto::guard::{EditReport, RulesRevision};
use gpukill_proto::rogue::{AllowKind, RogueEdit};

/// Rules taken over from gpu-kill, with a first key of the admin's own.
const RULES: &str = "# The lab's.\n[detection]\nmin_confidence_threshold = 0.7\n\n[patterns]\n\
    crypto_miner_patterns = [\"cuda\", \"ethash\"]\nuser_whitelist = [\"root\"]\n\
    process_whitelist = [\"python\", \"hashcat@bob\"]\n\n[scoring.threat_weights]\n\
    resource_abuser = 0.2\n";

#[test]
fn rogue_file_is_checked() {
    let rules = read(RULES).unwrap();
    check_all("rogue-checked", |style| {
        checked_lines("rogue.toml", &rogue_summary(&rules), &lint(&rules), style)
    });
    let text =
        "[detection]\nmax_utilization_pct = 101\nmin_confidence = 0.5\n[alerts]\nemail = 'x'\n";
    let wrong = read(text).unwrap_err();
    check_all("rogue-mistakes", |style| {
        mistake_lines("rogue.toml", &wrong, style)
    });
}

#[test]
fn rogue_edit_shows_the_changes() {
    let asked = RogueEdit::Allow(AllowKind::Executable, "/opt/hashcat/hashcat".into());
    let after = edit(RULES, &asked, NOW).unwrap();
    let file = "/etc/gpukill/rules/rogue.toml";
    let report = EditReport {
        before: Some(RulesRevision("3f1e4a6c".into())),
        after: RulesRevision("78ad79b2".into()),
        difference: unified_diff((file, RULES), (file, &after)),
        warnings: Vec::new(),
        affected: None,
    };
    check_all("rogue-edit", |style| {
        let view = EditView {
            doing: Mode::Apply,
            difference: Difference::Shown,
            statement: &rogue_statement(&asked),
        };
        edit_lines(&report, view, style)
    });
}
