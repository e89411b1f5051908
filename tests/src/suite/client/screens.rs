//! Whole screens, compared letter by letter except for times and the host.

use super::five_gpu_box;
use gpukill_tests::harness::{Terminal, TestBox, eventually_equals, skip};

/// A screen with letters in place of its times and its host.
fn normalized_screen(test_box: &TestBox, arguments: &[&str]) -> String {
    let ran = test_box.ctl(arguments);
    assert_eq!((ran.code, ran.stderr.as_str()), (0, ""));
    let host = test_box.list()["host"].as_str().unwrap().to_owned();
    let mut text = ran.stdout.replace(&host, "HOST");
    for second in 0..60 {
        // The replacement is as wide as the column.
        let on_gpu = format!("{:>6}  ", format!("{second}s"));
        text = text.replace(&on_gpu, "    Ns  ");
    }
    let mut parts = text.split_inclusive(|c: char| c.is_whitespace() || c == '(');
    let clock = |word: &str| word.len() == 8 && word.split(':').count() == 3;
    parts.by_ref().fold(String::new(), |whole, part| {
        let word = part.trim_end();
        let shown = if clock(word) { "hh:mm:ss" } else { word };
        whole + shown + &part[word.len()..]
    })
}

/// A screen with these rows below its heading.
fn expected_screen(rows: &[&str]) -> String {
    let whole = [
        &["HOST · 5 GPUs · hh:mm:ss", ""],
        rows,
        &[
            "",
            "unattributed memory: gpukillctl holders",
            "2 faults: gpukillctl status",
        ],
    ];
    whole.concat().join("\n") + "\n"
}

#[test]
fn list_drops_columns_when_narrow() {
    let (test_box, daemon) = five_gpu_box::start();
    let cases: [(&str, &[&str]); 3] = [
        (
            "120",
            &[
                " GPU  NAME                                    MEMORY  UTIL  TEMP     POWER  ECC  \
                PROCS  TOP PROCESS",
                "   0  H100 80GB HBM3          ████████░░  64.0/80.0G   98%   71°  688/700W    0      3  root python 40.0G",
                "   1  H100 80GB HBM3          ██████▏░░░  49.0/80.0G    0%   41°  120/700W    3      1  container 0123456789ab jupyter-…",
                "   2  H100 80GB HBM3          ████▍░░░░░  35.0/80.0G    0%   38°   98/700W    0      0  35.0G unattributed",
                "  !3  GeForce RTX 2080 SUPER  ▏░░░░░░░░░    0.1/8.0G     ?   33°       n/a  n/a      0  –",
                "  !4  H100 80GB HBM3          lost since hh:mm:ss (GPU_IS_LOST): needs a reset \
                or a reboot",
            ],
        ),
        (
            "100",
            &[
                " GPU  NAME                                    MEMORY  UTIL  TEMP     POWER  TOP \
                PROCESS",
                "   0  H100 80GB HBM3          ████████░░  64.0/80.0G   98%   71°  688/700W  root \
                python 40.0G",
                "   1  H100 80GB HBM3          ██████▏░░░  49.0/80.0G    0%   41°  120/700W  \
                container 0123456789ab …",
                "   2  H100 80GB HBM3          ████▍░░░░░  35.0/80.0G    0%   38°   98/700W  35.0G \
                unattributed",
                "  !3  GeForce RTX 2080 SUPER  ▏░░░░░░░░░    0.1/8.0G     ?   33°       n/a  –",
                "  !4  H100 80GB HBM3          lost since hh:mm:ss (GPU_IS_LOST): needs a reset \
                or a reboot",
            ],
        ),
        (
            "80",
            &[
                " GPU  NAME                        MEMORY  UTIL  TEMP  POWER  TOP PROCESS",
                "   0  H100 80GB     ████████░░    64/80G   98%   71°   688W  root python, 2 more",
                "   1  H100 80GB     ██████▏░░░    49/80G    0%   41°   120W  container 01234567…",
                "   2  H100 80GB     ████▍░░░░░    35/80G    0%   38°    98W  35.0G unattributed",
                "  !3  RTX 2080 SU…  ▏░░░░░░░░░  0.1/8.0G     ?   33°    n/a  –",
                "  !4  H100 80GB     lost since hh:mm:ss (GPU_IS_LOST): needs a reset or a reboot",
            ],
        ),
    ];
    for (width, rows) in cases {
        eventually_equals(&expected_screen(rows), || {
            normalized_screen(&test_box, &["list", "--width", width])
        });
    }
    // A pipe has no width: its reader cuts lines as needed.
    let whole = normalized_screen(&test_box, &["list"]);
    assert!(!whole.contains('…'), "{whole}");
    daemon.stop();
}

