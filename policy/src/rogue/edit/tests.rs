//! Tests of edits of the rogue rules: the resulting text, and what is refused.

mod properties;

use super::*;

const NOW: Timestamp = Timestamp(1_795_369_200_000);

const BEFORE: &str = include_str!("tests/before.toml");

fn set(path: &str, value: &str) -> RogueEdit {
    RogueEdit::SetKey {
        path: path.to_owned(),
        value: value.to_owned(),
    }
}

fn allow(by: AllowKind, what: &str) -> RogueEdit {
    RogueEdit::Allow(by, what.to_owned())
}

fn disallow(by: AllowKind, what: &str) -> RogueEdit {
    RogueEdit::Disallow(by, what.to_owned())
}

fn edited(text: &str, change: &RogueEdit) -> String {
    edit(text, change, NOW).unwrap_or_else(|error| panic!("{change:?}: {error}"))
}

/// The lines that an edit removes and adds, without the time of the change.
fn changed_lines(text: &str, change: &RogueEdit) -> Vec<String> {
    let after = edited(text, change);
    let moment = "last_modified = \"2026-11-22T17:40:00.000Z\"";
    assert!(
        after.lines().any(|line| line.starts_with(moment)),
        "{after}"
    );
    let lines = |text: &str| -> Vec<String> {
        let lines = text
            .lines()
            .filter(|line| !line.starts_with("last_modified"));
        lines.map(str::to_owned).collect()
    };
    let (before, after) = (lines(text), lines(&after));
    let difference = similar::TextDiff::from_slices(
        &before.iter().map(String::as_str).collect::<Vec<_>>(),
        &after.iter().map(String::as_str).collect::<Vec<_>>(),
    );
    let changes = difference.iter_all_changes();
    let changes = changes.filter(|it| it.tag() != similar::ChangeTag::Equal);
    changes
        .map(|it| format!("{}{}", it.tag(), it.value()))
        .collect()
}

fn refusal(text: &str, change: &RogueEdit) -> String {
    match edit(text, change, NOW) {
        Ok(text) => panic!("{change:?} makes\n{text}"),
        Err(error) => error.to_string(),
    }
}

#[test]
fn edit_keeps_all_other_text() {
    use AllowKind::{Executable, Image, Process, User};
    let cases: &[(RogueEdit, &[&str])] = &[
        (
            set("detection.max_memory_usage_gb", "20"),
            &[
                "-max_memory_usage_gb   = 16.5   # since May",
                "+max_memory_usage_gb   = 20   # since May",
            ],
        ),
        (
            set("min_confidence_threshold", "0.7"),
            &["+min_confidence_threshold = 0.7"],
        ),
        (
            set("detection.max_memory_usage_gb", ""),
            &[
                "-# As much as one card has.",
                "-max_memory_usage_gb   = 16.5   # since May",
            ],
        ),
        (
            set("patterns.crypto_miner_patterns", "--wallet, kawpow"),
            &["+crypto_miner_patterns = [\"--wallet\", \"kawpow\"]"],
        ),
        (
            set("suspicious_process_names", "1001"),
            &["+suspicious_process_names = [\"1001\"]"],
        ),
        (
            set("patterns.pool_ports", "3333,4444"),
            &["-pool_ports = [3333]", "+pool_ports = [3333, 4444]"],
        ),
        (
            set("scoring.threat_weights.resource_abuser", "0"),
            &["+[scoring.threat_weights]", "+resource_abuser = 0", "+"],
        ),
        (
            set("scoring.risk_thresholds.low", "0.4"),
            &["-low = 0.3", "+low = 0.4"],
        ),
        (
            allow(User, "eve"),
            &[
                "-user_whitelist = [ \"bob\" ] # on leave",
                "+user_whitelist = [ \"bob\", \"eve\" ] # on leave",
            ],
        ),
        (
            allow(Process, "nanominer@eve"),
            &["+    \"nanominer@eve\","],
        ),
        (
            allow(Executable, "/opt/a b"),
            &["+executable_whitelist = [\"/opt/a b\"]"],
        ),
        (
            allow(Image, "img:1"),
            &["-image_whitelist = []", "+image_whitelist = [\"img:1\"]"],
        ),
        (
            disallow(Process, "hashcat"),
            &["-    # Ours.", "-    \"hashcat\", # for audits"],
        ),
        (
            disallow(Process, "crack@bob"),
            &["-    \"crack@bob\", # his"],
        ),
        (
            disallow(User, "bob"),
            &[
                "-user_whitelist = [ \"bob\" ] # on leave",
                "+user_whitelist = [ ] # on leave",
            ],
        ),
    ];
    for (change, expected) in cases {
        assert_eq!(changed_lines(BEFORE, change), *expected, "{change:?}");
    }
}

