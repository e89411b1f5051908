//! Twelve questions about a month, each answered by one command. The answers are computed by hand
//! from the script of the month. `GPUKILL_SHOW=1` prints them beside the answers of the client, as
//! a table for a document.

mod script;

use gpukill_proto::text::quote_for_shell;
use gpukill_proto::units::Timestamp;
use gpukill_tests::harness::{CommandOutput, Daemon, TestBox, can_run_as_other_users, run_as_user};
use script::{
    ALICE, DAVE, EDIT_AT, ERIN, FAILED_KILL_AT, FRANK, GPU_NAME, GPUS, KILL_DELAY_SECONDS,
    LOSS_SEEN_AT, LOST_UNTIL, XID_AT, at, gpu_id, write_month,
};
use serde_json::{Value, json};
use std::fmt::Write as _;

/// One question, the command that answers it, and the answer.
struct Question {
    text: &'static str,
    command: &'static [&'static str],
    /// What the command has to say.
    expected: Value,
    /// Finds the answer in the document of the command.
    answer: fn(&Value) -> Value,
    /// Words of the answer in the table for people.
    words: &'static [&'static str],
}

/// A daemon over the store of the month.
struct MonthBox {
    test_box: TestBox,
    daemon: Daemon,
    /// Whether the daemon hides command lines from other users.
    hides_users: bool,
}

impl MonthBox {
    fn new() -> Self {
        let test_box = TestBox::new();
        test_box.make_world_accessible();
        write_month(&test_box.path("state")).unwrap();
        let hides_users = can_run_as_other_users();
        if hides_users {
            test_box.configure("[access]\nhide_other_users = true");
        }
        let gpus = (0..GPUS).map(|gpu| json!({"uuid": gpu_id(gpu).0, "name": GPU_NAME}));
        test_box.set_driver_state(&json!({"gpus": gpus.collect::<Vec<_>>()}));
        let mut daemon = test_box.daemon_command();
        // Only one sample of the daemon itself, of today.
        daemon
            .env("TZ", "UTC")
            .env("GPUKILLD_AUDIT_SAMPLE_INTERVAL", "1h");
        let daemon = test_box.start_with(&mut daemon);
        Self {
            test_box,
            daemon,
            hides_users,
        }
    }

    fn run(&self, command: &[&str], more: &[&str]) -> CommandOutput {
        let arguments = [command, more].concat();
        let mut client = self.test_box.client_command(&arguments);
        CommandOutput::run(client.env("TZ", "UTC"))
    }

    fn document(&self, command: &[&str]) -> Value {
        let ran = self.run(command, &["-o", "json"]);
        assert_eq!(ran.code, 0, "{command:?}: {ran:?}");
        serde_json::from_str(&ran.stdout).unwrap()
    }
}

fn time(at: Timestamp) -> String {
    at.to_rfc3339()
}

/// A number of hours or percent, without the last digits.
fn rounded(number: &Value) -> Value {
    json!((number.as_f64().unwrap() * 1000.0).round() / 1000.0)
}

fn list<'a>(document: &'a Value, name: &str) -> &'a Vec<Value> {
    document[name].as_array().unwrap()
}

/// The fields of each entry of a list.
fn fields(entries: &[Value], names: &[&str]) -> Value {
    let row = |entry: &Value| -> Value {
        let values = names.iter().map(|name| entry[*name].clone());
        values.collect()
    };
    entries.iter().map(row).collect()
}

/// The entries of a timeline with an event of this name.
fn events(document: &Value, name: &str) -> Vec<Value> {
    let entries = list(document, "entries").iter();
    let found = entries.filter(|entry| entry["event"] == name);
    found.cloned().collect()
}

/// The kills of a timeline.
fn kills(document: &Value) -> Vec<Value> {
    let actions = events(document, "action").into_iter();
    let records = actions.map(|mut entry| entry["record"].take());
    records.filter(|record| record["kind"] == "kill").collect()
}

