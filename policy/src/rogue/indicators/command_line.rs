//! Indicators from the command line of a process.

use super::IndicatorMatch;
use crate::rogue::rules::RogueRules;
use crate::rogue::suspect::{Suspect, file_name};
use base64::Engine as _;
use base64::alphabet::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};

/// Schemes of pool addresses, as miners write them: `stratum+tcp`, `stratums`,
/// `stratum2+ssl`, `ethproxy+ssl`.
const SCHEMES: [&str; 3] = ["stratum", "ethproxy", "ethstratum"];

/// The address of a mining pool among the arguments, plain or in base64.
pub(super) fn pool_on_command_line(suspect: &Suspect, _: &RogueRules) -> Option<IndicatorMatch> {
    let arguments = suspect.arguments.as_ref()?;
    let plain =
        classify_arguments(arguments).find_map(|(it, are_words)| pool_address(it, are_words));
    if let Some(address) = plain {
        return Some(IndicatorMatch::new(
            650,
            format!("command line names a pool: {address}"),
        ));
    }
    let hides = |argument: &&String| {
        decode_base64(argument).any(|text| pool_address(&text, true).is_some())
    };
    arguments
        .iter()
        .find(hides)
        .map(|_| IndicatorMatch::new(650, "command line hides the address of a pool in base64"))
}

/// Returns each argument, and whether it consists of words separated by spaces: a
/// title, which is one text that the process wrote itself, or a script for a shell.
fn classify_arguments(arguments: &[String]) -> impl Iterator<Item = (&String, bool)> {
    let is_title = arguments.iter().skip(1).all(String::is_empty);
    let is_shell = arguments.first().is_some_and(|argument| {
        let shells = ["sh", "bash", "dash", "zsh", "ksh"];
        shells.contains(&file_name(argument).trim_start_matches('-'))
    });
    let before = [None].into_iter().chain(arguments.iter().map(Some));
    arguments.iter().zip(before).map(move |(argument, before)| {
        let is_script = is_shell && before.is_some_and(|option| takes_script(option));
        (argument, is_title || is_script)
    })
}

/// Whether an option of a shell makes the next argument a script: `-c`, `-lc`.
fn takes_script(option: &str) -> bool {
    let letters = option.strip_prefix('-');
    letters.is_some_and(|letters| {
        letters.ends_with('c') && letters.chars().all(|c| c.is_ascii_alphabetic())
    })
}

/// Finds the address of a pool in an argument: a scheme followed by a host. In the
/// middle of a sentence an address is only text, so it counts there only in a title:
/// the words of a title are separated by spaces.
fn pool_address(argument: &str, is_title: bool) -> Option<&str> {
    let marks = argument.match_indices("://");
    let mut addresses = marks.filter_map(|(mark, _)| {
        let is_scheme = |c: char| c.is_ascii_alphanumeric() || "+.-".contains(c);
        let before = argument.get(..mark)?;
        let start = before.trim_end_matches(is_scheme).len();
        let is_pools = |known: &&str, begin: usize| {
            let begin = before.get(begin..begin + known.len());
            begin.is_some_and(|begin| begin.eq_ignore_ascii_case(known))
        };
        // The value of a short option may follow its letter: `-ostratum+tcp://`.
        let has_option = before.get(start..)?.starts_with('-');
        let scheme = [Some(start), has_option.then_some(start + 2)]
            .into_iter()
            .flatten()
            .find(|begin| SCHEMES.iter().any(|known| is_pools(known, *begin)))?;
        let is_within = argument.get(..start)?.ends_with([' ', '\n', '\t']);
        if is_within && !is_title {
            return None;
        }
        let rest = argument.get(scheme..)?;
        let address = rest.split([' ', '"', '\'', ',', ';', '&', '\n']).next()?;
        let host = address.get(mark - scheme + 3..)?;
        // The wallet may precede the host, as the user part of a URI.
        let host = host.rsplit('@').next()?;
        let is_host = |c: char| c.is_ascii_alphanumeric() || c == '[';
        host.starts_with(is_host).then_some(address)
    });
    addresses.next()
}

