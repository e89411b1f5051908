//! What a process is told on its command line.

use super::Seen;
use crate::rogue::rules::Rules;
use crate::rogue::suspect::{Suspect, base};
use base64::Engine as _;
use base64::alphabet::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};

/// How the address of a pool begins, as miners spell it: `stratum+tcp`, `stratums`,
/// `stratum2+ssl`, `ethproxy+ssl`.
const SCHEMES: [&str; 3] = ["stratum", "ethproxy", "ethstratum"];

/// The address of a pool among its arguments, plain or in base64.
pub(super) fn pool(suspect: &Suspect, _: &Rules) -> Option<Seen> {
    let arguments = suspect.arguments.as_ref()?;
    let plain = told(arguments).find_map(|(it, are_words)| address(it, are_words));
    if let Some(address) = plain {
        return Some(Seen::new(
            650,
            format!("command line names a pool: {address}"),
        ));
    }
    let hides = |argument: &&String| encoded(argument).any(|text| address(&text, true).is_some());
    arguments
        .iter()
        .find(hides)
        .map(|_| Seen::new(650, "command line hides the address of a pool in base64"))
}

/// Its arguments, and whether each is words between blanks: a title, which is one text that
/// the process wrote itself, or what a shell is to run.
fn told(arguments: &[String]) -> impl Iterator<Item = (&String, bool)> {
    let is_title = arguments.iter().skip(1).all(String::is_empty);
    let is_shell = arguments.first().is_some_and(|it| {
        let shells = ["sh", "bash", "dash", "zsh", "ksh"];
        shells.contains(&base(it).trim_start_matches('-'))
    });
    let before = [None].into_iter().chain(arguments.iter().map(Some));
    arguments.iter().zip(before).map(move |(it, before)| {
        let is_script = is_shell && before.is_some_and(|option| option == "-c");
        (it, is_title || is_script)
    })
}

/// The address of a pool in an argument: a scheme, and a host after it. In the middle of a
/// sentence it is what somebody writes about, and not whom this speaks with: only a title
/// has its words between blanks.
fn address(argument: &str, is_title: bool) -> Option<&str> {
    let marks = argument.match_indices("://");
    let mut addresses = marks.filter_map(|(mark, _)| {
        let is_scheme = |c: char| c.is_ascii_alphanumeric() || "+.-".contains(c);
        let before = argument.get(..mark)?;
        let scheme = before.trim_end_matches(is_scheme).len();
        let is_pools = |known: &str| {
            let begin = before.get(scheme..scheme + known.len());
            begin.is_some_and(|begin| begin.eq_ignore_ascii_case(known))
        };
        SCHEMES.iter().find(|known| is_pools(known))?;
        let is_within = argument.get(..scheme)?.ends_with([' ', '\n', '\t']);
        if is_within && !is_title {
            return None;
        }
        let rest = argument.get(scheme..)?;
        let address = rest.split([' ', '"', '\'', ',', ';', '&', '\n']).next()?;
        let host = address.get(mark - scheme + 3..)?;
        // The wallet may stand before the host, as in a URI.
        let host = host.rsplit('@').next()?;
        let is_host = |c: char| c.is_ascii_alphanumeric() || c == '[';
        host.starts_with(is_host).then_some(address)
    });
    addresses.next()
}

/// What of an argument is in base64, as text.
fn encoded(argument: &str) -> impl Iterator<Item = String> {
    let is_of_it = |c: char| c.is_ascii_alphanumeric() || "+/-_".contains(c);
    let runs = argument.split(move |c| !is_of_it(c));
    let runs = runs.filter(|run| run.len() >= SHORTEST).take(MOST_ENCODED);
    runs.filter_map(|run| {
        let run: String = run.chars().map(standard).collect();
        let bytes = LENIENT.decode(run).ok()?;
        Some(String::from_utf8_lossy(&bytes).into_owned())
    })
}