/// The ends of runs of a timeline: when, how, and the position of the kill among all kills.
fn ends(document: &Value) -> Value {
    let kills = kills(document);
    let end = |entry: &Value| {
        let by = kills
            .iter()
            .position(|kill| kill["id"] == entry["action_id"]);
        json!([entry["timestamp"], entry["end"], by])
    };
    events(document, "ended").iter().map(end).collect()
}

/// Frank's and erin's runs on GPU 3. Dave's run at the same time is on GPU 2.
fn night_of_day_12() -> Question {
    Question {
        text: "Who had GPU 3 in the night of day 12?",
        command: &[
            "audit",
            "--gpu",
            "3",
            "--since",
            "2024-04-12 20:00",
            "--until",
            "2024-04-13 08:00",
        ],
        // Newest start first; whole runs, also before the night.
        expected: json!([
            [
                "frank",
                "python finetune.py",
                time(at(13, 3, 6)),
                time(at(13, 7, 0))
            ],
            [
                "erin",
                "python eval.py",
                time(at(12, 19, 0)),
                time(at(13, 2, 0))
            ],
        ]),
        answer: |document| {
            let names = ["owner", "label", "started_at", "ended_at"];
            fields(list(document, "runs"), &names)
        },
        words: &[
            "frank",
            "python finetune.py",
            "Sat 03:06",
            "erin",
            "python eval.py",
            "Fri 19:00",
        ],
    }
}

/// The notebook is idle from 23:36, so the limit of 8 h is reached at 07:36. Carol postpones the end
/// from 08:36 to 09:12.
fn end_of_notebook() -> Question {
    Question {
        text: "Why did carol's job end at 09:12 on day 17?",
        command: &[
            "audit",
            "timeline",
            "--user",
            "carol",
            "--since",
            "2024-04-17",
            "--until",
            "2024-04-17 12:00",
        ],
        expected: json!({
            "steps": ["violated", "warned", "snoozed", "ended", "outcome"],
            "kills": [["guard: default: idle", "done"]],
            // By the only kill.
            "ends": [[time(at(17, 9, 12).plus_seconds(KILL_DELAY_SECONDS)), "killed", 0]],
        }),
        answer: |document| {
            let guard = events(document, "guard");
            let steps = guard.iter().map(|entry| entry["record"]["step"].clone());
            json!({
                "steps": steps.collect::<Vec<_>>(),
                "kills": fields(&kills(document), &["what", "result"]),
                "ends": ends(document),
            })
        },
        words: &[
            "violation",
            "default: idle",
            "snoozed",
            "until 09:12",
            "by guard",
            "09:12:05  ended",
        ],
    }
}

/// | bob's work | GPU-hours | busy | idle | unknown |
/// |---|---|---|---|---|
/// | notebook, day 2, 09:00 to 19:00, busy until 11:00 | 10 | 2 | 8 | |
/// | training, day 4, 24 h on GPUs 2 and 3 | 48 | 48 | | |
/// | preprocessing, day 8, 10:00 to 16:00 and 12:00 to 18:00 on one GPU | 8 | 8 | | |
/// | inference, day 13, 3 h beside dave's, shares unknown | 3 | | | 3 |
/// | evaluation, day 19, 6 h at 0 % | 6 | | 6 | |
/// | training, day 23, 18:00 until the reboot at 06:00 | 12 | 12 | | |
/// | sum | 87 | 70 | 14 | 3 |
///
/// Idle are 14 of the 84 known hours. Each process counts once for each GPU: 1 + 2 + 2 + 1 + 1 + 1.
fn hours_of_bob() -> Question {
    Question {
        text: "How many GPU-hours did bob use in the month, and how much of it idle?",
        command: &[
            "audit",
            "--summary",
            "--user",
            "bob",
            "--since",
            "2024-04-01",
            "--until",
            "2024-05-01",
        ],
        expected: json!([["bob", 87.0, 70.0, 14.0, 3.0, 16.667, 8]]),
        answer: |document| {
            let row = |it: &Value| {
                let hours = [
                    "gpu_hours",
                    "busy_hours",
                    "idle_hours",
                    "unknown_hours",
                    "idle_pct",
                ];
                let hours = hours.iter().map(|name| rounded(&it[*name]));
                let row = [it["owner"].clone()].into_iter().chain(hours);
                row.chain([it["runs"].clone()]).collect::<Vec<Value>>()
            };
            list(document, "owners").iter().map(row).collect()
        },
        words: &["bob", "87.0", "17 %"],
    }
}

