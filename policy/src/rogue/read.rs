//! Reads the admin's file `rogue.toml`. Every mistake is found at once, each with its
//! line; an unknown or wrong key never becomes a silent default. The key names of
//! gpu-kill are kept, but not its lists: `cuda` does not indicate a miner, and a
//! process that calls itself `python` is not necessarily honest.

use super::rules::{AllowEntry, AllowMatch, RogueRules};
use gpukill_proto::rogue::Share;
use gpukill_proto::service::MAX_RULES_BYTES;
use gpukill_proto::setting_keys;
use gpukill_proto::settings::value::{choice_error, number, text};
use gpukill_proto::settings::{self, SettingMistake};
use gpukill_proto::units::{Bytes, Percent};
use std::time::Duration;
use toml::Value;

/// Maximum number of entries in a list.
pub const MAX_LIST_ENTRIES: usize = 1_000;

/// Parses rules.
///
/// # Errors
/// Every mistake, in the order of the lines.
pub fn read(text: &str) -> Result<RogueRules, Vec<SettingMistake>> {
    if text.len() > MAX_RULES_BYTES {
        return Err(vec![SettingMistake {
            line: None,
            what: format!(
                "is {} bytes long: at most {MAX_RULES_BYTES} are allowed",
                text.len()
            ),
        }]);
    }
    let mut rules = RogueRules::default();
    let mut mistakes = settings::apply_file(KEYS, text, &mut rules);
    if mistakes.is_empty() && !rules.thresholds.is_sorted() {
        mistakes.push(SettingMistake {
            line: None,
            what: "scoring.risk_thresholds: low, medium, high and critical must rise in this order"
                .to_owned(),
        });
    }
    match mistakes.is_empty() {
        true => Ok(rules),
        false => Err(mistakes),
    }
}

/// Returns a commented file of all keys with their defaults.
#[must_use]
pub fn print_defaults() -> String {
    settings::print_defaults(KEYS)
}

setting_keys! {
    /// Every key.
    pub const KEYS: RogueRules;

    ["detection"]
    max_memory_usage_gb = "0",
        "A process that constantly holds more device memory, in GiB, is a memory hog. 0\n\
         disables the limit.",
        |rules, value| {
            let gib = decimal(value, 0.0, 1e6)?;
            rules.detection.max_memory = (gib > 0.0).then(|| gib_to_bytes(gib));
            Ok(())
        };
    max_utilization_pct = "95",
        "A process with a higher mean utilization for max_duration_hours may be a\n\
         runaway.",
        |rules, value| decimal(value, 0.0, 100.0)
            .map(|percent| rules.detection.max_utilization = Percent(round_to_u32(percent)));
    max_duration_hours = "24",
        "A process that holds a device idle for longer, or works for longer without end,\n\
         is reported.",
        |rules, value| {
            let hours = decimal(value, 0.0, 1e6)?;
            rules.detection.max_duration = Duration::from_secs_f64(hours * 3_600.0);
            Ok(())
        };
    max_sent_gb = "100",
        "A process may exfiltrate data if its own network namespace sends more, in GiB.",
        |rules, value| decimal(value, 0.0, 1e9)
            .map(|gib| rules.detection.max_sent = gib_to_bytes(gib));
    min_confidence_threshold = "0.5",
        "Verdicts of lower confidence are not reported: from 0 to 1.",
        |rules, value| share(value).map(|share| rules.detection.min_confidence = share);

    ["patterns"]
    crypto_miner_patterns = "[]",
        "Arguments that only miners have, in addition to the known ones: whole words of a\n\
         command line.",
        |rules, value| texts(value).map(|words| rules.patterns.arguments = words);
    suspicious_process_names = "[]",
        "Names of mining programs in addition to the known ones: whole names.",
        |rules, value| texts(value).map(|names| rules.patterns.miners = names);
    miner_sha256 = "[]",
        "SHA-256 of miners' programs: 64 hexadecimal digits each.",
        |rules, value| {
            let hashes = texts(value)?.into_iter();
            let hashes: Vec<String> = hashes.map(|hash| hash.to_ascii_lowercase()).collect();
            let is_one = |hash: &String| {
                hash.len() == 64 && hash.bytes().all(|byte| byte.is_ascii_hexdigit())
            };
            if let Some(wrong) = hashes.iter().find(|hash| !is_one(hash)) {
                return Err(format!(
                    "{wrong:?} is not a SHA-256: it needs 64 hexadecimal digits"
                ));
            }
            rules.patterns.sha256 = hashes;
            Ok(())
        };
    pool_ports = "[]",
        "Ports of mining pools in addition to the known ones.",
        |rules, value| {
            let ports = list(value)?.iter();
            let ports = ports.map(|port| {
                let port = number(port, 1, u64::from(u16::MAX))?;
                u16::try_from(port).map_err(|error| error.to_string())
            });
            rules.patterns.ports = ports.collect::<Result<_, String>>()?;
            Ok(())
        };
    user_whitelist = "[]",
        "Processes of these users are not reported.",
        |rules, value| add_allow_entries(rules, value, |user| AllowEntry {
            by: AllowMatch::User,
            user: Some(user),
        });
    process_whitelist = "[]",
        "Processes that are not reported, by their whole name, or \"name@user\" for one\n\
         user. A process chooses its name, so near-proof (family A) is reported all the\n\
         same.",
        |rules, value| add_allow_entries(rules, value, |it| parse_entry(it, AllowMatch::Process));
    executable_whitelist = "[]",
        "Programs that are not reported, by their path, or \"path@user\". Not applied in\n\
         containers and other user namespaces, where any file may have this path.",
        |rules, value| {
            if let Some(wrong) = texts(value)?.iter().find(|it| !it.starts_with('/')) {
                return Err(format!(
                    "{wrong:?} is not an absolute path: it must begin with /"
                ));
            }
            add_allow_entries(rules, value, |it| parse_entry(it, AllowMatch::Executable))
        };
    image_whitelist = "[]",
        "Containers that are not reported, by their whole image, or \"image@user\".",
        |rules, value| add_allow_entries(rules, value, |it| parse_entry(it, AllowMatch::Image));

    ["scoring.threat_weights"]
    crypto_miner = "1.0",
        "Weight of each threat, from 0 to 1: the score is the confidence times this\n\
         weight.",
        |rules, value| share(value).map(|share| rules.weights[0] = share);
    suspicious_process = "0.8", "", |rules, v| share(v).map(|share| rules.weights[1] = share);
    resource_abuser = "0.6", "", |rules, v| share(v).map(|share| rules.weights[2] = share);
    data_exfiltrator = "0.9", "", |rules, v| share(v).map(|share| rules.weights[3] = share);

    ["scoring.risk_thresholds"]
    critical = "0.9",
        "Lowest score of each risk.",
        |rules, value| share(value).map(|share| rules.thresholds[3] = share);
    high = "0.7", "", |rules, v| share(v).map(|share| rules.thresholds[2] = share);
    medium = "0.5", "", |rules, v| share(v).map(|share| rules.thresholds[1] = share);
    low = "0.3", "", |rules, v| share(v).map(|share| rules.thresholds[0] = share);

    ["metadata"]
    version = "\"1\"",
        "Version of the file format, and time of the last change by gpukillctl.",
        |_, value| match text(value)?.as_str() {
            "1" | "1.0" | "1.0.0" => Ok(()),
            other => Err(choice_error(&format_args!("{other:?}"), &["\"1\""])),
        };
    last_modified = "", "", |_, value| match value {
        Value::Datetime(_) => Ok(()),
        _ => text(value).map(drop),
    };
}

