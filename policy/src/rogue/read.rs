//! Reads the admin's file `rogue.toml`. Every mistake is found at once, each with its
//! line; nothing unknown or wrong ever becomes a silent default. The names of what
//! gpu-kill had are kept, but not its lists: `cuda` is no sign of a miner, and a process
//! that calls itself `python` no honest one.

use super::rules::{Allowed, AllowedBy, Rules};
use gpukill_proto::rogue::Share;
use gpukill_proto::settings::value::{number, text};
use gpukill_proto::settings::{self, Key, Mistake};
use gpukill_proto::units::{Bytes, Percent};
use std::time::Duration;
use toml::Value;

/// The largest file, in bytes.
pub const LARGEST: usize = 1 << 20;

/// The most entries of one list.
pub const MOST: usize = 1_000;

/// What a text says.
///
/// # Errors
/// Every mistake in it, in the order of their lines.
pub fn read(text: &str) -> Result<Rules, Vec<Mistake>> {
    if text.len() > LARGEST {
        return Err(vec![Mistake {
            line: None,
            what: format!("is {} bytes long: at most {LARGEST} are read", text.len()),
        }]);
    }
    let mut rules = Rules::default();
    let mut mistakes = settings::apply_file(KEYS, text, &mut rules);
    if mistakes.is_empty() && !rules.thresholds.is_sorted() {
        mistakes.push(Mistake {
            line: None,
            what: "scoring.risk_thresholds: low, medium, high and critical rise in this order"
                .to_owned(),
        });
    }
    match mistakes.is_empty() {
        true => Ok(rules),
        false => Err(mistakes),
    }
}

/// A commented file of all keys with their defaults.
#[must_use]
pub fn print_defaults() -> String {
    settings::print_defaults(KEYS)
}

const fn key(
    section: &'static str,
    name: &'static str,
    default: &'static str,
    help: &'static str,
    set: fn(&mut Rules, &Value) -> Result<(), String>,
) -> Key<Rules> {
    Key {
        section,
        name,
        variable: "",
        default,
        help,
        set,
    }
}

const WEIGHTS: &str = "scoring.threat_weights";
const THRESHOLDS: &str = "scoring.risk_thresholds";

