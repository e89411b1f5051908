//! What a person can do about a finding: commands to copy, and whom to ask. Nothing is
//! done by it; whoever reads it decides.

use super::odd::is_interpreter;
use super::suspect::base;
use gpukill_proto::rogue::{AllowBy, Family, Finding, Risk, Sign, Threat, Verdict};
use gpukill_proto::text::shell_word;

/// One thing to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Advice {
    /// Of which kind it is.
    pub what: What,
    /// It in words; untrusted, for it quotes names.
    pub text: String,
    /// A command that does it as it stands, whatever the names in it; `None` where
    /// nothing can be copied.
    pub command: Option<String>,
}

/// What can be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum What {
    /// Ending it.
    End,
    /// Looking at it.
    Look,
    /// Asking whose it is.
    Ask,
    /// Setting a limit, so that the guard sees to it.
    Limit,
    /// Saying that it is honest.
    Allow,
}

impl What {
    /// As it is written in JSON.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::End => "end",
            Self::Look => "look",
            Self::Ask => "ask",
            Self::Limit => "limit",
            Self::Allow => "allow",
        }
    }
}

/// What to do, the most urgent first; how to say that it is honest comes last, and is
/// always there.
#[must_use]
pub fn advice(finding: &Finding) -> Vec<Advice> {
    let pid = finding.process.pid;
    let (is_here, is_to_be_ended) = (finding.is_present, verdicts(finding, is_to_be_ended));
    let mut all = Vec::new();
    match (is_here, is_to_be_ended) {
        (true, true) => all.push(Advice {
            what: What::End,
            text: "end it, with its whole job".to_owned(),
            command: Some(format!("gpukillctl kill {pid} --scope job")),
        }),
        (true, false) => all.push(Advice {
            what: What::Look,
            text: "see all that is known of it".to_owned(),
            command: Some(format!("gpukillctl explain {pid}")),
        }),
        (false, _) => {}
    }
    // Whoever is about to be ended is not warned.
    if !(is_here && is_to_be_ended) {
        all.extend(ask(finding));
    }
    if is_here && verdicts(finding, holds_for_nothing) {
        all.push(limit(finding));
    }
    all.push(allow(finding));
    all
}

fn verdicts(finding: &Finding, is: fn(&Verdict) -> bool) -> bool {
    finding.verdicts.iter().any(is)
}

/// Whether it is as good as proved that it should not be here.
fn is_to_be_ended(verdict: &Verdict) -> bool {
    let is_such = match verdict.threat {
        Threat::CryptoMiner | Threat::SuspiciousProcess => true,
        Threat::ResourceAbuser | Threat::DataExfiltrator => false,
    };
    is_such && verdict.risk >= Risk::High && has_near_proof(verdict)
}

fn has_near_proof(verdict: &Verdict) -> bool {
    let mut signs = verdict.signs.iter();
    signs.any(|sign| sign.family == Family::A)
}

fn holds_for_nothing(verdict: &Verdict) -> bool {
    let mut signs = verdict.signs.iter();
    verdict.threat == Threat::ResourceAbuser && signs.any(|sign| sign.kind == "held_for_nothing")
}

fn ask(finding: &Finding) -> Option<Advice> {
    let owner = finding.owner.as_ref()?;
    Some(Advice {
        what: What::Ask,
        text: format!("ask {} what it is for", owner.name),
        command: None,
    })
}

/// How long is too long only the admin knows.
fn limit(finding: &Finding) -> Advice {
    let user = or_to_fill_in(user(finding), "USER");
    Advice {
        what: What::Limit,
        text: format!("gpukillctl guard user set {user} --idle-limit MINUTES"),
        command: None,
    }
}

/// How to say that it is honest: by its executable where a sign tells that, or where signs
/// count that a name does not excuse; else by its name. For its user alone. An interpreter
/// says nothing of what it runs: that it would hide all of that is said instead.
fn allow(finding: &Finding) -> Advice {
    let path = path(finding);
    let is_by_place = signs(finding).any(|sign| sign.kind == "executable_place");
    let is_by_place = is_by_place && path.is_some();
    let by = match is_by_place || verdicts(finding, has_near_proof) {
        true => AllowBy::Executable,
        false => AllowBy::Process,
    };
    let what = match by {
        AllowBy::Executable => path,
        AllowBy::Process => finding.name.as_deref(),
        AllowBy::User | AllowBy::Image => None,
    };
    let what = what.filter(|what| is_whole(what));
    let user = user(finding);
    let command = |word: &str| format!("gpukillctl rogue allow {} {word}", by.name());
    let of_user = what.zip(user);
    let word = of_user.and_then(|(what, user)| shell_word(&format!("{what}@{user}")));
    let missing = match by {
        AllowBy::Executable | AllowBy::Image => "PATH",
        AllowBy::Process | AllowBy::User => "NAME",
    };
    let text = command(&word.clone().unwrap_or_else(|| {
        let (what, user) = (or_to_fill_in(what, missing), or_to_fill_in(user, "USER"));
        format!("{what}@{user}")
    }));
    match what.filter(|_| by == AllowBy::Executable) {
        Some(path) if is_interpreter(base(path)) => {
            let user = or_to_fill_in(user, "USER");
            Advice {
                what: What::Allow,
                text: format!("{text} hides all that {user} runs with it"),
                // What hides more than was found is not there to be copied.
                command: None,
            }
        }
        Some(_) | None => Advice {
            what: What::Allow,
            text,
            command: word.as_deref().map(command),
        },
    }
}

/// A word of a command, or what has to be filled in where it is not known.
fn or_to_fill_in(word: Option<&str>, missing: &str) -> String {
    let word = word.and_then(shell_word);
    word.unwrap_or_else(|| missing.to_owned())
}

fn signs(finding: &Finding) -> impl Iterator<Item = &Sign> {
    finding.verdicts.iter().flat_map(|verdict| &verdict.signs)
}

/// The path of its executable. What has no file of its own may be called so by anybody.
fn path(finding: &Finding) -> Option<&str> {
    let path = finding.executable.as_deref();
    path.filter(|path| path.starts_with('/') && !path.starts_with("/memfd:"))
}

/// Whether a text is what was read: neither cut nor with something made visible in it, and
/// not nothing.
fn is_whole(text: &str) -> bool {
    !text.is_empty() && !text.contains('\\') && !text.ends_with('…')
}

/// As whom it runs, where that is who owns it: the rules know users by name. A name with
/// one of these in it would be taken apart elsewhere.
fn user(finding: &Finding) -> Option<&str> {
    let owner = finding.owner.as_ref()?;
    let is_same = finding.uid.is_some() && owner.uid == finding.uid;
    let is_name = !owner.name.is_empty() && !owner.name.contains(['@', ':', '/', ' ', '\\']);
    (is_same && is_name).then_some(owner.name.as_str())
}

#[cfg(test)]
mod tests;
