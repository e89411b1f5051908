//! Every key works from every source, and the sources have their order.

use super::*;
use clap::Parser as _;
use gpukill_proto::settings::defaults;

/// A key: its flag, variable and line, each with a different value, and the resulting settings.
struct Case {
    flag: (&'static str, &'static str),
    variable: (&'static str, &'static str, &'static str),
    line: (&'static str, &'static str),
    default: &'static str,
    shown: fn(&Settings) -> String,
}

const CASES: [Case; 14] = [
    Case {
        flag: ("list --log-level debug", "Debug"),
        variable: ("GPUKILL_LOG_LEVEL", "warn", "Warn"),
        line: ("log_level = \"error\"", "Error"),
        default: "Info",
        shown: |s| format!("{:?}", s.log_level),
    },
    Case {
        flag: ("list -o csv", "Csv"),
        variable: ("GPUKILL_OUTPUT_FORMAT", "json", "Json"),
        line: ("output_format = \"ndjson\"", "Ndjson"),
        default: "Table",
        shown: |s| format!("{:?}", s.output_format),
    },
    Case {
        flag: ("list --color always", "Always"),
        variable: ("GPUKILL_USE_COLORS", "false", "Never"),
        line: ("use_colors = false", "Never"),
        default: "Auto",
        shown: |s| format!("{:?}", s.colors),
    },
    Case {
        flag: ("list --width 90", "Some(90)"),
        variable: ("GPUKILL_TABLE_WIDTH", "100", "Some(100)"),
        line: ("table_width = 110", "Some(110)"),
        default: "None",
        shown: |s| format!("{:?}", s.table_width),
    },
    Case {
        flag: ("kill 1 --timeout-secs 7", "7s"),
        variable: ("GPUKILL_DEFAULT_TIMEOUT", "8", "8s"),
        line: ("default_timeout_secs = 600", "600s"),
        default: "5s",
        shown: |s| format!("{:?}", s.signal_timeout),
    },
    Case {
        flag: ("list --request-timeout 7", "7s"),
        variable: ("GPUKILL_REQUEST_TIMEOUT", "8", "8s"),
        line: ("request_timeout_secs = 3600", "3600s"),
        default: "5s",
        shown: |s| format!("{:?}", s.timeout),
    },
    Case {
        flag: ("list --max-processes 0", "0"),
        variable: ("GPUKILL_MAX_PROCESSES", "3", "3"),
        line: ("max_processes_summary = 4", "4"),
        default: "10",
        shown: |s| s.max_processes.to_string(),
    },
    Case {
        flag: ("list --watch 11", "11s"),
        variable: ("GPUKILL_WATCH_INTERVAL", "12", "12s"),
        line: ("watch_interval_secs = 13", "13s"),
        default: "2s",
        shown: |s| format!("{:?}", s.watch_interval),
    },
    Case {
        flag: ("list --details", "true"),
        variable: ("GPUKILL_SHOW_DETAILS", "true", "true"),
        line: ("show_details = true", "true"),
        default: "false",
        shown: |s| s.show_details.to_string(),
    },
    Case {
        flag: ("list --mine", "true"),
        variable: ("GPUKILL_ONLY_MINE", "true", "true"),
        line: ("only_mine = true", "true"),
        default: "false",
        shown: |s| s.only_mine.to_string(),
    },
    Case {
        flag: ("list --sort memory", "Some(Memory)"),
        variable: ("GPUKILL_LIST_SORT", "util", "Some(Util)"),
        line: ("list_sort = \"pid\"", "Some(Pid)"),
        default: "None",
        shown: |s| format!("{:?}", s.list_sort),
    },
    Case {
        flag: ("list --columns +pstate", "Some(\"+pstate\")"),
        variable: ("GPUKILL_LIST_COLUMNS", "gpu,fan", "Some(\"gpu,fan\")"),
        line: ("list_columns = \"+cuda\"", "Some(\"+cuda\")"),
        default: "None",
        shown: |s| format!("{:?}", s.list_columns),
    },
    Case {
        flag: ("list --columns pid,cpu", "Some(\"pid,cpu\")"),
        variable: ("GPUKILL_DETAILS_COLUMNS", "+idle", "Some(\"+idle\")"),
        line: ("details_columns = \"pid\"", "Some(\"pid\")"),
        default: "None",
        shown: |s| format!("{:?}", s.details_columns),
    },
    Case {
        flag: ("list --socket /f", "Some(\"/f\")"),
        variable: ("GPUKILL_SOCKET", "/e", "Some(\"/e\")"),
        line: ("socket = \"/t\"", "Some(\"/t\")"),
        default: "None",
        shown: |s| format!("{:?}", s.socket),
    },
];

fn cli(typed: &str) -> Cli {
    let line = format!("gpukillctl {typed}");
    Cli::try_parse_from(line.split_whitespace()).expect("it is right")
}

fn settings(flag: &str, variable: Option<(&str, &str)>, file: &str) -> Settings {
    let environment = variable.map(|(name, value)| (name.to_owned(), value.to_owned()));
    resolve(&cli(flag), environment, Some(file)).expect("there is no mistake")
}

#[test]
fn nearest_source_wins_for_every_key() {
    assert_eq!(CASES.len(), KEYS.len());
    for case in &CASES {
        let (flag, by_flag) = case.flag;
        let (name, value, by_variable) = case.variable;
        let (line, by_file) = case.line;
        let variable = Some((name, value));
        let shown = |settings: &Settings| (case.shown)(settings);
        assert_eq!(shown(&settings("list", None, "")), case.default, "{name}");
        assert_eq!(shown(&settings("list", None, line)), by_file, "{line}");
        assert_eq!(
            shown(&settings("list", variable, "")),
            by_variable,
            "{name}"
        );
        assert_eq!(shown(&settings(flag, None, "")), by_flag, "{flag}");
        assert_eq!(
            shown(&settings("list", variable, line)),
            by_variable,
            "{name}"
        );
        assert_eq!(shown(&settings(flag, variable, line)), by_flag, "{flag}");
    }
}

/// The rows of a table in the docs: the cells, and the words in code style of each.
fn documented_rows(page: &str, heading: &str) -> Vec<Vec<Vec<String>>> {
    let (_, section) = page.split_once(heading).expect("the heading is there");
    let section = section.split("\n## ").next().unwrap_or_default();
    let rows = section.lines().filter(|line| line.starts_with("| "));
    let words = |cell: &str| {
        let words = cell.split('`').skip(1).step_by(2);
        words.map(str::to_owned).collect()
    };
    // The first row has the titles.
    rows.skip(1)
        .map(|row| row.trim_matches('|').split('|').map(words).collect())
        .collect()
}

#[test]
fn documented_keys_and_variables_of_gpu_kill_work() {
    let page = include_str!("../../../docs/from-gpu-kill.md");
    let rows = documented_rows(page, "## Settings of the client\n");
    let (mut keys, mut variables) = (0, 0);
    for row in &rows {
        let [their_keys, their_variables, ours] = row.as_slice() else {
            panic!("{row:?}");
        };
        let Some(key) = their_keys.first() else {
            // A variable without a key is of the daemon, or means nothing here.
            for name in their_variables {
                let set = settings("list", Some((name, "1")), "");
                assert_eq!(set, settings("list", None, ""), "{name}");
            }
            continue;
        };
        let begins = format!("{key} = ");
        let case = CASES.iter().find(|case| case.line.0.starts_with(&begins));
        let case = case.unwrap_or_else(|| panic!("there is no key {key}"));
        let (line, by_file) = case.line;
        assert_eq!(
            (case.shown)(&settings("list", None, line)),
            by_file,
            "{key}"
        );
        keys += 1;
        let is_variable = |word: &&String| word.starts_with("GPUKILL_");
        let named = their_variables.iter().chain(ours);
        for name in named.filter(is_variable) {
            let (_, value, expected) = case.variable;
            let set = settings("list", Some((name, value)), "");
            assert_eq!((case.shown)(&set), expected, "{name}");
            variables += 1;
        }
    }
    assert_eq!((rows.len(), keys, variables), (10, 8, 8));
}

#[test]
fn booleans_accept_words_and_numbers() {
    for word in ["1", "yes", "ON", "True"] {
        let variable = Some(("GPUKILL_SHOW_DETAILS", word));
        assert!(settings("list", variable, "").show_details, "{word}");
    }
    for line in ["use_colors = \"off\"", "use_colors = 0"] {
        assert_eq!(settings("list", None, line).colors, Colors::Never, "{line}");
    }
}

#[test]
fn flag_overrides_the_file() {
    let file = "show_details = true\nuse_colors = false\n";
    let settings = settings("list --no-details --color auto", None, file);
    assert!(!settings.show_details);
    assert_eq!(settings.colors, Colors::Auto);
}

#[test]
fn user_overrides_only_mine() {
    let shown = |flag| settings(flag, None, "only_mine = true").only_mine;
    let flags = [
        "list",
        "list --mine=false",
        "list --user bob",
        "list --mine",
    ];
    assert_eq!(flags.map(shown), [true, false, false, true]);
}

#[test]
fn documented_defaults_are_the_defaults() {
    assert_eq!(defaults(KEYS), (Settings::default(), vec![]));
}

#[test]
fn all_mistakes_are_reported_together() {
    let file =
        "colour = true\ntable_width = 3\noutput_format = \"xml\"\nlist_columns = \"gpu,x\"\n";
    let environment = [
        ("GPUKILL_DEFAULT_TIMEOUT", "601"),
        ("GPUKILL_REQUEST_TIMEOUT", "soon"),
        ("GPUKILL_SHOW_DETAILS", "maybe"),
    ];
    let environment = environment.map(|(name, value)| (name.to_owned(), value.to_owned()));
    let mistakes = resolve(&cli("list"), environment, Some(file)).expect_err("mistakes");
    let messages: Vec<String> = mistakes.iter().map(ToString::to_string).collect();
    assert_eq!(
        messages,
        [
            "line 1: unknown key colour",
            "line 2: table_width: 3 is not a whole number from 20 to 1000",
            "line 3: output_format: \"xml\" is not valid: write table, json, ndjson or csv",
            "line 4: list_columns: column \"x\" is not valid: write gpu, name, bar, memory, util, \
             temp, power, ecc, procs, age, containers, top, vendor, driver, cuda, uuid, pci, fan, \
             pstate, pcie, throttle, clock, mem_clock, mem_temp, mem_util, encoder, decoder, \
             reserved or unattributed",
            "GPUKILL_DEFAULT_TIMEOUT: \"601\" is not a whole number from 1 to 600",
            "GPUKILL_REQUEST_TIMEOUT: \"soon\" is not a whole number from 1 to 3600",
            "GPUKILL_SHOW_DETAILS: \"maybe\" is not valid: write true or false",
        ]
    );
}

#[test]
fn unsupported_format_is_a_mistake_only_when_typed() {
    let status = |typed: &str| Cli::try_parse_from(["gpukillctl", "status", "-o", typed]);
    assert!(status("csv").is_err());
    assert!(status("json").is_ok());
    let from_file = settings("list", None, "output_format = \"csv\"");
    assert_eq!(from_file.output_format, Format::Csv);
}