#[test]
fn list_comments_stay_with_their_items() {
    let list = |items: &str| format!("[patterns]\nuser_whitelist = [{items}]\n");
    let users = |text: &str| {
        let from = text.find('=').unwrap() + 2;
        text[from..text.find("\n\n[metadata]").unwrap()].to_owned()
    };
    let add = |user| allow(AllowKind::User, user);
    let remove = |user| disallow(AllowKind::User, user);
    for (before, change, after) in [
        ("'a'", add("b"), "['a', \"b\"]"),
        ("'a', # of a\n", add("b"), "['a', # of a\n\"b\",\n]"),
        ("\n  'a' # of a\n", add("b"), "[\n  'a', # of a\n  \"b\"\n]"),
        (
            "\n  # x\n  'a',\n  # end\n",
            add("b"),
            "[\n  # x\n  'a',\n  \"b\",\n  # end\n]",
        ),
        ("'a', 'b'", remove("a"), "['b']"),
        ("'a', 'b'", remove("b"), "['a']"),
        ("'a', 'b', 'a'", remove("a"), "['b']"),
        (
            "\n 'a', # of a\n 'b', # of b\n",
            remove("a"),
            "[\n 'b', # of b\n]",
        ),
        (
            "\n 'a', # of a\n 'b', # of b\n",
            remove("b"),
            "[\n 'a', # of a\n]",
        ),
        (
            "\n 'a', # of a\n 'b' # of b\n",
            remove("b"),
            "[\n 'a' # of a\n]",
        ),
        ("\n 'a', # of a\n 'b']#", remove("b"), "[\n 'a' # of a\n]#]"),
        ("\n 'a', 'b',\n 'c'\n", remove("a"), "[\n 'b',\n 'c'\n]"),
        ("\n 'a', 'b',\n 'c'\n", remove("b"), "[\n 'a',\n 'c'\n]"),
        ("\n 'a',\n", remove("a"), "[\n]"),
        (" # none yet\n", add("a"), "[ # none yet\n\"a\"\n]"),
        (" # none yet\n'a'\n", remove("a"), "[ # none yet\n]"),
    ] {
        let text = edited(&list(before), &change);
        assert_eq!(users(&text), after, "{before:?}, {change:?}");
    }
}

#[test]
fn missing_file_is_created_with_time() {
    let after = edited("", &allow(AllowKind::Process, "hashcat@bob"));
    let expected = format!(
        "{HEADER}[patterns]\nprocess_whitelist = [\"hashcat@bob\"]\n\n\
         [metadata]\nversion = \"1\"\nlast_modified = \"2026-11-22T17:40:00.000Z\"\n"
    );
    assert_eq!(after, expected);
    let later = edit(&after, &set("patterns.pool_ports", "3333"), Timestamp(0)).unwrap();
    assert!(
        later.contains("last_modified = \"1970-01-01T00:00:00.000Z\"\n"),
        "{later}"
    );
}

#[test]
fn no_change_keeps_last_modified() {
    let before = edited("", &set("detection.max_sent_gb", "5"));
    let later = Timestamp(NOW.0 + 1_000);
    let same = |change: &RogueEdit| edit(&before, change, later).unwrap();
    assert_eq!(same(&set("detection.max_sent_gb", "5")), before);
    assert_eq!(same(&RogueEdit::Replace(before.clone())), before);
    // An exported text, or one without a time, counts as the same.
    let elsewhere = before.replace("17:40", "10:20");
    assert_eq!(same(&RogueEdit::Replace(elsewhere)), before);
    let bare = before.split("\n[metadata]").next().unwrap();
    assert_eq!(same(&RogueEdit::Replace(bare.to_owned())), before);
    assert_ne!(same(&set("detection.max_sent_gb", "6")), before);
}

#[test]
fn line_endings_and_bom_stay() {
    let text = "\u{feff}# a\r\n[patterns]\r\nuser_whitelist = [\r\n  'a', # of a\r\n]\r\n";
    let after = edited(text, &allow(AllowKind::User, "b"));
    assert_eq!(
        after,
        "\u{feff}# a\r\n[patterns]\r\nuser_whitelist = [\r\n  'a', # of a\r\n  \"b\",\r\n]\r\n\r\n\
         [metadata]\r\nversion = \"1\"\r\nlast_modified = \"2026-11-22T17:40:00.000Z\"\r\n"
    );
}

#[test]
fn inline_tables_are_edited() {
    let text =
        "scoring = { threat_weights = { crypto_miner = 0.9 } }\npatterns.user_whitelist = ['a']\n";
    let after = edited(text, &set("scoring.threat_weights.data_exfiltrator", "0.5"));
    let after = edited(&after, &set("scoring.risk_thresholds.low", "0.2"));
    let after = edited(&after, &allow(AllowKind::Image, "img"));
    let rules = read::read(&after).unwrap();
    assert_eq!(
        rules.weights.map(gpukill_proto::rogue::Share::get),
        [900, 800, 600, 500]
    );
    assert_eq!((rules.thresholds[0].get(), rules.allowed.len()), (200, 2));
}

