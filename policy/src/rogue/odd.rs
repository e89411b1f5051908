//! What in the rules is right and yet hardly meant: whom they hide though nobody meant
//! that, what they call a miner though honest work has it too, and what they never tell.

use super::rules::{Allowed, AllowedBy, Rules};
use gpukill_proto::guard::edit::Warning;
use gpukill_proto::rogue::{AllowBy, Share, Threat};
use std::collections::BTreeSet;

/// Programs that run what others wrote: by their names they are anybody's.
const INTERPRETERS: [&str; 16] = [
    "R",
    "bash",
    "dash",
    "java",
    "julia",
    "jupyter",
    "jupyter-lab",
    "lua",
    "node",
    "perl",
    "php",
    "python",
    "ruby",
    "sh",
    "sleep",
    "zsh",
];

/// What stands on the command lines of honest work on GPUs too, besides the names of
/// interpreters; the first four are among the words that gpu-kill looks for.
const HONEST: [&str; 16] = [
    "cuda",
    "opencl",
    "hash",
    "miner",
    "docker",
    "gpu",
    "pytorch",
    "ray",
    "rocm",
    "ssh",
    "tensorflow",
    "torch",
    "torchrun",
    "train",
    "vllm",
    "worker",
];

/// Ports of other services, by the registry of IANA, and those on which Jupyter,
/// `TensorBoard` and PyTorch's rendezvous listen.
const SERVICES: [u16; 9] = [22, 53, 80, 443, 6_006, 8_080, 8_443, 8_888, 29_500];

/// What is hardly meant, in the order of the keys.
#[must_use]
pub fn warnings(rules: &Rules) -> Vec<Warning> {
    let patterns = &rules.patterns;
    let arguments = patterns.arguments.iter().filter_map(|word| {
        let what = honest(word)?;
        Some(warning("patterns.crypto_miner_patterns", what))
    });
    let miners = patterns.miners.iter().filter_map(|name| {
        let what = honest(name)?;
        Some(warning("patterns.suspicious_process_names", what))
    });
    let ports = patterns.ports.iter().filter(|it| SERVICES.contains(it));
    let ports = ports.map(|port| {
        let what = format!("{port} is a port of other services: honest work connects there too");
        warning("patterns.pool_ports", what)
    });
    certainty(rules)
        .into_iter()
        .chain(arguments)
        .chain(miners)
        .chain(ports)
        .chain(rules.allowed.iter().filter_map(hides))
        .chain(never(rules))
        .collect()
}

fn warning(path: &str, what: String) -> Warning {
    Warning {
        place: None,
        path: path.to_owned(),
        what,
    }
}

/// Signs never come to certainty, but for a known program.
fn certainty(rules: &Rules) -> Option<Warning> {
    let asked = rules.detection.min_confidence;
    (asked == Share::ONE).then(|| {
        let what = "at 1 nobody is told but whom signs make quite certain, which is hardly \
            anybody: 0.5 is usual";
        warning("detection.min_confidence_threshold", what.to_owned())
    })
}

/// Why this says nothing of a miner.
fn honest(word: &str) -> Option<String> {
    let bare = word.trim_start_matches('-');
    if is_interpreter(bare) || HONEST.contains(&bare.to_ascii_lowercase().as_str()) {
        return Some(format!("{word:?}: honest work has it too"));
    }
    // `-o`, `-u`: every program has such options.
    (bare.chars().count() <= 2).then(|| format!("{word:?} is short: honest work has it too"))
}

/// `python`, `python3`, `python3.12`
fn is_interpreter(name: &str) -> bool {
    let bare = name.trim_end_matches(|it: char| it.is_ascii_digit() || it == '.');
    INTERPRETERS.contains(&bare)
}

/// Whom an entry hides besides whoever was meant.
fn hides(allowed: &Allowed) -> Option<Warning> {
    match (&allowed.by, &allowed.user) {
        (AllowedBy::User, Some(user)) if user == "root" || user == "0" => {
            let what = format!(
                "nothing is told of {user:?}: containers often run as root, and whoever breaks \
                 in does"
            );
            Some(warning("patterns.user_whitelist", what))
        }
        (AllowedBy::Process(name), None) if is_interpreter(name) => {
            let what = format!(
                "{name:?} hides the looks of whatever {name} runs: name its executable \
                 (executable_whitelist), or \"{name}@USER\""
            );
            Some(warning("patterns.process_whitelist", what))
        }
        (AllowedBy::Executable(path), None)
            if path.rsplit('/').next().is_some_and(is_interpreter) =>
        {
            let what = format!("{path:?} hides whatever it runs: name \"{path}@USER\"");
            Some(warning("patterns.executable_whitelist", what))
        }
        (
            AllowedBy::User
            | AllowedBy::Process(_)
            | AllowedBy::Executable(_)
            | AllowedBy::Image(_),
            _,
        ) => None,
    }
}

/// The users whom rules name.
#[must_use]
pub fn users(rules: &Rules) -> BTreeSet<&str> {
    let users = rules.allowed.iter().filter_map(|it| it.user.as_deref());
    users.collect()
}