/// Adds entries: several keys contribute to the allow list.
fn add_allow_entries(
    rules: &mut RogueRules,
    value: &Value,
    allowed: impl Fn(String) -> AllowEntry,
) -> Result<(), String> {
    rules.allowed.extend(texts(value)?.into_iter().map(allowed));
    Ok(())
}

/// Parses an entry: `what`, or `what@user`.
fn parse_entry(typed: String, by: impl Fn(String) -> AllowMatch) -> AllowEntry {
    match typed.rsplit_once('@') {
        Some((what, user)) if !what.is_empty() && may_be_user_name(user) => AllowEntry {
            by: by(what.to_owned()),
            user: Some(user.to_owned()),
        },
        Some(_) | None => AllowEntry {
            by: by(typed),
            user: None,
        },
    }
}

/// Whether this may be a user name. The text after the `@` of an image digest contains
/// a colon.
fn may_be_user_name(text: &str) -> bool {
    !text.is_empty() && !text.contains([':', '/', ' '])
}

fn list(value: &Value) -> Result<&[Value], String> {
    let list = value
        .as_array()
        .ok_or_else(|| format!("{value} is not a list"))?;
    match list.len() {
        0..=MAX_LIST_ENTRIES => Ok(list),
        many => Err(format!(
            "has {many} entries: at most {MAX_LIST_ENTRIES} are allowed"
        )),
    }
}

fn texts(value: &Value) -> Result<Vec<String>, String> {
    list(value)?.iter().map(text).collect()
}

/// A number, whole or not.
fn decimal(value: &Value, min: f64, max: f64) -> Result<f64, String> {
    let number = match value {
        // Numbers of this size lose no relevant digits.
        #[allow(clippy::cast_precision_loss)]
        Value::Integer(number) => Some(*number as f64),
        Value::Float(number) => Some(*number),
        _ => None,
    };
    number
        .filter(|number| (min..=max).contains(number))
        .ok_or_else(|| format!("{value} is not a number from {min} to {max}"))
}

fn share(value: &Value) -> Result<Share, String> {
    let share = decimal(value, 0.0, 1.0)?;
    let thousandths = u16::try_from(round_to_u32(share * 1_000.0)).unwrap_or(u16::MAX);
    Ok(Share::from_thousandths(thousandths))
}

/// The nearest whole number.
#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "`decimal` lets nothing below 0 and nothing large through"
)]
fn round_to_u32(number: f64) -> u32 {
    number.round() as u32
}

