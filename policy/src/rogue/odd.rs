//! What in the rules is right and yet hardly meant: whom they hide though nobody meant
//! that, whom they allow though nobody is called so, what they call a miner though honest
//! work has it too, and what they never tell.

use super::rules::{Allowed, AllowedBy, Rules};
use super::suspect::base;
use crate::holders::names;
use gpukill_proto::collect::IntoSet as _;
use gpukill_proto::guard::edit::Warning;
use gpukill_proto::rogue::{AllowBy, Risk, Share, Threat};
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
        .chain(rules.allowed.iter().filter_map(excuses))
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
pub(super) fn is_interpreter(name: &str) -> bool {
    let bare = name.trim_end_matches(|it: char| it.is_ascii_digit() || it == '.');
    INTERPRETERS.contains(&bare)
}

/// What an entry excuses that is hardly meant: nobody, or more than one thing.
fn excuses(allowed: &Allowed) -> Option<Warning> {
    let what = is_of_nobody(allowed).or_else(|| hides(allowed))?;
    Some(warning(&list_of(&allowed.by), what))
}

/// Why nothing ever matches an entry: all of a text is compared.
fn is_of_nobody(allowed: &Allowed) -> Option<String> {
    let entry = written(allowed);
    if entry.contains(['*', '?']) {
        return Some(format!(
            "{entry:?} is taken as it stands: whole names are compared, and no patterns"
        ));
    }
    let begins_with_user = entry.starts_with('@');
    match &allowed.by {
        AllowedBy::User if begins_with_user => Some(format!(
            "{entry:?} begins with @: users stand here, and no groups"
        )),
        AllowedBy::Process(_) | AllowedBy::Image(_) if begins_with_user => Some(format!(
            "{entry:?} begins with @, and says nothing of what is allowed: user_whitelist has \
             users"
        )),
        AllowedBy::Process(name) => is_no_name(name, allowed),
        AllowedBy::Executable(path) if path.ends_with('/') => Some(format!(
            "{entry:?} ends with /: whole paths are compared, and no directories"
        )),
        AllowedBy::User | AllowedBy::Executable(_) | AllowedBy::Image(_) => None,
    }
}

/// Why the kernel calls no process so: it keeps the beginning of a name, 15 bytes.
fn is_no_name(name: &str, allowed: &Allowed) -> Option<String> {
    let entry = written(allowed);
    if name.starts_with('/') {
        return Some(format!(
            "{entry:?} is a path: executable_whitelist has those"
        ));
    }
    let kept = names::cut(name);
    // What was made visible takes more than it was: `\x1b` is one byte.
    (kept != name && !name.contains('\\')).then(|| {
        let kept = written(&Allowed {
            by: AllowedBy::Process(kept.to_owned()),
            user: allowed.user.clone(),
        });
        format!("{entry:?} is longer than the kernel's names, which end after 15 bytes: {kept:?}")
    })
}