/// What is said of these users though a box knows none who is called so.
#[must_use]
pub fn nobodys(rules: &Rules, strangers: &BTreeSet<String>) -> Vec<Warning> {
    let of_strangers = rules.allowed.iter().filter_map(|allowed| {
        let user = allowed.user.as_ref().filter(|it| strangers.contains(*it))?;
        let by = match allowed.by {
            AllowedBy::User => AllowBy::User,
            AllowedBy::Process(_) => AllowBy::Process,
            AllowedBy::Executable(_) => AllowBy::Executable,
            AllowedBy::Image(_) => AllowBy::Image,
        };
        let path = format!("patterns.{}", by.key());
        Some(warning(&path, format!("this box knows no user {user}")))
    });
    of_strangers.collect()
}

/// The threats whose score is below a low risk however sure they are. A weight of 0 says
/// so on purpose.
fn never(rules: &Rules) -> Vec<Warning> {
    let low = rules.thresholds.first().copied().unwrap_or_default();
    let is_below = |threat: &Threat| {
        let weight = rules.weight(*threat);
        weight < low && weight > Share::default()
    };
    let told = Threat::ALL.into_iter().filter(is_below).map(|threat| {
        let weight = rules.weight(threat);
        let path = format!("scoring.threat_weights.{}", threat.name());
        let what = format!(
            "{weight} is below scoring.risk_thresholds.low, {low}: no {} is ever told",
            threat.words()
        );
        warning(&path, what)
    });
    told.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rogue::read::read;

    fn told(text: &str) -> Vec<String> {
        let rules = read(text).unwrap();
        warnings(&rules).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn what_is_usual_is_not_odd() {
        let text = "[detection]\nmin_confidence_threshold = 0.99\n\
            [patterns]\ncrypto_miner_patterns = ['--donate-level', 'cuda-miner']\n\
            suspicious_process_names = ['xmrig', 'pythonminer']\npool_ports = [3333]\n\
            user_whitelist = ['bob']\nprocess_whitelist = ['python@bob', 'hashcat']\n\
            executable_whitelist = ['/usr/bin/python3@bob', '/opt/hashcat']\n\
            image_whitelist = ['python']\n\
            [scoring.threat_weights]\ndata_exfiltrator = 0\n";
        assert_eq!(told(text), Vec::<String>::new());
        assert_eq!(told(""), Vec::<String>::new());
    }

    #[test]
    fn who_is_nobody_on_a_box_is_told_where_they_are_named() {
        let text = "[patterns]\nuser_whitelist = ['eve', 'bob']\nprocess_whitelist = ['x@eve']\n";
        let rules = read(text).unwrap();
        assert_eq!(users(&rules), ["bob", "eve"].into());
        let told = nobodys(&rules, &["eve".to_owned()].into());
        let told: Vec<String> = told.iter().map(ToString::to_string).collect();
        let expected = [
            "patterns.process_whitelist: this box knows no user eve",
            "patterns.user_whitelist: this box knows no user eve",
        ];
        assert_eq!(told, expected);
        assert_eq!(nobodys(&rules, &BTreeSet::new()), []);
    }

    #[test]
    fn what_hides_all_or_calls_honest_work_a_miner_is_odd() {
        let text = "[detection]\nmin_confidence_threshold = 1\n\
            [patterns]\ncrypto_miner_patterns = ['CUDA', '--gpu', '-o', 'kawpow']\n\
            suspicious_process_names = ['python3.12', 'bash']\npool_ports = [443, 3333]\n\
            user_whitelist = ['root']\nprocess_whitelist = ['python']\n\
            executable_whitelist = ['/usr/bin/java']\n\
            [scoring.threat_weights]\nresource_abuser = 0.2\n";
        let expected = [
            "detection.min_confidence_threshold: at 1 nobody is told but whom signs make quite \
             certain, which is hardly anybody: 0.5 is usual",
            "patterns.crypto_miner_patterns: \"CUDA\": honest work has it too",
            "patterns.crypto_miner_patterns: \"--gpu\": honest work has it too",
            "patterns.crypto_miner_patterns: \"-o\" is short: honest work has it too",
            "patterns.suspicious_process_names: \"python3.12\": honest work has it too",
            "patterns.suspicious_process_names: \"bash\": honest work has it too",
            "patterns.pool_ports: 443 is a port of other services: honest work connects there too",
            "patterns.executable_whitelist: \"/usr/bin/java\" hides whatever it runs: name \
             \"/usr/bin/java@USER\"",
            "patterns.process_whitelist: \"python\" hides the looks of whatever python runs: name \
             its executable (executable_whitelist), or \"python@USER\"",
            "patterns.user_whitelist: nothing is told of \"root\": containers often run as root, \
             and whoever breaks in does",
            "scoring.threat_weights.resource_abuser: 0.20 is below scoring.risk_thresholds.low, \
             0.30: no resource abuser is ever told",
        ];
        assert_eq!(told(text), expected);
    }
}
