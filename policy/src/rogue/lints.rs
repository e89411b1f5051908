//! Lints for valid but probably unintended rules: allow entries that hide too much or
//! match nothing, miner patterns that honest work matches too, and thresholds that no
//! threat can reach.

use super::rules::{AllowEntry, AllowMatch, RogueRules};
use super::suspect::file_name;
use crate::holders::program_names;
use gpukill_proto::collect::IntoSet as _;
use gpukill_proto::guard::edit::Lint;
use gpukill_proto::rogue::{Risk, Share, Threat};
use gpukill_proto::settings::closest_name;
use std::collections::BTreeSet;

/// Programs that run code of others: their names match any program.
#[rustfmt::skip]
const INTERPRETERS: [&str; 16] = [
    "R", "bash", "dash", "java", "julia", "jupyter", "jupyter-lab", "lua", "node", "perl", "php",
    "python", "ruby", "sh", "sleep", "zsh",
];

/// Words on the command lines of honest GPU work, besides the names of interpreters.
/// The first four are among the patterns of gpu-kill.
#[rustfmt::skip]
const COMMON_WORDS: [&str; 16] = [
    "cuda", "opencl", "hash", "miner", "docker", "gpu", "pytorch", "ray", "rocm", "ssh",
    "tensorflow", "torch", "torchrun", "train", "vllm", "worker",
];

/// Ports of other services, by the IANA registry, and ports of Jupyter, `TensorBoard`
/// and PyTorch's rendezvous.
const SERVICE_PORTS: [u16; 9] = [22, 53, 80, 443, 6_006, 8_080, 8_443, 8_888, 29_500];

/// Returns the lints, in the order of the keys.
#[must_use]
pub fn lint(rules: &RogueRules) -> Vec<Lint> {
    let patterns = &rules.patterns;
    let arguments = patterns.arguments.iter().filter_map(|word| {
        let what = common_word_reason(word)?;
        Some(warning("patterns.crypto_miner_patterns", what))
    });
    let miners = patterns.miners.iter().filter_map(|name| {
        let what = common_word_reason(name)?;
        Some(warning("patterns.suspicious_process_names", what))
    });
    let ports = patterns
        .ports
        .iter()
        .filter(|it| SERVICE_PORTS.contains(it));
    let ports = ports.map(|port| {
        let what =
            format!("{port} is a port of other services, and honest work connects to it too");
        warning("patterns.pool_ports", what)
    });
    lint_certainty(rules)
        .into_iter()
        .chain(arguments)
        .chain(miners)
        .chain(ports)
        .chain(rules.allowed.iter().filter_map(lint_allow_entry))
        .chain(lint_unreachable_risks(rules))
        .collect()
}

fn warning(path: &str, what: String) -> Lint {
    Lint {
        position: None,
        path: path.to_owned(),
        what,
    }
}

/// Indicators never reach certainty, except for a known program.
fn lint_certainty(rules: &RogueRules) -> Option<Lint> {
    let asked = rules.detection.min_confidence;
    (asked == Share::ONE).then(|| {
        let what =
            "at 1 only fully certain verdicts are reported, which are very rare: 0.5 is usual";
        warning("detection.min_confidence_threshold", what.to_owned())
    })
}

/// Why this word does not indicate a miner.
fn common_word_reason(word: &str) -> Option<String> {
    let bare = word.trim_start_matches('-');
    if is_interpreter(bare) || COMMON_WORDS.contains(&bare.to_ascii_lowercase().as_str()) {
        return Some(format!("{word:?} also appears in honest work"));
    }
    // Every program has such options as `-o` and `-u`.
    (bare.chars().count() <= 2)
        .then(|| format!("{word:?} is short and also appears in honest work"))
}

/// Whether this is the name of an interpreter: `python`, `python3`, `python3.12`.
pub(super) fn is_interpreter(name: &str) -> bool {
    let bare = name.trim_end_matches(|it: char| it.is_ascii_digit() || it == '.');
    INTERPRETERS.contains(&bare)
}

/// The lint for an entry that matches nothing, or more than one program.
fn lint_allow_entry(allowed: &AllowEntry) -> Option<Lint> {
    let what = unmatchable_reason(allowed).or_else(|| too_broad_reason(allowed))?;
    Some(entry_warning(allowed, what))
}

