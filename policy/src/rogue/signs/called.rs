//! What a process is called, and what its executable is.

use super::Seen;
use crate::rogue::rules::Rules;
use crate::rogue::suspect::Suspect;

/// The names of miners, whole and in small letters: those of Falco's rules, and others
/// that mine on GPUs.
const MINERS: [&str; 34] = [
    "bfgminer",
    "bminer",
    "bzminer",
    "ccminer",
    "cgminer",
    "claymore",
    "cpuminer",
    "ethdcrminer64",
    "ethminer",
    "gminer",
    "kawpowminer",
    "lolminer",
    "minerd",
    "minergate",
    "minergate-cli",
    "miniz",
    "nanominer",
    "nbminer",
    "onezerominer",
    "phoenixminer",
    "progpowminer",
    "sgminer",
    "srbminer",
    "srbminer-multi",
    "t-rex",
    "teamblackminer",
    "teamredminer",
    "trex-miner",
    "wildrig",
    "wildrig-multi",
    "xmr-stak",
    "xmr-stak-rx",
    "xmrig",
    "xmrig-nvidia",
];

/// The name of a known miner, by the kernel's, its file's or its own account.
pub(super) fn as_miner(suspect: &Suspect, rules: &Rules) -> Option<Seen> {
    let of_admin = rules.patterns.miners.iter().map(String::as_str);
    let known: Vec<&str> = MINERS.into_iter().chain(of_admin).collect();
    let mut called = suspect.called();
    let is_one = |name: &&str| known.iter().any(|known| known.eq_ignore_ascii_case(name));
    called
        .find(is_one)
        .map(|name| Seen::new(750, format!("it is called {name}")))
}

/// An executable that the admin knows.
pub(super) fn by_hash(suspect: &Suspect, rules: &Rules) -> Option<Seen> {
    let hash = suspect.sha256.as_ref()?;
    let known = rules.patterns.sha256.iter().find(|known| *known == hash)?;
    Some(Seen::new(
        950,
        format!("its executable has SHA-256 {known}"),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sees(name: &str, executable: &str, itself: &str) -> bool {
        let suspect = Suspect {
            name: Some(name.into()),
            executable: Some(executable.into()),
            arguments: Some(vec![itself.into()]),
            ..Suspect::default()
        };
        as_miner(&suspect, &Rules::default()).is_some()
    }

    #[test]
    fn a_miner_is_known_by_any_of_its_names_and_by_the_whole_of_it() {
        for (name, executable, itself) in [
            ("xmrig", "/usr/bin/python3", "python3"),
            ("python3", "/home/eve/lolMiner", "python3"),
            ("python3", "/tmp/T-REX (deleted)", "python3"),
            ("python3", "/usr/bin/python3", "./nbminer"),
        ] {
            assert!(
                sees(name, executable, itself),
                "{name} {executable} {itself}"
            );
        }
        for (name, executable, itself) in [
            ("data-miner", "/opt/dataminer/bin/miner", "miner"),
            ("xmrig2py", "/usr/bin/python3", "python3 xmrig_paper.py"),
            ("hashcat", "/usr/bin/hashcat", "hashcat"),
            ("python3", "/home/eve/xmrig/venv/bin/python3", "python3"),
        ] {
            assert!(
                !sees(name, executable, itself),
                "{name} {executable} {itself}"
            );
        }
    }

    #[test]
    fn an_executable_is_known_by_all_of_its_hash() {
        let mut rules = Rules::default();
        rules.patterns.sha256 = vec!["ab".repeat(32)];
        let sees = |hash: Option<String>| {
            let suspect = Suspect {
                sha256: hash,
                ..Suspect::default()
            };
            by_hash(&suspect, &rules).is_some()
        };
        assert!(sees(Some("ab".repeat(32))));
        assert!(!sees(Some("ab".repeat(31))) && !sees(None));
    }
}
