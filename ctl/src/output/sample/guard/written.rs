//! What is written of rules: an edit, mistakes, and what is odd.

use gpukill_proto::guard::edit::{Mistake, Warning};
use gpukill_proto::guard::{EditReport, RulesRevision};
use gpukill_proto::settings::place::Place;

/// An edit, and what of it can never hold.
pub(crate) fn edited() -> EditReport {
    EditReport {
        before: Some(RulesRevision("59cf2a0d5c1a36ab".into())),
        after: RulesRevision("0f8a11d27b3ce940".into()),
        difference: "--- /etc/gpukill/rules/guard.toml\n+++ /etc/gpukill/rules/guard.toml\n@@ -1,4 +1,5 @@\n # Ours, agreed in the group meeting of March: whoever needs more asks beforehand, and gets it.\n [user_policies.alice]\n-memory_limit_gb = 8\n+memory_limit_gb = 16\n+priority = 7\n"
            .into(),
        warnings: Vec::new(),
    }
}

/// What is wrong in a file.
pub(crate) fn mistakes() -> Vec<Mistake> {
    let mistake = |line, path: &str, what: &str, suggestion: Option<&str>| Mistake {
        place: Some(Place { line, column: 1 }),
        path: path.into(),
        what: what.into(),
        suggestion: suggestion.map(str::to_owned),
    };
    vec![
        mistake(
            2,
            "global.enabeld",
            "unknown key",
            Some("did you mean enabled?"),
        ),
        mistake(
            14,
            "user_policies.alice.memory_limit_gb",
            "-1 is less than nothing: a limit is 0 or more, in GiB or with a unit",
            None,
        ),
    ]
}

/// What is odd in a file.
pub(crate) fn warnings() -> Vec<Warning> {
    vec![Warning {
        place: Some(Place { line: 9, column: 1 }),
        path: "gpu_policies.0.allowed_users".into(),
        what: "alice is blocked there too: she may not use it".into(),
    }]
}