/// Week 3 is from day 15 to day 21. Erin: 4 GPUs for 24 h on day 15 and one for 24 h on day 18, 120.
/// Alice: 3 GPUs until day 16, 12:00, of which 36 h are in the week, 108 (and 144 with the part in
/// week 2).
///
/// Busy, by GPU: 0: 36; 1: 36; 2: 36 and dave's 4.4; 4: 24 and carol's 1.6; 5: 24 and dave's 6.1;
/// 6: 24 and 24; 7: 24. Sum: 240.1. Held idle: bob's 6 and carol's 9.6, 15.6. All: 8 × 168 without
/// the 1.5 h in which GPU 5 is lost, 1342.5. Free: 1342.5 - 240.1 - 15.6.
fn top_of_week_3() -> Question {
    Question {
        text: "Who used the GPUs most in week 3?",
        command: &[
            "audit",
            "--weekly",
            "--since",
            "2024-04-01",
            "--until",
            "2024-05-01",
        ],
        expected: json!(["2024-04-15", "erin", 120.0, 240.1, 15.6, 1086.8, 0.0]),
        answer: |document| {
            let week = &list(document, "weeks")[2];
            let hours = [
                "top_owner_hours",
                "busy_hours",
                "held_idle_hours",
                "free_hours",
                "unknown_hours",
            ];
            let hours = hours.iter().map(|name| rounded(&week[*name]));
            let names = [week["monday"].clone(), week["top_owner"].clone()];
            names.into_iter().chain(hours).collect()
        },
        words: &[
            "2024-04-15",
            "erin 120.0",
            "Not seen: 2024-04-09 21:00 to 2024-04-10 10:00",
        ],
    }
}

/// 20 GiB, 44 GiB from 06:00 on, 71 GiB from 13:00 to 14:00, and 44 GiB again.
fn peak_of_job() -> Question {
    Question {
        text: "What was the most memory of job slurm 4711, and when?",
        command: &[
            "audit",
            "series",
            "--by",
            "job",
            "--job",
            "slurm 4711",
            "--since",
            "2024-04-18",
            "--until",
            "2024-04-19",
            "--buckets",
            "48",
        ],
        expected: json!([
            "erin",
            71_u64 << 30,
            [time(at(18, 13, 0)), time(at(18, 13, 30))]
        ]),
        answer: |document| {
            let line = &list(document, "series")[0];
            let most = |bucket: &Value| bucket["memory_used_bytes_max"].as_u64();
            let buckets = list(line, "buckets");
            let peak = buckets.iter().map(most).max();
            let at_peak = buckets.iter().filter(|bucket| Some(most(bucket)) == peak);
            let times: Vec<&Value> = at_peak.map(|bucket| &bucket["timestamp"]).collect();
            json!([line["owner"], peak, times])
        },
        words: &["erin: slurm 4711", "71.0G", "13:00:00", "13:30:00"],
    }
}

/// The daemon stops on day 9 at 21:00 and starts on day 10 at 10:00. The restart on day 6 and the
/// reboot on day 24 take twelve minutes, less than three samples.
fn time_not_recorded() -> Question {
    Question {
        text: "When was nothing recorded?",
        command: &["audit", "--since", "2024-04-01", "--until", "2024-05-01"],
        expected: json!([
            [[time(at(9, 21, 0)), time(at(10, 10, 0))]],
            time(at(1, 0, 0))
        ]),
        answer: |document| {
            let gaps = fields(list(document, "gaps"), &["from", "until"]);
            json!([gaps, document["recorded_since"]])
        },
        words: &["Not seen: 2024-04-09 21:00 to 2024-04-10 10:00"],
    }
}

