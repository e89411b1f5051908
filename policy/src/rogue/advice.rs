//! Suggests what a person can do about a finding: commands to copy, and people to ask.
//! Nothing is done here.

use super::lints::is_interpreter;
use super::suspect::file_name;
use gpukill_proto::rogue::{AllowKind, Family, Indicator, Risk, RogueFinding, Threat, Verdict};
use gpukill_proto::text::quote_for_shell;

/// One suggestion.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Advice {
    /// The kind of the suggestion.
    pub kind: AdviceKind,
    /// The suggestion as text; untrusted, because it quotes names.
    pub text: String,
    /// A command that is safe to run as it stands, whatever names it contains; `None`
    /// where there is nothing to copy.
    pub command: Option<String>,
}

/// The kind of a suggestion.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AdviceKind {
    /// End the process.
    End,
    /// Inspect the process.
    Inspect,
    /// Ask its owner.
    Ask,
    /// Set a limit that the guard enforces.
    Limit,
    /// Allow the process.
    Allow,
}

impl AdviceKind {
    /// The name in JSON.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::End => "end",
            Self::Inspect => "look",
            Self::Ask => "ask",
            Self::Limit => "limit",
            Self::Allow => "allow",
        }
    }
}

/// Returns the suggestions, the most urgent first. How to allow the process comes last
/// and is always present.
#[must_use]
pub fn advice(finding: &RogueFinding) -> Vec<Advice> {
    let pid = finding.process.pid;
    let (is_here, is_to_be_ended) = (finding.is_present, any_verdict(finding, should_end));
    let mut all = Vec::new();
    match (is_here, is_to_be_ended) {
        (true, true) => all.push(Advice {
            kind: AdviceKind::End,
            text: "end its whole job".to_owned(),
            command: Some(format!("gpukillctl kill {pid} --scope job")),
        }),
        (true, false) => all.push(Advice {
            kind: AdviceKind::Inspect,
            text: "show everything known about it".to_owned(),
            command: Some(format!("gpukillctl explain {pid}")),
        }),
        (false, _) => {}
    }
    // The owner of a process that is to be ended is not asked first.
    if !(is_here && is_to_be_ended) {
        all.extend(ask_owner(finding));
    }
    if is_here && any_verdict(finding, is_held_for_nothing) {
        all.push(suggest_limit(finding));
    }
    all.push(suggest_allow(finding));
    all
}

fn any_verdict(finding: &RogueFinding, is: fn(&Verdict) -> bool) -> bool {
    finding.verdicts.iter().any(is)
}

/// Whether the process almost certainly does not belong here.
fn should_end(verdict: &Verdict) -> bool {
    let is_such = match verdict.threat {
        Threat::CryptoMiner | Threat::SuspiciousProcess => true,
        Threat::ResourceAbuser | Threat::DataExfiltrator => false,
    };
    is_such && verdict.risk >= Risk::High && has_near_proof(verdict)
}

fn has_near_proof(verdict: &Verdict) -> bool {
    let mut indicators = verdict.indicators.iter();
    indicators.any(|indicator| indicator.family == Family::A)
}

fn is_held_for_nothing(verdict: &Verdict) -> bool {
    let mut indicators = verdict.indicators.iter();
    verdict.threat == Threat::ResourceAbuser
        && indicators.any(|indicator| indicator.kind == "held_for_nothing")
}

fn ask_owner(finding: &RogueFinding) -> Option<Advice> {
    let owner = finding.owner.as_ref()?;
    Some(Advice {
        kind: AdviceKind::Ask,
        text: format!("ask {} about its purpose", owner.name),
        command: None,
    })
}

/// Only the admin knows the limit.
fn suggest_limit(finding: &RogueFinding) -> Advice {
    let user = or_placeholder(owner_user(finding), "USER");
    Advice {
        kind: AdviceKind::Limit,
        text: format!("gpukillctl guard user set {user} --idle-limit MINUTES"),
        command: None,
    }
}

/// Suggests how to allow the process for its user: by its executable where an indicator
/// is about the executable, or where near-proof indicators count that a name does not
/// excuse; else by its name. For an interpreter the text only warns, because the entry
/// would hide everything that the interpreter runs.
fn suggest_allow(finding: &RogueFinding) -> Advice {
    let path = executable_path(finding);
    let is_by_location =
        all_indicators(finding).any(|indicator| indicator.kind == "executable_location");
    let is_by_location = is_by_location && path.is_some();
    let by = match is_by_location || any_verdict(finding, has_near_proof) {
        true => AllowKind::Executable,
        false => AllowKind::Process,
    };
    let what = match by {
        AllowKind::Executable => path,
        AllowKind::Process => finding.name.as_deref(),
        AllowKind::User | AllowKind::Image => None,
    };
    let what = what.filter(|what| is_unmodified(what));
    let user = owner_user(finding);
    let command = |word: &str| format!("gpukillctl rogue allow {} {word}", by.name());
    let of_user = what.zip(user);
    let word = of_user.and_then(|(what, user)| quote_for_shell(&format!("{what}@{user}")));
    let missing = match by {
        AllowKind::Executable | AllowKind::Image => "PATH",
        AllowKind::Process | AllowKind::User => "NAME",
    };
    let text = command(&word.clone().unwrap_or_else(|| {
        let (what, user) = (or_placeholder(what, missing), or_placeholder(user, "USER"));
        format!("{what}@{user}")
    }));
    match what.filter(|_| by == AllowKind::Executable) {
        Some(path) if is_interpreter(file_name(path)) => {
            let user = or_placeholder(user, "USER");
            Advice {
                kind: AdviceKind::Allow,
                text: format!("{text} hides everything that {user} runs with it"),
                // A command that hides more than the finding is not offered for
                // copying.
                command: None,
            }
        }
        Some(_) | None => Advice {
            kind: AdviceKind::Allow,
            text,
            command: word.as_deref().map(command),
        },
    }
}

/// A word of a command, or a placeholder where it is unknown.
fn or_placeholder(word: Option<&str>, missing: &str) -> String {
    let word = word.and_then(quote_for_shell);
    word.unwrap_or_else(|| missing.to_owned())
}

fn all_indicators(finding: &RogueFinding) -> impl Iterator<Item = &Indicator> {
    finding
        .verdicts
        .iter()
        .flat_map(|verdict| &verdict.indicators)
}

/// The path of the executable. Anyone can choose the name of a program without a file.
fn executable_path(finding: &RogueFinding) -> Option<&str> {
    let path = finding.executable.as_deref();
    path.filter(|path| path.starts_with('/') && !path.starts_with("/memfd:"))
}

/// Whether a text is complete and unmodified: not empty, not truncated, and without
/// escapes.
fn is_unmodified(text: &str) -> bool {
    !text.is_empty() && !text.contains('\\') && !text.ends_with('…')
}

/// The user it runs as, where that is its owner: the rules know users by name. A name
/// with one of these characters would be split elsewhere.
fn owner_user(finding: &RogueFinding) -> Option<&str> {
    let owner = finding.owner.as_ref()?;
    let is_same = finding.uid.is_some() && owner.uid == finding.uid;
    let is_name = !owner.name.is_empty() && !owner.name.contains(['@', ':', '/', ' ', '\\']);
    (is_same && is_name).then_some(owner.name.as_str())
}

#[cfg(test)]
mod tests;