/// Why an entry matches nothing: only a whole text matches.
fn unmatchable_reason(allowed: &AllowEntry) -> Option<String> {
    let entry = allowed.text();
    if entry.contains(['*', '?']) {
        return Some(format!(
            "{entry:?} is matched literally: patterns are not supported"
        ));
    }
    let begins_with_user = entry.starts_with('@');
    match &allowed.by {
        AllowMatch::User if begins_with_user => Some(format!(
            "{entry:?} begins with @: this list takes users, not groups"
        )),
        AllowMatch::Process(_) | AllowMatch::Image(_) if begins_with_user => Some(format!(
            "{entry:?} begins with @ and names nothing to allow: users belong in user_whitelist"
        )),
        AllowMatch::Process(name) => unmatchable_name_reason(name, allowed),
        AllowMatch::Executable(path) if path.ends_with('/') => Some(format!(
            "{entry:?} ends with /: only whole paths match, not directories"
        )),
        AllowMatch::User | AllowMatch::Executable(_) | AllowMatch::Image(_) => None,
    }
}

/// Why no process has this name: the kernel keeps the first 15 bytes of a name.
fn unmatchable_name_reason(name: &str, allowed: &AllowEntry) -> Option<String> {
    let entry = allowed.text();
    if name.starts_with('/') {
        return Some(format!(
            "{entry:?} is a path: paths belong in executable_whitelist"
        ));
    }
    let kept = program_names::truncate_name(name);
    // An escape is longer than its byte: `\x1b` stands for one byte.
    (kept != name && !name.contains('\\')).then(|| {
        let kept = AllowEntry {
            by: AllowMatch::Process(kept.to_owned()),
            user: allowed.user.clone(),
        };
        let kept = kept.text();
        format!("{entry:?} is longer than a kernel name, which has at most 15 bytes: {kept:?}")
    })
}

/// Why an entry hides more than intended.
fn too_broad_reason(allowed: &AllowEntry) -> Option<String> {
    match (&allowed.by, &allowed.user) {
        (AllowMatch::User, Some(user)) if user == "root" || user == "0" => Some(format!(
            "{user:?} is never reported: containers often run as root, and intruders do too"
        )),
        (AllowMatch::Process(name), None) if is_interpreter(name) => Some(format!(
            "{name:?} hides every process of this name without near-proof: name its executable \
            (executable_whitelist), or \"{name}@USER\""
        )),
        (AllowMatch::Executable(path), user) if is_interpreter(file_name(path)) => {
            let user = user.as_deref().unwrap_or("anybody");
            let entry = allowed.text();
            Some(format!(
                "{entry:?} hides everything that {user} runs with it"
            ))
        }
        (
            AllowMatch::User
            | AllowMatch::Process(_)
            | AllowMatch::Executable(_)
            | AllowMatch::Image(_),
            _,
        ) => None,
    }
}

/// A warning at the list that contains this entry.
fn entry_warning(allowed: &AllowEntry, what: String) -> Lint {
    warning(&format!("patterns.{}", allowed.kind().key()), what)
}

/// The users that the rules name.
#[must_use]
pub fn named_users(rules: &RogueRules) -> BTreeSet<&str> {
    let users = rules.allowed.iter().filter_map(|it| it.user.as_deref());
    users.into_set()
}

/// The lints for entries with users that the host does not know.
#[must_use]
pub fn lint_unknown_users(
    rules: &RogueRules,
    strangers: &BTreeSet<String>,
    known: &[String],
) -> Vec<Lint> {
    let known = || known.iter().map(String::as_str);
    let of_strangers = rules.allowed.iter().filter_map(|allowed| {
        let user = allowed.user.as_ref().filter(|it| strangers.contains(*it))?;
        let mut what = format!("unknown user on this host: {user}");
        if let Some(near) = closest_name(user, known()) {
            what += &format!(" (did you mean {near}?)");
        }
        Some(entry_warning(allowed, what))
    });
    of_strangers.collect()
}

/// The lints for threats that stay below a risk even with full confidence, where the
/// defaults could reach it.
fn lint_unreachable_risks(rules: &RogueRules) -> Vec<Lint> {
    let lints = Threat::ALL.into_iter().filter_map(|threat| {
        let weight = rules.weight(threat);
        let (risk, from) = unreachable_risk(threat, rules)?;
        let name = threat.label();
        let never = match risk {
            Risk::Low => format!("no {name} is ever reported"),
            Risk::Medium | Risk::High => format!("no {name} can ever be of {} risk", risk.name()),
            Risk::Critical => format!("no {name} can ever be critical"),
        };
        let threshold = format!("scoring.risk_thresholds.{}, {from}", risk.name());
        let what = format!("{weight} is below {threshold}: {never}");
        let path = format!("scoring.threat_weights.{}", threat.name());
        Some(warning(&path, what))
    });
    lints.collect()
}