/// Every key.
pub const KEYS: &[Key<Rules>] = &[
    key(
        "detection",
        "max_memory_usage_gb",
        "0",
        "Who holds more device memory, GiB, all the time is a memory hog; 0: nobody is.",
        |rules, value| {
            let gib = decimal(value, 0.0, 1e6)?;
            rules.detection.max_memory = (gib > 0.0).then(|| bytes(gib));
            Ok(())
        },
    ),
    key(
        "detection",
        "max_utilization_pct",
        "95",
        "Who works harder in the mean, for max_duration_hours, may have run away.",
        |rules, value| {
            let percent = decimal(value, 0.0, 100.0)?;
            rules.detection.max_utilization = Percent(whole(percent));
            Ok(())
        },
    ),
    key(
        "detection",
        "max_duration_hours",
        "24",
        "Who holds a device for longer and does nothing, or never stops, is told of.",
        |rules, value| {
            let hours = decimal(value, 0.0, 1e6)?;
            rules.detection.max_duration = Duration::from_secs_f64(hours * 3_600.0);
            Ok(())
        },
    ),
    key(
        "detection",
        "max_sent_gb",
        "100",
        "Who sends more, GiB, out of a network namespace of their own may carry data away.",
        |rules, value| {
            rules.detection.max_sent = bytes(decimal(value, 0.0, 1e9)?);
            Ok(())
        },
    ),
    key(
        "detection",
        "min_confidence_threshold",
        "0.5",
        "What is less sure is not told: from 0 to 1.",
        |rules, value| {
            rules.detection.min_confidence = share(value)?;
            Ok(())
        },
    ),
    key(
        "patterns",
        "crypto_miner_patterns",
        "[]",
        "Arguments that miners have and nothing else, besides those that are known: whole\n\
         words of a command line.",
        |rules, value| {
            rules.patterns.arguments = texts(value)?;
            Ok(())
        },
    ),
    key(
        "patterns",
        "suspicious_process_names",
        "[]",
        "Names of miners' programs besides those that are known: whole names.",
        |rules, value| {
            rules.patterns.miners = texts(value)?;
            Ok(())
        },
    ),
    key(
        "patterns",
        "miner_sha256",
        "[]",
        "SHA-256 of miners' programs: 64 hexadecimal digits each.",
        |rules, value| {
            let hashes = texts(value)?
                .into_iter()
                .map(|hash| hash.to_ascii_lowercase());
            let hashes: Vec<String> = hashes.collect();
            let is_one = |hash: &String| {
                hash.len() == 64 && hash.bytes().all(|byte| byte.is_ascii_hexdigit())
            };
            if let Some(wrong) = hashes.iter().find(|hash| !is_one(hash)) {
                return Err(format!("{wrong:?} is no SHA-256: 64 hexadecimal digits"));
            }
            rules.patterns.sha256 = hashes;
            Ok(())
        },
    ),
    key(
        "patterns",
        "pool_ports",
        "[]",
        "Ports of mining pools besides those that are known.",
        |rules, value| {
            let ports = list(value)?.iter();
            let ports = ports.map(|port| {
                let port = number(port, 1, u64::from(u16::MAX))?;
                u16::try_from(port).map_err(|error| error.to_string())
            });
            rules.patterns.ports = ports.collect::<Result<_, String>>()?;
            Ok(())
        },
    ),
    key(
        "patterns",
        "user_whitelist",
        "[]",
        "Users of whom nothing is told.",
        |rules, value| {
            allow(rules, value, |user| Allowed {
                by: AllowedBy::User,
                user: Some(user),
            })
        },
    ),
    key(
        "patterns",
        "process_whitelist",
        "[]",
        "Processes of which looks are not told, by their whole name, or \"name@user\" for one\n\
         user's. A process chooses its name: what is nearly a proof is told all the same.",
        |rules, value| allow(rules, value, |it| of_user(it, AllowedBy::Process)),
    ),
    key(
        "patterns",
        "executable_whitelist",
        "[]",
        "Programs of which nothing is told, by their path, or \"path@user\"; not in containers,\n\
         nor where somebody has a user namespace of their own: any file may lie there.",
        |rules, value| {
            if let Some(wrong) = texts(value)?.iter().find(|it| !it.starts_with('/')) {
                return Err(format!("{wrong:?} is no path: it begins with /"));
            }
            allow(rules, value, |it| of_user(it, AllowedBy::Executable))
        },
    ),
    key(
        "patterns",
        "image_whitelist",
        "[]",
        "Containers of which nothing is told, by their whole image, or \"image@user\".",
        |rules, value| allow(rules, value, |it| of_user(it, AllowedBy::Image)),
    ),
    key(
        WEIGHTS,
        "crypto_miner",
        "1.0",
        "How bad each is, from 0 to 1: a score is confidence times this.",
        |rules, value| weigh(rules, 0, value),
    ),
    key(WEIGHTS, "suspicious_process", "0.8", "", |rules, value| {
        weigh(rules, 1, value)
    }),
    key(WEIGHTS, "resource_abuser", "0.6", "", |rules, value| {
        weigh(rules, 2, value)
    }),
    key(WEIGHTS, "data_exfiltrator", "0.9", "", |rules, value| {
        weigh(rules, 3, value)
    }),
    key(
        THRESHOLDS,
        "critical",
        "0.9",
        "From which score on a risk is called so.",
        |rules, value| calls(rules, 3, value),
    ),
    key(THRESHOLDS, "high", "0.7", "", |rules, value| {
        calls(rules, 2, value)
    }),
    key(THRESHOLDS, "medium", "0.5", "", |rules, value| {
        calls(rules, 1, value)
    }),
    key(THRESHOLDS, "low", "0.3", "", |rules, value| {
        calls(rules, 0, value)
    }),
    key(
        "metadata",
        "version",
        "\"1\"",
        "Of this shape of a file, and when it was changed last by gpukillctl.",
        |_, value| match text(value)?.as_str() {
            "1" | "1.0" | "1.0.0" => Ok(()),
            other => Err(format!("{other:?} is not known here: \"1\" is")),
        },
    ),
    key(
        "metadata",
        "last_modified",
        "",
        "",
        |_, value| match value {
            Value::Datetime(_) => Ok(()),
            _ => text(value).map(drop),
        },
    ),
];

fn weigh(rules: &mut Rules, at: usize, value: &Value) -> Result<(), String> {
    rules.weights[at] = share(value)?;
    Ok(())
}

fn calls(rules: &mut Rules, at: usize, value: &Value) -> Result<(), String> {
    rules.thresholds[at] = share(value)?;
    Ok(())
}

/// Takes the place of nothing: several lists are of whom is allowed.
fn allow(
    rules: &mut Rules,
    value: &Value,
    allowed: impl Fn(String) -> Allowed,
) -> Result<(), String> {
    rules.allowed.extend(texts(value)?.into_iter().map(allowed));
    Ok(())
}

/// `what`, or `what@user`.
fn of_user(typed: String, by: impl Fn(String) -> AllowedBy) -> Allowed {
    match typed.rsplit_once('@') {
        Some((what, user)) if !what.is_empty() && is_user(user) => Allowed {
            by: by(what.to_owned()),
            user: Some(user.to_owned()),
        },
        Some(_) | None => Allowed {
            by: by(typed),
            user: None,
        },
    }
}

/// Whether this may be a user's name: what stands after the `@` of an image's digest has
/// a colon.
fn is_user(text: &str) -> bool {
    !text.is_empty() && !text.contains([':', '/', ' '])
}

fn list(value: &Value) -> Result<&[Value], String> {
    let list = value
        .as_array()
        .ok_or_else(|| format!("{value} is no list"))?;
    match list.len() {
        0..=MOST => Ok(list),
        many => Err(format!("has {many} entries: at most {MOST} are read")),
    }
}