/// As base64 was before there was one for addresses.
const fn standard(c: char) -> char {
    match c {
        '-' => '+',
        '_' => '/',
        other => other,
    }
}

/// The shortest address of a pool has so many letters in base64.
const SHORTEST: usize = 20;

/// So many parts of an argument are taken for base64.
const MOST_ENCODED: usize = 64;

/// Takes it however it ends.
const LENIENT: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new()
        .with_decode_allow_trailing_bits(true)
        .with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// Options that miners have and nothing else, and the algorithms of which GPUs mine coins
/// after the option that chooses one.
const OPTIONS: [&str; 5] = [
    "--donate-level",
    "--nicehash",
    "--dev-fee",
    "--cdmport",
    "--mining-threads",
];
const CHOOSES: [&str; 4] = ["-a", "--algo", "--algorithm", "--coin"];
const ALGORITHMS: [&str; 20] = [
    "autolykos2",
    "beamhash",
    "cuckatoo32",
    "cuckoo29",
    "equihash144_5",
    "equihash125_4",
    "etchash",
    "ethash",
    "fishhash",
    "firopow",
    "karlsenhash",
    "kawpow",
    "kheavyhash",
    "nexapow",
    "octopus",
    "progpow",
    "progpowz",
    "pyrinhash",
    "rx/0",
    "tensority",
];

/// Options of miners among its arguments.
pub(super) fn options(suspect: &Suspect, rules: &Rules) -> Option<Seen> {
    let arguments = suspect.arguments.as_ref()?;
    let words = words(arguments);
    let of_admin = |word: &&&str| rules.patterns.arguments.iter().any(|it| it == **word);
    if let Some(word) = words.iter().find(of_admin) {
        return Some(Seen::new(
            700,
            format!("command line has {word}, which the admin looks for"),
        ));
    }
    let option = |word: &&&str| OPTIONS.iter().any(|option| is_option(word, option));
    if let Some(word) = words.iter().find(option) {
        return Some(Seen::new(650, format!("command line has {word}")));
    }
    let pairs = words.iter().zip(words.iter().skip(1));
    let of_two = pairs
        .filter(|(name, _)| CHOOSES.contains(name))
        .map(|(_, value)| *value);
    let of_one = words.iter().filter_map(|word| {
        let (name, value) = word.split_once('=')?;
        CHOOSES.contains(&name).then_some(value)
    });
    of_two
        .chain(of_one)
        .find(|value| {
            ALGORITHMS
                .iter()
                .any(|known| known.eq_ignore_ascii_case(value))
        })
        .map(|value| {
            Seen::new(
                550,
                format!("command line asks for {value}, which only mines coins"),
            )
        })
}

/// Its arguments; the words of one that is a whole command line: a title. What stands
/// between blanks in one of several is part of a file's name or of a sentence.
fn words(arguments: &[String]) -> Vec<&str> {
    let words = told(arguments).flat_map(|(it, are_words)| {
        let (whole, split) = match are_words {
            true => (None, Some(it.split_whitespace())),
            false => (Some(it.as_str()), None),
        };
        whole.into_iter().chain(split.into_iter().flatten())
    });
    words.take(MOST_WORDS).collect()
}

/// So many words are looked at.
const MOST_WORDS: usize = 4_096;

