//! What a process is told on its command line.

use super::Seen;
use crate::rogue::rules::Rules;
use crate::rogue::suspect::Suspect;

/// How the address of a pool begins, as miners spell it.
const SCHEMES: [&str; 9] = [
    "stratum+tcp://",
    "stratum+ssl://",
    "stratum+tls://",
    "stratum+udp://",
    "stratum1+tcp://",
    "stratum1+ssl://",
    "stratum2+tcp://",
    "stratum2+ssl://",
    "stratum://",
];

/// Parts of such addresses in base64, wherever in a longer text they begin: the six bits
/// that a neighbour has a share in are left out.
const ENCODED: [&str; 18] = [
    "c3RyYXR1bSt0Y3A6Ly",
    "N0cmF0dW0rdGNwOi8v",
    "zdHJhdHVtK3RjcDovL",
    "c3RyYXR1bStzc2w6Ly",
    "N0cmF0dW0rc3NsOi8v",
    "zdHJhdHVtK3NzbDovL",
    "c3RyYXR1bSt1ZHA6Ly",
    "N0cmF0dW0rdWRwOi8v",
    "zdHJhdHVtK3VkcDovL",
    "c3RyYXR1bTIrdGNwOi8v",
    "N0cmF0dW0yK3RjcDovL",
    "zdHJhdHVtMit0Y3A6Ly",
    "c3RyYXR1bSt0bHM6Ly",
    "N0cmF0dW0rdGxzOi8v",
    "zdHJhdHVtK3RsczovL",
    "LS1kb25hdGUtbGV2ZW",
    "0tZG9uYXRlLWxldmVs",
    "tLWRvbmF0ZS1sZXZlb",
];

/// The address of a pool among its arguments, plain or in base64.
pub(super) fn pool(suspect: &Suspect, _: &Rules) -> Option<Seen> {
    let arguments = suspect.arguments.as_ref()?;
    let plain = arguments.iter().find_map(|argument| address(argument));
    if let Some(address) = plain {
        return Some(Seen::new(
            650,
            format!("command line names a pool: {address}"),
        ));
    }
    let hides = |argument: &&String| ENCODED.iter().any(|part| argument.contains(part));
    arguments
        .iter()
        .find(hides)
        .map(|_| Seen::new(650, "command line hides the address of a pool in base64"))
}

/// The address of a pool in an argument: a scheme, and a host and port after it.
fn address(argument: &str) -> Option<&str> {
    let lower = argument.to_ascii_lowercase();
    SCHEMES.iter().find_map(|scheme| {
        let at = lower.find(scheme)?;
        let address = argument[at..]
            .split([' ', '"', '\'', ',', ';', '&'])
            .next()?;
        let host = &address[scheme.len()..];
        // The wallet may stand before the host, as in a URI.
        let host = host.rsplit('@').next()?;
        let (name, port) = host.split_once(':')?;
        let port = port.bytes().take_while(u8::is_ascii_digit).count();
        (!name.is_empty() && port > 0).then_some(address)
    })
}

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

/// Its arguments, and the words of one that is a whole command line: a title, or what a
/// shell is to run.
fn words(arguments: &[String]) -> Vec<&str> {
    let split = arguments.iter().flat_map(|it| it.split_whitespace());
    split.take(MOST_WORDS).collect()
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

    fn told(arguments: &[&str]) -> Suspect {
        Suspect {
            arguments: Some(arguments.iter().map(|it| (*it).to_owned()).collect()),
            ..Suspect::default()
        }
    }

    fn sees(arguments: &[&str]) -> (bool, bool) {
        let rules = Rules::default();
        let suspect = told(arguments);
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
            "./m -o stratum+tcp://198.51.100.7:443 -u me",
            "stratum://pool.example:20535",
        ] {
            assert_eq!(sees(&["worker", argument]), (true, false), "{argument}");
        }
    }

    #[test]
    fn words_about_mining_are_no_address() {
        for argument in [
            "stratum",
            "stratum+tcp",
            "stratum+tcp://",
            "stratum+tcp://pool.example",
            "stratum+tcp://:4444",
            "http://pool.example:8080",
            "stratum_sampling.py",
            "--pattern=stratum\\+tcp://[^:]+:port",
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
        let sees = |word| options(&told(&["m", word]), &rules).is_some();
        assert!(sees("--wallet") && !sees("--wallets"));
    }
}