/// Decodes the base64 parts of an argument to text.
fn decode_base64(argument: &str) -> impl Iterator<Item = String> {
    let is_of_it = |c: char| c.is_ascii_alphanumeric() || "+/-_".contains(c);
    let runs = argument.split(move |c| !is_of_it(c));
    let runs = runs
        .filter(|run| run.len() >= MIN_ENCODED_LENGTH)
        .take(MAX_ENCODED_PARTS);
    runs.filter_map(|run| {
        let run: String = run.chars().map(to_standard_alphabet).collect();
        let bytes = LENIENT_BASE64.decode(run).ok()?;
        Some(String::from_utf8_lossy(&bytes).into_owned())
    })
}

/// Maps the URL-safe base64 alphabet to the standard one.
const fn to_standard_alphabet(c: char) -> char {
    match c {
        '-' => '+',
        '_' => '/',
        other => other,
    }
}

/// The length of the shortest pool address in base64.
const MIN_ENCODED_LENGTH: usize = 20;

/// Maximum number of parts of an argument that are decoded.
const MAX_ENCODED_PARTS: usize = 64;

/// Accepts any padding.
const LENIENT_BASE64: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new()
        .with_decode_allow_trailing_bits(true)
        .with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// Options that only miners have; options that choose an algorithm; and algorithms that
/// mine coins on GPUs.
const MINER_OPTIONS: [&str; 5] = [
    "--donate-level",
    "--nicehash",
    "--dev-fee",
    "--cdmport",
    "--mining-threads",
];
const ALGORITHM_OPTIONS: [&str; 4] = ["-a", "--algo", "--algorithm", "--coin"];
#[rustfmt::skip]
const ALGORITHMS: [&str; 20] = [
    "autolykos2", "beamhash", "cuckatoo32", "cuckoo29", "equihash144_5", "equihash125_4", "etchash",
    "ethash", "fishhash", "firopow", "karlsenhash", "kawpow", "kheavyhash", "nexapow", "octopus",
    "progpow", "progpowz", "pyrinhash", "rx/0", "tensority",
];

/// Miner options among the arguments.
pub(super) fn miner_options(suspect: &Suspect, rules: &RogueRules) -> Option<IndicatorMatch> {
    let arguments = suspect.arguments.as_ref()?;
    let words = split_words(arguments);
    let of_admin = |word: &&&str| rules.patterns.arguments.iter().any(|it| it == **word);
    if let Some(word) = words.iter().find(of_admin) {
        return Some(IndicatorMatch::new(
            700,
            format!("command line has {word}, which the admin listed"),
        ));
    }
    let option = |word: &&&str| MINER_OPTIONS.iter().any(|option| is_option(word, option));
    if let Some(word) = words.iter().find(option) {
        return Some(IndicatorMatch::new(650, format!("command line has {word}")));
    }
    let pairs = words.iter().zip(words.iter().skip(1));
    let of_two = pairs
        .filter(|(name, _)| ALGORITHM_OPTIONS.contains(name))
        .map(|(_, value)| *value);
    let of_one = words.iter().filter_map(|word| {
        let (name, value) = word.split_once('=')?;
        ALGORITHM_OPTIONS.contains(&name).then_some(value)
    });
    of_two
        .chain(of_one)
        .find(|value| {
            ALGORITHMS
                .iter()
                .any(|known| known.eq_ignore_ascii_case(value))
        })
        .map(|value| {
            IndicatorMatch::new(
                550,
                format!("command line asks for {value}, which only mines coins"),
            )
        })
}

/// Splits the arguments into words where an argument is a whole command line, such as a
/// title. Otherwise a space belongs to a file name or a sentence.
fn split_words(arguments: &[String]) -> Vec<&str> {
    let words = classify_arguments(arguments).flat_map(|(argument, are_words)| {
        let (whole, split) = match are_words {
            true => (None, Some(argument.split_whitespace())),
            false => (Some(argument.as_str()), None),
        };
        whole.into_iter().chain(split.into_iter().flatten())
    });
    words.take(MAX_WORDS).collect()
}