/// Dave's job ends with the GPU.
fn day_20_of_gpu_5() -> Question {
    Question {
        text: "What happened to GPU 5 on day 20?",
        command: &[
            "audit",
            "timeline",
            "--gpu",
            "5",
            "--since",
            "2024-04-20",
            "--until",
            "2024-04-21",
        ],
        expected: json!([
            [time(at(20, 8, 0)), "started", null],
            [time(at(20, 14, 6)), "ended", "exited"],
            [time(XID_AT), "xid", "XID 79"],
            [time(LOSS_SEEN_AT), "fault", LOST],
            [time(LOST_UNTIL), "fault_over", LOST],
        ]),
        answer: |document| {
            let entries = list(document, "entries").iter();
            let entries = entries.filter(|entry| entry["event"] != "stretch");
            let row = |entry: &Value| match &entry["record"] {
                Value::Null => json!([entry["timestamp"], entry["event"], entry["end"]]),
                record => json!([entry["timestamp"], record["kind"], record["what"]]),
            };
            entries.map(row).collect()
        },
        words: &[
            "dave 5201",
            "14:06:10  xid",
            "XID 79",
            "14:06:12  fault",
            "15:36:00  over",
            LOST,
        ],
    }
}

const LOST: &str = "GPU 5: lost (GPU is lost): needs a reset or a reboot";

/// Erin's first kill fails, and the second one ends both processes, which are last seen seconds
/// before it and end at it.
fn kill_of_sweep() -> Question {
    Question {
        text: "Who killed dave's job, and did it end?",
        command: &[
            "audit",
            "timeline",
            "--user",
            "dave",
            "--since",
            "2024-04-21",
            "--until",
            "2024-04-22",
        ],
        expected: json!({
            "kills": [
                [time(FAILED_KILL_AT), ERIN.uid, "--job \"sweep.service\"", "failed"],
                [
                    time(at(21, 10, 24).plus_seconds(KILL_DELAY_SECONDS)), ERIN.uid,
                    "--job \"sweep.service\"", "done",
                ],
            ],
            // Two processes, by the second kill.
            "ends": [
                [time(at(21, 10, 24).plus_seconds(KILL_DELAY_SECONDS)), "killed", 1],
                [time(at(21, 10, 24).plus_seconds(KILL_DELAY_SECONDS)), "killed", 1],
            ],
        }),
        answer: |document| {
            let names = ["timestamp", "uid", "what", "result"];
            json!({"kills": fields(&kills(document), &names), "ends": ends(document)})
        },
        words: &["10:05:00  kill", "failed", "10:24:05  kill", "SIGKILL"],
    }
}

/// Three of dave's and bob's command lines have other scripts.
fn runs_of_finetune() -> Question {
    Question {
        text: "Which processes ran finetune.py?",
        command: &[
            "audit",
            "--processes",
            "--command",
            "finetune\\.py",
            "--since",
            "2024-04-01",
            "--until",
            "2024-05-01",
        ],
        expected: json!([
            ["carol", [4001], [5]],
            ["carol", [4002], [6]],
            ["frank", [7001], [3]],
        ]),
        answer: |document| {
            let rows = fields(list(document, "runs"), &["owner", "pids", "gpu_indices"]);
            sorted(rows)
        },
        words: &["carol", "frank", "python finetune.py"],
    }
}

fn sorted(mut rows: Value) -> Value {
    let all = rows.as_array_mut().unwrap();
    all.sort_by_key(ToString::to_string);
    rows
}