#[test]
fn list_details_shows_processes_and_unattributed_memory() {
    let (test_box, daemon) = five_gpu_box::start();
    let cases: [(&str, &[&str]); 3] = [
        (
            "120",
            &[
                " GPU    PID  USER                    MEMORY   SM  ON GPU  WHERE                \
                COMMAND",
                "   0  48213  root                     40.0G  50%      Ns  session 3            \
                python train.py --model llama-70b --rank…",
                "   0  48214  root                     23.0G  48%      Ns  session 3            \
                python train.py --model llama-70b --rank…",
                "   0  50001  root                      512M   0%      Ns  session 3            \
                tensorboard --logdir runs",
                "   1  51002  container 0123456789ab   49.0G   0%      Ns  docker/0123456789ab  \
                jupyter-lab --no-browser",
                "   2      –  –                        35.0G  unattributed: gpukillctl holders \
                --gpu 2",
                "   4  lost since hh:mm:ss (GPU_IS_LOST): needs a reset or a reboot",
            ],
        ),
        (
            "100",
            &[
                " GPU    PID  USER                MEMORY   SM  ON GPU  WHERE           COMMAND",
                "   0  48213  root                 40.0G  50%      Ns  session 3       python \
                train.py --model llama…",
                "   0  48214  root                 23.0G  48%      Ns  session 3       python \
                train.py --model llama…",
                "   0  50001  root                  512M   0%      Ns  session 3       tensorboard \
                --logdir runs",
                "   1  51002  container 0123456…   49.0G   0%      Ns  docker/012345…  jupyter-lab \
                --no-browser",
                "   2      –  –                    35.0G  unattributed: gpukillctl holders --gpu 2",
                "   4  lost since hh:mm:ss (GPU_IS_LOST): needs a reset or a reboot",
            ],
        ),
        (
            "80",
            &[
                " GPU    PID  USER            MEMORY   SM  ON GPU  COMMAND",
                "   0  48213  root             40.0G  50%      Ns  python train.py --model llama…",
                "   0  48214  root             23.0G  48%      Ns  python train.py --model llama…",
                "   0  50001  root              512M   0%      Ns  tensorboard --logdir runs",
                "   1  51002  container 012…   49.0G   0%      Ns  jupyter-lab --no-browser",
                "   2      –  –                35.0G  unattributed: holders --gpu 2",
                "   4  lost since hh:mm:ss (GPU_IS_LOST): needs a reset or a reboot",
            ],
        ),
    ];
    for (width, rows) in cases {
        eventually_equals(&expected_screen(rows), || {
            normalized_screen(&test_box, &["list", "--details", "--width", width])
        });
    }
    daemon.stop();
}