fn texts(value: &Value) -> Result<Vec<String>, String> {
    list(value)?.iter().map(text).collect()
}

/// A number, whole or not.
fn decimal(value: &Value, least: f64, most: f64) -> Result<f64, String> {
    let number = match value {
        // Numbers as large as this lose nothing that counts.
        #[allow(clippy::cast_precision_loss)]
        Value::Integer(number) => Some(*number as f64),
        Value::Float(number) => Some(*number),
        _ => None,
    };
    number
        .filter(|number| (least..=most).contains(number))
        .ok_or_else(|| format!("{value} is not a number from {least} to {most}"))
}

fn share(value: &Value) -> Result<Share, String> {
    let share = decimal(value, 0.0, 1.0)?;
    let thousandths = u16::try_from(whole(share * 1_000.0)).unwrap_or(u16::MAX);
    Ok(Share::thousandths(thousandths))
}

/// The nearest whole number.
#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "`decimal` lets nothing below 0 and nothing large through"
)]
fn whole(number: f64) -> u32 {
    number.round() as u32
}

#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "`decimal` lets nothing below 0 through, and what is too large is the most"
)]
fn bytes(gib: f64) -> Bytes {
    Bytes((gib * f64::from(1 << 30)) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_printed_defaults_are_the_defaults_and_an_empty_file_too() {
        assert_eq!(read(&print_defaults()), Ok(Rules::default()));
        assert_eq!(read(""), Ok(Rules::default()));
    }

    #[test]
    fn the_shape_that_gpu_kill_had_is_read() {
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
        assert_eq!(rules.detection.min_confidence, Share::thousandths(700));
        assert_eq!(rules.patterns.arguments, ["--wallet"]);
        assert_eq!(rules.patterns.miners, ["coinworker"]);
        let allowed = |by, user: Option<&str>| Allowed {
            by,
            user: user.map(str::to_owned),
        };
        let expected = [
            allowed(AllowedBy::Process("hashcat".into()), None),
            allowed(AllowedBy::Process("crack".into()), Some("bob")),
            allowed(AllowedBy::User, Some("admin")),
        ];
        let mut told = rules.allowed.clone();
        told.sort_by_key(|it| it.by == AllowedBy::User);
        assert_eq!(told, expected);
        assert_eq!(rules.weights[0], Share::thousandths(800));
        assert_eq!(rules.thresholds[3], Share::thousandths(950));
        assert_eq!(rules.thresholds[..3], Rules::default().thresholds[..3]);
    }

    #[test]
    fn every_mistake_is_told_with_its_line_and_what_was_meant() {
        let text = "[detection]\nmax_utilization_pct = 101\nmin_confidence = 0.5\n\
            [patterns]\nminer_sha256 = ['abc']\npool_ports = [0]\n\
            executable_whitelist = ['hashcat']\nuser_whitelist = 'bob'\n\
            [scoring]\nthreat_weights = 3\n[scoring.risk_thresholds]\nlow = -0.1\n\
            [alerts]\nemail = 'x'\n[metadata]\nversion = '2'\n";
        let mistakes = read(text).unwrap_err();
        let told: Vec<String> = mistakes.iter().map(ToString::to_string).collect();
        let expected = [
            "line 2: detection.max_utilization_pct: 101 is not a number from 0 to 100",
            "line 3: unknown key detection.min_confidence",
            "line 5: patterns.miner_sha256: \"abc\" is no SHA-256: 64 hexadecimal digits",
            "line 6: patterns.pool_ports: 0 is not a whole number from 1 to 65535",
            "line 7: patterns.executable_whitelist: \"hashcat\" is no path: it begins with /",
            "line 8: patterns.user_whitelist: \"bob\" is no list",
            "line 10: scoring.threat_weights is a section: write [scoring.threat_weights]",
            "line 12: scoring.risk_thresholds.low: -0.1 is not a number from 0 to 1",
            "line 13: unknown key alerts",
            "line 16: metadata.version: \"2\" is not known here: \"1\" is",
        ];
        assert_eq!(told, expected);
    }

    #[test]
    fn risks_rise() {
        let text = "[scoring.risk_thresholds]\nlow = 0.8\n";
        let mistakes = read(text).unwrap_err();
        assert!(
            mistakes[0].what.contains("rise in this order"),
            "{mistakes:?}"
        );
    }

    #[test]
    fn what_is_too_large_or_no_number_is_refused() {
        assert!(read(&"#".repeat(LARGEST + 1)).is_err());
        let many: Vec<String> = (0..=MOST).map(|at| format!("'u{at}'")).collect();
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
    fn a_digest_of_an_image_is_no_user() {
        let image = "lab/crack@sha256:0123";
        let rules = read(&format!("[patterns]\nimage_whitelist = ['{image}']\n")).unwrap();
        assert_eq!(rules.allowed[0].user, None);
        assert_eq!(rules.allowed[0].by, AllowedBy::Image(image.into()));
    }
}