/// | days | utilization of GPU 0 |
/// |---|---|
/// | 2 to 4 | 80 % |
/// | 8 | 12 h at 60 %: 30 % |
/// | 9, 10 | 60 %, known until 21:00 (21 of 24 h) and from 10:00 on (14 of 24 h) |
/// | 11 | 12 h at 60 %: 30 % |
/// | 14, 15, 16 | 12 h, 24 h and 12 h at 90 %: 45 %, 90 % and 45 % |
/// | 22, 23 | 50 % |
/// | 24 | 6 h at 50 %, of 23.8 known hours: 12.6 % |
/// | 26 | 12 h at 40 %: 20 % |
///
/// Twelve minutes of days 6 and 24 are not known: 23.8 of 24 h.
fn days_of_gpu_0() -> Question {
    let mut days = vec![json!([0, 1.0]); 30];
    let used = [
        (2, 80),
        (3, 80),
        (4, 80),
        (8, 30),
        (9, 60),
        (10, 60),
        (11, 30),
        (14, 45),
        (15, 90),
        (16, 45),
        (22, 50),
        (23, 50),
        (24, 13),
        (26, 20),
    ];
    for (day, percent) in used {
        days[day - 1][0] = json!(percent);
    }
    for (day, known_share) in [(6, 0.992), (9, 0.875), (10, 0.583), (24, 0.992)] {
        days[day - 1][1] = json!(known_share);
    }
    Question {
        text: "What was the mean utilization of GPU 0 on each day?",
        command: &[
            "audit",
            "series",
            "--by",
            "gpu",
            "--gpu",
            "0",
            "--since",
            "2024-04-01",
            "--until",
            "2024-05-01",
            "--buckets",
            "30",
        ],
        expected: days.into(),
        answer: |document| {
            let buckets = list(&list(document, "series")[0], "buckets").iter();
            let day = |bucket: &Value| {
                json!([bucket["utilization_pct"], rounded(&bucket["known_share"])])
            };
            buckets.map(day).collect()
        },
        words: &["2024-04-02", "80%", "2024-04-15", "90%", "58 %"],
    }
}

/// Bob's training, alice's training and the service. The service starts again after the reboot.
fn jobs_at_reboot() -> Question {
    Question {
        text: "Which jobs were running when the box was rebooted?",
        command: &[
            "audit",
            "--since",
            "2024-04-24 05:00",
            "--until",
            "2024-04-24 07:00",
        ],
        expected: json!([
            ["alice", "python train.py", "rebooted", time(at(24, 6, 0))],
            ["bob", "python train.py", "rebooted", time(at(24, 6, 0))],
            ["ollama", "ollama serve", "exited", time(at(30, 0, 0))],
            ["ollama", "ollama serve", "rebooted", time(at(24, 6, 0))],
        ]),
        answer: |document| {
            let names = ["owner", "label", "end", "ended_at"];
            sorted(fields(list(document, "runs"), &names))
        },
        words: &["alice", "bob", "ollama", "reboot"],
    }
}

fn edit_of_rules() -> Question {
    Question {
        text: "Who edited the rules, and when?",
        command: &[
            "audit",
            "actions",
            "--kind",
            "rules_edit",
            "--since",
            "2024-04-01",
            "--until",
            "2024-05-01",
        ],
        expected: json!([[
            time(EDIT_AT),
            ALICE.uid,
            "global.default_idle_limit_minutes = 480",
            "done",
        ]]),
        answer: |document| {
            let names = ["timestamp", "uid", "what", "result"];
            fields(list(document, "actions"), &names)
        },
        words: &[
            "2024-04-10 16:20:00",
            "default_idle_limit_minutes = 480",
            "done",
        ],
    }
}

/// Answers a question, and adds it to what is shown. Returns the mistakes.
fn ask(month: &MonthBox, question: &Question, shown: &mut String) -> Vec<String> {
    let Question {
        text,
        command,
        expected,
        answer,
        words,
    } = question;
    let found = answer(&month.document(command));
    let table = month.run(command, &["--width", "160"]).stdout;
    // Options are not quoted.
    let word = |word: &&str| quote_for_shell(word).unwrap_or_else(|| (*word).to_owned());
    let command = command.iter().map(word).collect::<Vec<_>>().join(" ");
    writeln!(
        shown,
        "| {text} | `gpukillctl {command}` | `{expected}` | `{found}` |"
    )
    .unwrap();
    let is_right = found == *expected;
    let wrong = (!is_right).then(|| format!("{text}\nexpected {expected}\ngot      {found}"));
    let missing = words.iter().filter(|word| !table.contains(**word));
    let missing = missing.map(|word| format!("{text}\n{word:?} is missing in:\n{table}"));
    wrong.into_iter().chain(missing).collect()
}