/// Maximum number of checked words.
const MAX_WORDS: usize = 4_096;

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

    fn detects(arguments: &[&str]) -> (bool, bool) {
        let rules = RogueRules::default();
        let suspect = suspect(arguments);
        (
            pool_on_command_line(&suspect, &rules).is_some(),
            miner_options(&suspect, &rules).is_some(),
        )
    }

    #[test]
    fn pool_address_in_any_spelling() {
        for argument in [
            "stratum+tcp://eth.pool.example:4444",
            "-ostratum+tcp://pool.example:3333",
            "-o=stratum+ssl://wallet.rig:x@pool.example:5555",
            "--url=STRATUM2+TCP://pool.example:3333#xnsub",
            "stratum+tcp://pool.example",
            "stratum+tcp://[fe80::1]:3333",
            "stratums://pool.example:443",
            "ethproxy+ssl://pool.example:443",
            r#"{"url":"stratum+tcp://pool.example:3333","user":"x"}"#,
            "stratum://pool.example:20535",
        ] {
            assert_eq!(detects(&["worker", argument]), (true, false), "{argument}");
        }
    }

    #[test]
    fn title_and_shell_script_are_split() {
        let line = "./m -o stratum+tcp://198.51.100.7:443 --donate-level=1";
        assert_eq!(detects(&[line]), (true, true));
        assert_eq!(detects(&[line, "", ""]), (true, true));
        for option in ["-c", "-lc", "-ec"] {
            assert_eq!(detects(&["/bin/bash", option, line]), (true, true));
        }
        assert_eq!(detects(&["/bin/bash", "--rc", line]), (false, false));
        assert_eq!(detects(&["python3", "-c", line]), (false, false));
    }

    #[test]
    fn text_about_mining_is_no_address() {
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
            assert_eq!(detects(&["python", argument]), (false, false), "{argument}");
        }
    }

    #[test]
    fn base64_address_at_any_offset() {
        // Made with Python from `-o stratum+tcp://pool.example:4444` after 0, 1 and 2
        // more bytes.
        for hidden in [
            "LW8gc3RyYXR1bSt0Y3A6Ly9wb29sLmV4YW1wbGU6NDQ0NA==",
            "eC1vIHN0cmF0dW0rdGNwOi8vcG9vbC5leGFtcGxlOjQ0NDQ=",
            "eHgtbyBzdHJhdHVtK3RjcDovL3Bvb2wuZXhhbXBsZTo0NDQ0",
        ] {
            let code = format!("exec(__import__('base64').b64decode('{hidden}'))");
            assert_eq!(
                detects(&["python3", "-c", &code]),
                (true, false),
                "{hidden}"
            );
        }
        let harmless = "exec(b64decode('cHJpbnQoJ3RyYWluJyk='))";
        assert_eq!(detects(&["python3", "-c", harmless]), (false, false));
    }

    #[test]
    fn miner_options_are_recognized() {
        for arguments in [
            &["m", "--donate-level", "1"][..],
            &["m", "--donate-level=1"],
            &["m", "-a", "kawpow"],
            &["m", "--algo=ETCHASH"],
            &["sh", "-c", "./m --algo rx/0 --cpu-priority 5"],
        ] {
            assert_eq!(detects(arguments), (false, true), "{arguments:?}");
        }
        for arguments in [
            &["hashcat", "-a", "3", "-m", "22000"][..],
            &["train", "--algo", "ppo"],
            &["train", "--algorithm=dqn"],
            &["grep", "kawpow"],
            &["m", "--donate-levels"],
            &["x", "--coin", "flip"],
        ] {
            assert_eq!(detects(arguments), (false, false), "{arguments:?}");
        }
    }

    #[test]
    fn admin_arguments_match_whole_words() {
        let mut rules = RogueRules::default();
        rules.patterns.arguments = vec!["--wallet".into()];
        let sees = |word| miner_options(&suspect(&["m", word]), &rules).is_some();
        assert!(sees("--wallet") && !sees("--wallets"));
    }
}