/// Whom an entry hides besides whoever was meant.
fn hides(allowed: &Allowed) -> Option<String> {
    match (&allowed.by, &allowed.user) {
        (AllowedBy::User, Some(user)) if user == "root" || user == "0" => Some(format!(
            "nothing is told of {user:?}: containers often run as root, and whoever breaks in does"
        )),
        (AllowedBy::Process(name), None) if is_interpreter(name) => Some(format!(
            "{name:?} hides the looks of whatever {name} runs: name its executable \
             (executable_whitelist), or \"{name}@USER\""
        )),
        (AllowedBy::Executable(path), user) if is_interpreter(base(path)) => {
            let user = user.as_deref().unwrap_or("anybody");
            let entry = written(allowed);
            Some(format!("{entry:?} hides all that {user} runs with it"))
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

/// An entry as it was written: `what`, `what@user`, or a user.
fn written(allowed: &Allowed) -> String {
    let what = match &allowed.by {
        AllowedBy::User => None,
        AllowedBy::Process(what) | AllowedBy::Executable(what) | AllowedBy::Image(what) => {
            Some(what.as_str())
        }
    };
    let parts = [what, allowed.user.as_deref()];
    let parts: Vec<&str> = parts.into_iter().flatten().collect();
    parts.join("@")
}

/// The list where such entries stand.
fn list_of(by: &AllowedBy) -> String {
    let by = match by {
        AllowedBy::User => AllowBy::User,
        AllowedBy::Process(_) => AllowBy::Process,
        AllowedBy::Executable(_) => AllowBy::Executable,
        AllowedBy::Image(_) => AllowBy::Image,
    };
    format!("patterns.{}", by.key())
}

/// The users whom rules name.
#[must_use]
pub fn users(rules: &Rules) -> BTreeSet<&str> {
    let users = rules.allowed.iter().filter_map(|it| it.user.as_deref());
    users.into_set()
}

/// What is said of these users though a box knows none who is called so.
#[must_use]
pub fn nobodys(rules: &Rules, strangers: &BTreeSet<String>) -> Vec<Warning> {
    let of_strangers = rules.allowed.iter().filter_map(|allowed| {
        let user = allowed.user.as_ref().filter(|it| strangers.contains(*it))?;
        let what = format!("this box knows no user {user}");
        Some(warning(&list_of(&allowed.by), what))
    });
    of_strangers.collect()
}

/// The threats whose score stays below a risk however sure they are, though by default it
/// need not.
fn never(rules: &Rules) -> Vec<Warning> {
    let told = Threat::ALL.into_iter().filter_map(|threat| {
        let weight = rules.weight(threat);
        let (risk, from) = out_of_reach(threat, rules)?;
        let name = threat.words();
        let never = match risk {
            Risk::Low => format!("no {name} is ever told"),
            Risk::Medium | Risk::High => format!("no {name} can ever be of {} risk", risk.name()),
            Risk::Critical => format!("no {name} can ever be critical"),
        };
        let threshold = format!("scoring.risk_thresholds.{}, {from}", risk.name());
        let what = format!("{weight} is below {threshold}: {never}");
        let path = format!("scoring.threat_weights.{}", threat.name());
        Some(warning(&path, what))
    });
    told.collect()
}

/// The least risk that a threat may be by default and never is by these rules, and from
/// which score on it would be. What is weighed at 0 is never told on purpose.
fn out_of_reach(threat: Threat, rules: &Rules) -> Option<(Risk, Share)> {
    let usual = Rules::default();
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
            executable_whitelist = ['/opt/ours@bob', '/opt/hashcat']\n\
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
            "patterns.executable_whitelist: \"/usr/bin/java\" hides all that anybody runs with it",
            "patterns.process_whitelist: \"python\" hides the looks of whatever python runs: name \
             its executable (executable_whitelist), or \"python@USER\"",
            "patterns.user_whitelist: nothing is told of \"root\": containers often run as root, \
             and whoever breaks in does",
            "scoring.threat_weights.resource_abuser: 0.20 is below scoring.risk_thresholds.low, \
             0.30: no resource abuser is ever told",
        ];
        assert_eq!(told(text), expected);
    }

    #[test]
    fn an_interpreter_hides_all_of_a_user_too() {
        for name in ["python3.11", "bash", "sh", "java", "node", "perl", "ruby"] {
            let text = format!("[patterns]\nexecutable_whitelist = ['/usr/bin/{name}@eve']\n");
            let expected = format!(
                "patterns.executable_whitelist: \"/usr/bin/{name}@eve\" hides all that eve runs \
                 with it"
            );
            assert_eq!(told(&text), [expected]);
        }
        let text = "[patterns]\nexecutable_whitelist = ['/opt/python3/bin/ours@eve']\n";
        assert_eq!(told(text), Vec::<String>::new());
    }

    #[test]
    fn what_nothing_is_called_allows_nobody() {
        let text = "[patterns]\n\
            executable_whitelist = ['/opt/*/train', '/opt/ours/', '/opt/theirs/@bob']\n\
            image_whitelist = ['lab/*', '@bob', 'lab/crack:1', 'lab/crack@sha256:0']\n\
            process_whitelist = ['hash?at@bob', '@bob', '/opt/hashcat', 'text-generation', \
            'text-generation-server@bob', 'a\\x1b[2Jtext-gene', 'train@*']\n\
            user_whitelist = ['@lab', 'b*']\n";
        let of = |list: &str, entry: &str, what: &str| {
            format!("patterns.{list}_whitelist: \"{entry}\" {what}")
        };
        let pattern = "is taken as it stands: whole names are compared, and no patterns";
        let directory = "ends with /: whole paths are compared, and no directories";
        let nothing =
            "begins with @, and says nothing of what is allowed: user_whitelist has users";
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
                "is a path: executable_whitelist has those",
            ),
            of(
                "process",
                "text-generation-server@bob",
                "is longer than the kernel's names, which end after 15 bytes: \
                 \"text-generation@bob\"",
            ),
            of("process", "train@*", pattern),
            of(
                "user",
                "@lab",
                "begins with @: users stand here, and no groups",
            ),
            of("user", "b*", pattern),
        ];
        assert_eq!(told(text), expected);
    }

    #[test]
    fn a_risk_that_is_out_of_reach_is_told_where_it_is_not_by_default() {
        let weigh = |name: &str, weight: &str| {
            told(&format!("[scoring.threat_weights]\n{name} = {weight}\n"))
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
                "0.29 is below scoring.risk_thresholds.low, 0.30: no data exfiltrator is ever told",
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
        let thresholds = told("[scoring.risk_thresholds]\ncritical = 0.95\n");
        let expected = "scoring.threat_weights.data_exfiltrator: 0.90 is below \
            scoring.risk_thresholds.critical, 0.95: no data exfiltrator can ever be critical";
        assert_eq!(thresholds, [expected]);
    }
}