#[test]
fn twelve_questions_have_their_answers() {
    let month = MonthBox::new();
    let questions = [
        night_of_day_12(),
        end_of_notebook(),
        hours_of_bob(),
        top_of_week_3(),
        peak_of_job(),
        time_not_recorded(),
        day_20_of_gpu_5(),
        kill_of_sweep(),
        runs_of_finetune(),
        days_of_gpu_0(),
        jobs_at_reboot(),
        edit_of_rules(),
    ];
    let mut shown = "| question | command | expected | got |\n|---|---|---|---|\n".to_owned();
    let asked = questions.iter();
    let mut mistakes: Vec<String> = asked
        .flat_map(|question| ask(&month, question, &mut shown))
        .collect();
    mistakes.extend(gap_in_series(&month));
    mistakes.extend(command_lines_of_others(&month));
    if std::env::var_os("GPUKILL_SHOW").is_some() {
        println!("{shown}");
    }
    assert!(mistakes.is_empty(), "{}", mistakes.join("\n\n"));
    month.daemon.stop();
}

/// A bucket without samples has no value: from 21:00 on day 9 to 10:00 on day 10.
fn gap_in_series(month: &MonthBox) -> Option<String> {
    let command = [
        "audit",
        "series",
        "--gpu",
        "0",
        "--since",
        "2024-04-09",
        "--until",
        "2024-04-11",
        "--buckets",
        "12",
    ];
    let document = month.document(&command);
    let buckets = list(&list(&document, "series")[0], "buckets");
    let found = fields(buckets, &["utilization_pct", "known_share"]);
    let known = json!([60, 1.0]);
    let mut expected = vec![known; 12];
    // 20:00 to midnight, then two buckets in the gap, then 08:00 to 12:00.
    expected[5][1] = json!(0.25);
    expected[6] = json!([null, 0.0]);
    expected[7] = json!([null, 0.0]);
    expected[8][1] = json!(0.5);
    let expected = Value::from(expected);
    (found != expected).then(|| format!("{command:?}\nexpected {expected}\ngot      {found}"))
}

/// Where other users are hidden, a filter of a plain user never sees their command lines.
fn command_lines_of_others(month: &MonthBox) -> Vec<String> {
    if !month.hides_users {
        return Vec::new();
    }
    let span = ["--since", "2024-04-01", "--until", "2024-05-01"];
    let runs = |uid, filter: [&str; 2]| {
        let command = [&["audit", "--processes"][..], &filter, &span].concat();
        let ran = run_as_user(uid, &[], || month.run(&command, &["-o", "json"]));
        let document: Value = serde_json::from_str(&ran.stdout).unwrap_or_default();
        let runs = document["runs"].as_array().cloned().unwrap_or_default();
        let names = ["owner", "pids", "command"];
        json!([ran.code, fields(&runs, &names)])
    };
    let none = json!([8, []]);
    let own = json!([0, [["frank", [7001], "python finetune.py --lora 8"]]]);
    let cases = [
        (FRANK.uid, ["--command", "finetune\\.py"], &own),
        (FRANK.uid, ["--process", "finetune\\.py"], &own),
        (DAVE.uid, ["--command", "finetune\\.py"], &none),
        (DAVE.uid, ["--process", "finetune\\.py"], &none),
    ];
    let wrong = cases.into_iter().filter_map(|(uid, filter, expected)| {
        let found = runs(uid, filter);
        (found != *expected).then(|| format!("{uid} {filter:?}\nexpected {expected}\ngot {found}"))
    });
    wrong.collect()
}