fn is_option(word: &str, option: &str) -> bool {
    let rest = word.strip_prefix(option);
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('='))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn suspect(arguments: &[&str]) -> Suspect {
        Suspect {
            arguments: Some(arguments.iter().map(|it| (*it).to_owned()).collect()),
            ..Suspect::default()
        }
    }

    fn sees(arguments: &[&str]) -> (bool, bool) {
        let rules = Rules::default();
        let suspect = suspect(arguments);
        (
            pool(&suspect, &rules).is_some(),
            options(&suspect, &rules).is_some(),
        )
    }

    #[test]
    fn the_address_of_a_pool_is_seen_in_whatever_spelling() {
        for argument in [
            "stratum+tcp://eth.pool.example:4444",
            "-o=stratum+ssl://wallet.rig:x@pool.example:5555",
            "--url=STRATUM2+TCP://pool.example:3333#xnsub",
            "stratum+tcp://pool.example",
            "stratum+tcp://[fe80::1]:3333",
            "stratums://pool.example:443",
            "ethproxy+ssl://pool.example:443",
            r#"{"url":"stratum+tcp://pool.example:3333","user":"x"}"#,
            "stratum://pool.example:20535",
        ] {
            assert_eq!(sees(&["worker", argument]), (true, false), "{argument}");
        }
    }

    #[test]
    fn a_title_and_what_a_shell_runs_are_words() {
        let line = "./m -o stratum+tcp://198.51.100.7:443 --donate-level=1";
        assert_eq!(sees(&[line]), (true, true));
        assert_eq!(sees(&[line, "", ""]), (true, true));
        assert_eq!(sees(&["/bin/bash", "-c", line]), (true, true));
        assert_eq!(sees(&["python3", "-c", line]), (false, false));
    }

    #[test]
    fn words_about_mining_are_no_address() {
        for argument in [
            "stratum",
            "stratum+tcp",
            "stratum+tcp://",
            "stratum+tcp://:4444",
            "http://pool.example:8080",
            "stratum_sampling.py",
            "--pattern=stratum\\+tcp://[^:]+:port",
            "Explain what stratum+tcp://pool.example:3333 means in this log",
            "talk --donate-level=1.wav",
            "c3RyYXR1bSt0Y3A6Ly.wav",
        ] {
            assert_eq!(sees(&["python", argument]), (false, false), "{argument}");
        }
    }

    #[test]
    fn an_address_in_base64_is_seen_wherever_it_begins() {
        // `python` made these of `-o stratum+tcp://pool.example:4444` after 0, 1 and 2
        // bytes more.
        for hidden in [
            "LW8gc3RyYXR1bSt0Y3A6Ly9wb29sLmV4YW1wbGU6NDQ0NA==",
            "eC1vIHN0cmF0dW0rdGNwOi8vcG9vbC5leGFtcGxlOjQ0NDQ=",
            "eHgtbyBzdHJhdHVtK3RjcDovL3Bvb2wuZXhhbXBsZTo0NDQ0",
        ] {
            let code = format!("exec(__import__('base64').b64decode('{hidden}'))");
            assert_eq!(sees(&["python3", "-c", &code]), (true, false), "{hidden}");
        }
        let harmless = "exec(b64decode('cHJpbnQoJ3RyYWluJyk='))";
        assert_eq!(sees(&["python3", "-c", harmless]), (false, false));
    }

    #[test]
    fn options_of_miners_are_seen_and_alike_ones_are_not() {
        for arguments in [
            &["m", "--donate-level", "1"][..],
            &["m", "--donate-level=1"],
            &["m", "-a", "kawpow"],
            &["m", "--algo=ETCHASH"],
            &["sh", "-c", "./m --algo rx/0 --cpu-priority 5"],
        ] {
            assert_eq!(sees(arguments), (false, true), "{arguments:?}");
        }
        for arguments in [
            &["hashcat", "-a", "3", "-m", "22000"][..],
            &["train", "--algo", "ppo"],
            &["train", "--algorithm=dqn"],
            &["grep", "kawpow"],
            &["m", "--donate-levels"],
            &["x", "--coin", "flip"],
        ] {
            assert_eq!(sees(arguments), (false, false), "{arguments:?}");
        }
    }

    #[test]
    fn the_admins_own_words_are_looked_for_whole() {
        let mut rules = Rules::default();
        rules.patterns.arguments = vec!["--wallet".into()];
        let sees = |word| options(&suspect(&["m", word]), &rules).is_some();
        assert!(sees("--wallet") && !sees("--wallets"));
    }
}