/// Returns the lowest risk that a threat can reach by default but not by these rules,
/// and its threshold. A weight of 0 disables a threat on purpose.
fn unreachable_risk(threat: Threat, rules: &RogueRules) -> Option<(Risk, Share)> {
    let usual = RogueRules::default();
    let weight = rules.weight(threat);
    let risks = Risk::ALL.into_iter().zip(rules.thresholds);
    let mut out = risks
        .filter(|(risk, from)| weight < *from && usual.risk(usual.weight(threat)) >= Some(*risk));
    out.next().filter(|_| weight > Share::default())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rogue::read::read;

    fn lint_text(text: &str) -> Vec<String> {
        let rules = read(text).unwrap();
        lint(&rules).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn usual_rules_have_no_lints() {
        let text = "[detection]\nmin_confidence_threshold = 0.99\n\
            [patterns]\ncrypto_miner_patterns = ['--donate-level', 'cuda-miner']\n\
            suspicious_process_names = ['xmrig', 'pythonminer']\npool_ports = [3333]\n\
            user_whitelist = ['bob']\nprocess_whitelist = ['python@bob', 'hashcat']\n\
            executable_whitelist = ['/opt/ours@bob', '/opt/hashcat']\n\
            image_whitelist = ['python']\n\
            [scoring.threat_weights]\ndata_exfiltrator = 0\n";
        assert_eq!(lint_text(text), Vec::<String>::new());
        assert_eq!(lint_text(""), Vec::<String>::new());
    }

    #[test]
    fn unknown_users_are_reported() {
        let text = "[patterns]\nuser_whitelist = ['eve', 'bob']\nprocess_whitelist = ['x@eve']\n";
        let rules = read(text).unwrap();
        assert_eq!(named_users(&rules), ["bob", "eve"].into());
        let known = ["steve".to_owned(), "eva".to_owned()];
        let lints = lint_unknown_users(&rules, &["eve".to_owned()].into(), &known);
        let lints: Vec<String> = lints.iter().map(ToString::to_string).collect();
        let expected = [
            "patterns.process_whitelist: unknown user on this host: eve (did you mean eva?)",
            "patterns.user_whitelist: unknown user on this host: eve (did you mean eva?)",
        ];
        assert_eq!(lints, expected);
        assert_eq!(lint_unknown_users(&rules, &BTreeSet::new(), &known), []);
    }

    #[test]
    fn broad_entries_and_common_words_are_reported() {
        let text = "[detection]\nmin_confidence_threshold = 1\n\
            [patterns]\ncrypto_miner_patterns = ['CUDA', '--gpu', '-o', 'kawpow']\n\
            suspicious_process_names = ['python3.12', 'bash']\npool_ports = [443, 3333]\n\
            user_whitelist = ['root']\nprocess_whitelist = ['python']\n\
            executable_whitelist = ['/usr/bin/java']\n\
            [scoring.threat_weights]\nresource_abuser = 0.2\n";
        let expected = [
            "detection.min_confidence_threshold: at 1 only fully certain verdicts are reported, \
             which are very rare: 0.5 is usual",
            "patterns.crypto_miner_patterns: \"CUDA\" also appears in honest work",
            "patterns.crypto_miner_patterns: \"--gpu\" also appears in honest work",
            "patterns.crypto_miner_patterns: \"-o\" is short and also appears in honest work",
            "patterns.suspicious_process_names: \"python3.12\" also appears in honest work",
            "patterns.suspicious_process_names: \"bash\" also appears in honest work",
            "patterns.pool_ports: 443 is a port of other services, and honest work connects to it \
             too",
            "patterns.executable_whitelist: \"/usr/bin/java\" hides everything that anybody runs \
             with it",
            "patterns.process_whitelist: \"python\" hides every process of this name without \
             near-proof: name its executable (executable_whitelist), or \"python@USER\"",
            "patterns.user_whitelist: \"root\" is never reported: containers often run as root, \
             and intruders do too",
            "scoring.threat_weights.resource_abuser: 0.20 is below scoring.risk_thresholds.low, \
             0.30: no resource abuser is ever reported",
        ];
        assert_eq!(lint_text(text), expected);
    }

    #[test]
    fn interpreter_entry_hides_all_of_a_user() {
        for name in ["python3.11", "bash", "sh", "java", "node", "perl", "ruby"] {
            let text = format!("[patterns]\nexecutable_whitelist = ['/usr/bin/{name}@eve']\n");
            let expected = format!(
                "patterns.executable_whitelist: \"/usr/bin/{name}@eve\" hides everything that eve \
                 runs with it"
            );
            assert_eq!(lint_text(&text), [expected]);
        }
        let text = "[patterns]\nexecutable_whitelist = ['/opt/python3/bin/ours@eve']\n";
        assert_eq!(lint_text(text), Vec::<String>::new());
    }

    #[test]
    fn unmatchable_entries_are_reported() {
        let text = "[patterns]\n\
            executable_whitelist = ['/opt/*/train', '/opt/ours/', '/opt/theirs/@bob']\n\
            image_whitelist = ['lab/*', '@bob', 'lab/crack:1', 'lab/crack@sha256:0']\n\
            process_whitelist = ['hash?at@bob', '@bob', '/opt/hashcat', 'text-generation', \
            'text-generation-server@bob', 'a\\x1b[2Jtext-gene', 'train@*']\n\
            user_whitelist = ['@lab', 'b*']\n";
        let of = |list: &str, entry: &str, what: &str| {
            format!("patterns.{list}_whitelist: \"{entry}\" {what}")
        };
        let pattern = "is matched literally: patterns are not supported";
        let directory = "ends with /: only whole paths match, not directories";
        let nothing = "begins with @ and names nothing to allow: users belong in user_whitelist";
        let expected = [
            of("executable", "/opt/*/train", pattern),
            of("executable", "/opt/ours/", directory),
            of("executable", "/opt/theirs/@bob", directory),
            of("image", "lab/*", pattern),
            of("image", "@bob", nothing),
            of("process", "hash?at@bob", pattern),
            of("process", "@bob", nothing),
            of(
                "process",
                "/opt/hashcat",
                "is a path: paths belong in executable_whitelist",
            ),
            of(
                "process",
                "text-generation-server@bob",
                "is longer than a kernel name, which has at most 15 bytes: \
                 \"text-generation@bob\"",
            ),
            of("process", "train@*", pattern),
            of(
                "user",
                "@lab",
                "begins with @: this list takes users, not groups",
            ),
            of("user", "b*", pattern),
        ];
        assert_eq!(lint_text(text), expected);
    }

    #[test]
    fn unreachable_risk_is_reported() {
        let weigh = |name: &str, weight: &str| {
            lint_text(&format!("[scoring.threat_weights]\n{name} = {weight}\n"))
        };
        let path = "scoring.threat_weights";
        for (name, weight, expected) in [
            (
                "crypto_miner",
                "0.8",
                "0.80 is below scoring.risk_thresholds.critical, 0.90: no crypto miner can ever \
                 be critical",
            ),
            (
                "suspicious_process",
                "0.6",
                "0.60 is below scoring.risk_thresholds.high, 0.70: no suspicious process can \
                 ever be of high risk",
            ),
            (
                "resource_abuser",
                "0.3",
                "0.30 is below scoring.risk_thresholds.medium, 0.50: no resource abuser can ever \
                 be of medium risk",
            ),
            (
                "data_exfiltrator",
                "0.29",
                "0.29 is below scoring.risk_thresholds.low, 0.30: no data exfiltrator is ever \
                 reported",
            ),
        ] {
            assert_eq!(weigh(name, weight), [format!("{path}.{name}: {expected}")]);
        }
        for (name, weight) in [
            ("crypto_miner", "0.9"),
            ("crypto_miner", "0"),
            ("suspicious_process", "0.7"),
            ("resource_abuser", "0.5"),
            ("resource_abuser", "0.65"),
        ] {
            assert_eq!(weigh(name, weight), Vec::<String>::new(), "{name} {weight}");
        }
        let thresholds = lint_text("[scoring.risk_thresholds]\ncritical = 0.95\n");
        let expected = "scoring.threat_weights.data_exfiltrator: 0.90 is below \
            scoring.risk_thresholds.critical, 0.95: no data exfiltrator can ever be critical";
        assert_eq!(thresholds, [expected]);
    }
}