#[test]
fn invalid_results_are_refused() {
    use AllowKind::{Executable, Process, User};
    for (change, expected) in [
        (
            set("detection.max_utilization_pct", "101"),
            "the new rules would have mistakes\nline 6: detection.max_utilization_pct: 101 is not \
            a \
             number from 0 to 100",
        ),
        (
            set("scoring.risk_thresholds.low", "0.8"),
            "the new rules would have mistakes\nscoring.risk_thresholds: low, medium, high and \
            critical must rise in this order",
        ),
        (
            set("detection.max_utilisation_pct", "90"),
            "there is no key \"detection.max_utilisation_pct\"; did you mean \
             detection.max_utilization_pct?",
        ),
        (
            set("pool_port", "90"),
            "there is no key \"pool_port\"; did you mean patterns.pool_ports?",
        ),
        (set("scoring", "1"), "there is no key \"scoring\""),
        (
            set("detection.max_sent_gb", ""),
            "there is no key \"detection.max_sent_gb\" in the file",
        ),
        (
            allow(Process, "hashcat"),
            "process \"hashcat\" is allowed already",
        ),
        (
            allow(Executable, "hashcat"),
            "the new rules would have mistakes\nline 18: patterns.executable_whitelist: \
            \"hashcat\" \
             is not an absolute path: it must begin with /",
        ),
        (
            allow(User, ""),
            "the new rules would have mistakes\nline 12: patterns.user_whitelist: is empty",
        ),
        (
            disallow(Process, "hashcta"),
            "there is no allowed process \"hashcta\"; did you mean hashcat?",
        ),
        (
            disallow(Executable, "/x"),
            "there is no allowed executable \"/x\"",
        ),
        (
            RogueEdit::Replace("[detection]\nmax = 1\n".into()),
            "the new rules would have mistakes\nline 2: unknown key detection.max",
        ),
    ] {
        assert_eq!(refusal(BEFORE, &change), expected, "{change:?}");
    }
    assert_eq!(
        refusal("[detection]\nmax = 1\n", &allow(User, "a")),
        "the current rules have mistakes\nline 2: unknown key detection.max"
    );
    // Complete rules replace broken ones.
    let mended = edited("max =", &RogueEdit::Replace(BEFORE.into()));
    assert_eq!(read::read(&mended), read::read(BEFORE));
}

#[test]
fn invalid_item_reads_as_in_a_file() {
    let wrong = |path: &str, typed: &str| {
        let actual = refusal("", &set(path, typed));
        let (_, mistake) = actual.rsplit_once(&format!("{path}: ")).unwrap();
        mistake.to_owned()
    };
    let port = |what: &str| format!("{what} is not a whole number from 1 to 65535");
    for (typed, item) in [
        ("70000", "70000"),
        ("-1", "-1"),
        ("3333,70000", "70000"),
        ("70000, stratum", "70000"),
        ("stratum", "\"stratum\""),
        ("3333.5", "\"3333.5\""),
        ("[3333, 70000]", "70000"),
    ] {
        assert_eq!(wrong("patterns.pool_ports", typed), port(item), "{typed}");
    }
    let right = "ab".repeat(32);
    let hash = |what: &str| format!("\"{what}\" is not a SHA-256: it needs 64 hexadecimal digits");
    for (typed, item) in [
        ("deadbeef", "deadbeef"),
        ("1234", "1234"),
        (&format!("{right},deadbeef"), "deadbeef"),
        (&format!("{right}, 12"), "12"),
    ] {
        assert_eq!(wrong("patterns.miner_sha256", typed), hash(item), "{typed}");
    }
    let path = wrong("patterns.executable_whitelist", "hashcat");
    assert_eq!(
        path,
        "\"hashcat\" is not an absolute path: it must begin with /"
    );
    // A key without a list does not get one.
    let number = wrong("detection.max_sent_gb", "much");
    assert_eq!(number, "\"much\" is not a number from 0 to 1000000000");
}

#[test]
fn unknown_key_reads_as_in_a_file() {
    for (section, name) in [
        ("patterns", "pool_port"),
        ("detection", "pool_ports"),
        ("scoring", "critical"),
        ("scoring.threat_weights", "crypto_miners"),
        ("detection", "crypto_miner"),
        ("detection", "quite_another"),
    ] {
        let typed = format!("{section}.{name}");
        let mistakes = read::read(&format!("[{section}]\n{name} = 1\n")).unwrap_err();
        let suggestion = |text: &str| text.split_once("did you mean").map(|(_, it)| it.to_owned());
        let in_edit = suggestion(&refusal("", &set(&typed, "1")));
        let in_file = mistakes[0].to_string();
        let in_file = suggestion(&in_file).or_else(|| {
            // In a file, the table of a key of another table is enough.
            let (_, table) = in_file.split_once("belongs in [")?;
            Some(format!(" {}.{name}?", table.trim_end_matches(']')))
        });
        assert_eq!(in_edit, in_file, "{typed}");
        assert_eq!(in_edit.is_none(), name == "quite_another", "{typed}");
    }
}