#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "`decimal` lets nothing below 0 through, and what is too large is the most"
)]
fn gib_to_bytes(gib: f64) -> Bytes {
    Bytes((gib * f64::from(1 << 30)) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn printed_defaults_equal_an_empty_file() {
        assert_eq!(read(&print_defaults()), Ok(RogueRules::default()));
        assert_eq!(read(""), Ok(RogueRules::default()));
    }

    #[test]
    fn gpu_kill_format_is_read() {
        let text = "[detection]\nmax_memory_usage_gb = 20.0\nmax_utilization_pct = 95.0\n\
            max_duration_hours = 24.0\nmin_confidence_threshold = 0.7\n\
            [patterns]\ncrypto_miner_patterns = ['--wallet']\n\
            suspicious_process_names = ['coinworker']\nuser_whitelist = ['admin']\n\
            process_whitelist = ['hashcat', 'crack@bob']\n\
            [scoring.threat_weights]\ncrypto_miner = 0.8\n\
            [scoring.risk_thresholds]\ncritical = 0.95\n";
        let rules = read(text).unwrap();
        assert_eq!(rules.detection.max_memory, Some(Bytes(20 << 30)));
        assert_eq!(rules.detection.max_duration, Duration::from_secs(86_400));
        assert_eq!(rules.detection.min_confidence, Share::from_thousandths(700));
        assert_eq!(rules.patterns.arguments, ["--wallet"]);
        assert_eq!(rules.patterns.miners, ["coinworker"]);
        let allowed = |by, user: Option<&str>| AllowEntry {
            by,
            user: user.map(str::to_owned),
        };
        let expected = [
            allowed(AllowMatch::Process("hashcat".into()), None),
            allowed(AllowMatch::Process("crack".into()), Some("bob")),
            allowed(AllowMatch::User, Some("admin")),
        ];
        let mut actual = rules.allowed.clone();
        actual.sort_by_key(|it| it.by == AllowMatch::User);
        assert_eq!(actual, expected);
        assert_eq!(rules.weights[0], Share::from_thousandths(800));
        assert_eq!(rules.thresholds[3], Share::from_thousandths(950));
        assert_eq!(rules.thresholds[..3], RogueRules::default().thresholds[..3]);
    }

    #[test]
    fn mistakes_have_line_and_suggestion() {
        let text = "[detection]\nmax_utilization_pct = 101\nmin_confidence = 0.5\n\
            [patterns]\nminer_sha256 = ['abc']\npool_ports = [0]\n\
            executable_whitelist = ['hashcat']\nuser_whitelist = 'bob'\n\
            [scoring]\nthreat_weights = 3\n[scoring.risk_thresholds]\nlow = -0.1\n\
            [alerts]\nemail = 'x'\n[metadata]\nversion = '2'\n";
        let mistakes = read(text).unwrap_err();
        let actual: Vec<String> = mistakes.iter().map(ToString::to_string).collect();
        let expected = [
            "line 2: detection.max_utilization_pct: 101 is not a number from 0 to 100",
            "line 3: unknown key detection.min_confidence",
            "line 5: patterns.miner_sha256: \"abc\" is not a SHA-256: it needs 64 hexadecimal \
             digits",
            "line 6: patterns.pool_ports: 0 is not a whole number from 1 to 65535",
            "line 7: patterns.executable_whitelist: \"hashcat\" is not an absolute path: it must \
             begin with /",
            "line 8: patterns.user_whitelist: \"bob\" is not a list",
            "line 10: scoring.threat_weights is a section: write [scoring.threat_weights]",
            "line 12: scoring.risk_thresholds.low: -0.1 is not a number from 0 to 1",
            "line 13: unknown key alerts",
            "line 16: metadata.version: \"2\" is not valid: write \"1\"",
        ];
        assert_eq!(actual, expected);
    }

    #[test]
    fn risk_thresholds_must_rise() {
        let text = "[scoring.risk_thresholds]\nlow = 0.8\n";
        let mistakes = read(text).unwrap_err();
        assert!(
            mistakes[0].what.contains("rise in this order"),
            "{mistakes:?}"
        );
    }

    #[test]
    fn large_and_non_numeric_values_are_refused() {
        assert!(read(&"#".repeat(MAX_RULES_BYTES + 1)).is_err());
        let many: Vec<String> = (0..=MAX_LIST_ENTRIES)
            .map(|at| format!("'u{at}'"))
            .collect();
        assert!(
            read(&format!(
                "[patterns]\nuser_whitelist = [{}]\n",
                many.join(", ")
            ))
            .is_err()
        );
        for number in ["nan", "inf", "-inf", "1e300", "-1", "'1'", "true"] {
            let text = format!("[detection]\nmax_memory_usage_gb = {number}\n");
            assert!(read(&text).is_err(), "{number}");
        }
    }

    #[test]
    fn image_digest_is_no_user() {
        let image = "lab/crack@sha256:0123";
        let rules = read(&format!("[patterns]\nimage_whitelist = ['{image}']\n")).unwrap();
        assert_eq!(rules.allowed[0].user, None);
        assert_eq!(rules.allowed[0].by, AllowMatch::Image(image.into()));
    }
}
