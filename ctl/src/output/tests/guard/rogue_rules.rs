//! The screens of the rules on rogues.

use super::*;
use crate::connect::Doing;
use crate::output::rules::{checked, edited, mistakes, of_rogues};
use gpukill_policy::guard::diff::unified;
use gpukill_policy::rogue::edit::edit;
use gpukill_policy::rogue::odd::warnings;
use gpukill_policy::rogue::read::read;
use gpukill_proto::guard::{EditReport, RulesRevision};
use gpukill_proto::rogue::{AllowBy, RogueEdit};

/// Rules as somebody takes them over who had gpu-kill, with their first own word.
const RULES: &str = "# The lab's.\n[detection]\nmin_confidence_threshold = 0.7\n\n[patterns]\n\
    crypto_miner_patterns = [\"cuda\", \"ethash\"]\nuser_whitelist = [\"root\"]\n\
    process_whitelist = [\"python\", \"hashcat@bob\"]\n\n[scoring.threat_weights]\n\
    resource_abuser = 0.2\n";

#[test]
fn a_file_on_rogues_is_checked() {
    let rules = read(RULES).unwrap();
    check_all("rogue-checked", |look| {
        checked("rogue.toml", &of_rogues(&rules), &warnings(&rules), look)
    });
    let text =
        "[detection]\nmax_utilization_pct = 101\nmin_confidence = 0.5\n[alerts]\nemail = 'x'\n";
    let wrong = read(text).unwrap_err();
    check_all("rogue-mistakes", |look| {
        mistakes("rogue.toml", &wrong, look)
    });
}

#[test]
fn an_edit_on_rogues_shows_what_it_changes() {
    let asked = RogueEdit::Allow(AllowBy::Executable, "/opt/hashcat/hashcat".into());
    let after = edit(RULES, &asked, NOW).unwrap();
    let file = "/etc/gpukill/rules/rogue.toml";
    let report = EditReport {
        before: Some(RulesRevision("3f1e4a6c".into())),
        after: RulesRevision("78ad79b2".into()),
        difference: unified((file, RULES), (file, &after)),
        warnings: Vec::new(),
    };
    check_all("rogue-edit", |look| edited(&report, Doing::Doing, look));
}