#[test]
fn status_shows_every_component() {
    let (test_box, daemon) = five_gpu_box::start();
    if !test_box.json(&["status", "-o", "json"])["will_not_act"].is_null() {
        skip("in a PID namespace of its own the status has one line more");
        return;
    }
    let directory = test_box.path("state");
    let caller = test_box.json(&["status", "-o", "json"])["user"].clone();
    let rights = if rustix::process::getuid().is_root() {
        "may look, may end any user's processes, may change the rules"
    } else {
        "may look, may end your own processes"
    };
    let expected = [
        "gpukilld V, protocol N.N · up Ns · you are CALLER: RIGHTS",
        "",
        " nvidia   N GPUs, driver N.N.N, CUDA N.N, N.N ms a poll",
        " others   amd, intel, drm: no device",
        " GPU N    fault since N:N:N: utilization and others: NVML reports an unknown error (N)",
        " GPU N    fault since N:N:N: lost (GPU_IS_LOST): needs a reset or a reboot",
        " polling  every N ms, last N.N s ago, N late of N",
        " guard    dry-run: records what soft would do, and warns and ends nobody; no rules, so \
        nobody is limited, N open violations; would have warned of N violations and ended N \
          jobs today",
        " rogue    watching, no findings",
        " store    SIZE samples, N KiB audit, written N.N s ago, in DIRECTORY",
        "",
    ]
    .join("\n");
    let now = |arguments: &[&str]| {
        let text = test_box.ctl(arguments).stdout;
        let text = text.replace(directory.to_str().unwrap(), "DIRECTORY");
        let text = text.replace(caller.as_str().unwrap_or("-"), "CALLER");
        let text = text.replace(rights, "RIGHTS");
        let text = without_numbers(&text.replace(env!("CARGO_PKG_VERSION"), "V"));
        // A database file of a few pages is about a MiB.
        ["N KiB samples", "N.N MiB samples"]
            .iter()
            .fold(text, |text, size| text.replace(size, "SIZE samples"))
    };
    eventually_equals(&expected, || now(&["status"]));
    for width in [40, 80, 100, 120] {
        let narrow = test_box
            .ctl(&["status", "--width", &width.to_string()])
            .stdout;
        let widest = narrow.lines().map(|line| line.chars().count()).max();
        assert!(widest <= Some(width), "{narrow}");
    }
    daemon.stop();
}

/// A text with `N` in place of each number.
fn without_numbers(text: &str) -> String {
    let mut shown = String::new();
    for c in text.chars() {
        match (c.is_ascii_digit(), shown.ends_with('N')) {
            (false, _) => shown.push(c),
            (true, false) => shown.push('N'),
            (true, true) => {}
        }
    }
    shown
}

#[test]
fn colour_only_on_terminals_or_on_request() {
    let (test_box, daemon) = five_gpu_box::start();
    let colored = |arguments: &[&str], variable: (&str, &str)| {
        let output = test_box
            .client_command(arguments)
            .env(variable.0, variable.1)
            .output();
        let output = output.unwrap();
        assert_eq!(output.status.code(), Some(0));
        output.stdout.contains(&0x1b)
    };
    for command in ["list", "status"] {
        let always = [command, "--color", "always"];
        for (arguments, variable, expected) in [
            (&[command][..], ("TERM", "xterm"), false),
            (&always, ("TERM", "xterm"), true),
            // A flag has precedence over an environment variable.
            (&always, ("NO_COLOR", "1"), true),
            (&[command, "--color", "never"], ("TERM", "xterm"), false),
            (&[command], ("NO_COLOR", "1"), false),
            (&[command], ("GPUKILL_USE_COLORS", "true"), false),
        ] {
            assert_eq!(
                colored(arguments, variable),
                expected,
                "{arguments:?} {variable:?}"
            );
        }
    }
    // Colour adds no information to the text.
    let plain = normalized_screen(&test_box, &["list", "--color", "never"]);
    eventually_equals(&plain, || {
        without_colors(&normalized_screen(
            &test_box,
            &["list", "--color", "always"],
        ))
    });
    daemon.stop();
}

fn without_colors(text: &str) -> String {
    let mut parts = text.split("\x1b[");
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |plain, part| {
        let (_, after) = part.split_once('m').unwrap();
        plain + after
    })
}

#[test]
fn terminal_gets_colours_and_its_width() {
    let (test_box, daemon) = five_gpu_box::start();
    let on_terminal = |variables: &[(&str, &str)]| {
        let mut client = test_box.client_command(&["list"]);
        client.envs(variables.iter().copied());
        let ran = Terminal::start(&client, 90, 40)?.wait();
        assert_eq!(ran.code, 0);
        Some(ran.stdout.replace("\r\n", "\n"))
    };
    let Some(colored) = on_terminal(&[]) else {
        return skip("there is no setsid here");
    };
    assert!(colored.contains("\x1b["), "{colored:?}");
    let widest = without_colors(&colored)
        .lines()
        .map(|line| line.chars().count())
        .max();
    assert_eq!(widest, Some(90), "{colored}");
    let plain = on_terminal(&[("NO_COLOR", "1")]).unwrap();
    assert!(!plain.contains('\x1b'), "{plain:?}");
    daemon.stop();
}
