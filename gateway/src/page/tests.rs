//! The rendering of pages: hostile names, every state of a host, and what a page may contain.

use super::assets::assets;
use super::format::{segment, size, thousands};
use super::gpus::{MAP_FROM, TRACES};
use super::past::RECENT;
use super::*;
use crate::settings::Settings;
use crate::upstream::tests::snapshot;
use crate::upstream::{DaemonFailure, Frame};
use axum::http::StatusCode;
use axum::http::header::WWW_AUTHENTICATE;
use flate2::Compression;
use flate2::write::GzEncoder;
use gpukill_proto::guard::{GuardMode, RuleKind, RuleName, RuleSource, RunKey, ViolationMark};
use gpukill_proto::model::{
    Device, DeviceId, GpuProcess, Instance, InstanceId, Loss, LossKind, Owner, OwnerKind,
};
use gpukill_proto::reading::Reading;
use gpukill_proto::units::{Bytes, Percent, Timestamp};
use std::io::Write as _;
use std::time::SystemTime;
use tokio::sync::watch;

/// Text that would be a script, an attribute or an entity, and runs from right to left.
const HOSTILE: &str = "<script>alert(1)</script>\"' onload=x &amp; \u{5d0}\u{5d1}";

fn process(pid: u32, owner: &str, command: &str) -> GpuProcess {
    GpuProcess {
        start_ticks: Reading::Value(77),
        memory: Reading::Value(Bytes::mib(10_240)),
        utilization: Reading::Value(Percent(42)),
        owner: Reading::Value(Owner {
            name: owner.into(),
            uid: Some(1000),
            kind: OwnerKind::User,
        }),
        command: Reading::Value(command.into()),
        name: Reading::Value("python".into()),
        ..GpuProcess::unknown(
            DeviceId("GPU-1".into()),
            pid,
            Timestamp(0),
            &Reading::Unsupported,
        )
    }
}

/// A host with one GPU, changed.
fn host(change: impl FnOnce(&mut Vec<Device>, &mut Vec<GpuProcess>)) -> DaemonView {
    let mut annotated = snapshot(SystemTime::now().into());
    let all = &mut annotated.snapshot;
    change(&mut all.devices, &mut all.processes);
    DaemonView {
        frame: Some(Arc::new(Frame::new(1, annotated).unwrap())),
        ..DaemonView::default()
    }
}

fn gateway(is_personal: bool) -> Arc<Gateway> {
    let (_, view) = watch::channel(Arc::default());
    let (_, stopped) = watch::channel(false);
    let settings = Settings {
        is_personal,
        ..Settings::default()
    };
    Gateway::new(settings, view, stopped)
}

/// The page with these parameters; its sections are late.
fn rendered(
    page: &'static Page,
    known: &'static [Parameter],
    set: &[(&str, &str)],
    view: &DaemonView,
) -> Result<String, Problem> {
    let parameters = Parameters::of(known, set).unwrap();
    let late = page.sections.iter().map(|_| None).collect();
    let document = render(&gateway(false), page, view, &parameters, late)?;
    Ok(document.text())
}

fn overview(view: &DaemonView) -> String {
    rendered(&OVERVIEW, OVERVIEW_PARAMETERS, &[], view).unwrap()
}

/// Every page, about a GPU, a person, a job and a process that exist.
fn all_pages(view: &DaemonView) -> Vec<String> {
    type Case<'a> = (
        &'static Page,
        &'static [Parameter],
        &'a [(&'a str, &'a str)],
    );
    let cases: [Case<'_>; 10] = [
        (&OVERVIEW, OVERVIEW_PARAMETERS, &[]),
        (&GPU, GPU_PARAMETERS, &[("gpu", "0")]),
        (&PERSON, PERSON_PARAMETERS, &[("user", HOSTILE)]),
        (&JOB, JOB_PARAMETERS, &[("job", HOSTILE)]),
        (&PROCESS, PROCESS_PARAMETERS, &[("process", "7-77")]),
        (&HISTORY, HISTORY_PARAMETERS, &[("range", "7d")]),
        (&GUARD, PLAIN_PARAMETERS, &[]),
        (&ROGUE, PLAIN_PARAMETERS, &[]),
        (&ACTIONS, ACTION_PARAMETERS, &[("user", HOSTILE)]),
        (&STATUS, PLAIN_PARAMETERS, &[]),
    ];
    cases
        .into_iter()
        .map(|(page, known, set)| rendered(page, known, set, view).unwrap())
        .collect()
}

#[test]
fn hostile_names_are_text_on_every_page() {
    let view = host(|devices, processes| {
        devices[0].name = Reading::Value(HOSTILE.into());
        processes.push(process(7, HOSTILE, HOSTILE));
    });
    for page in all_pages(&view) {
        assert!(!page.contains("<script>alert"), "{page}");
        // Of all scripts the page has one, and nothing else is executable.
        assert_eq!(page.matches("<script").count(), 1, "{page}");
        for forbidden in [" style=", "javascript:", "<iframe", "<object"] {
            assert!(!page.contains(forbidden), "{forbidden}: {page}");
        }
        // No attribute ends early: every quote of a name is an entity.
        assert!(!page.contains("\"' onload"), "{page}");
    }
    let page = overview(&view);
    assert!(page.contains("<bdi>&lt;script&gt;alert(1)"), "{page}");
    let path = format!("/person/{}", segment(HOSTILE));
    assert!(
        page.contains(&path) && !path.contains(['<', '"', ' ']),
        "{page}"
    );
}

#[test]
fn page_has_its_parts() {
    let view = host(|_, processes| processes.push(process(7, "alice", "/usr/bin/python train.py")));
    let page = overview(&view);
    for part in [
        "<!DOCTYPE html>",
        "<html lang=\"en\">",
        "href=\"/gpu/GPU-1\"",
        "href=\"/process/7-77\"",
        "href=\"/person/alice\"",
        "<bdi>python train.py</bdi>",
        "10.0 GiB",
        "aria-current=\"page\">Overview</a>",
        "memory: alice 10.0 GiB",
    ] {
        assert!(page.contains(part), "{part}: {page}");
    }
    let fragment = rendered(&OVERVIEW, OVERVIEW_PARAMETERS, &[("fragment", "1")], &view);
    let fragment = fragment.unwrap();
    assert!(fragment.starts_with("<div id=\"page\""), "{fragment}");
    assert!(page.contains(&fragment[fragment.find("<main").unwrap()..]));
}

#[test]
fn unknown_values_say_why() {
    let view = host(|devices, _| {
        devices[0].vitals.temperature = Reading::Failed("timeout".into());
        devices[0].vitals.power = Reading::Unsupported;
    });
    let page = overview(&view);
    assert!(
        page.contains("title=\"failed: timeout\">?</span>"),
        "{page}"
    );
    assert!(page.contains("title=\"unsupported\">n/a</span>"), "{page}");
    // The memory is stale, and not 0.
    assert!(page.contains("title=\"stale: 12 s\">old</span>"), "{page}");
}

#[test]
fn every_state_of_a_gpu_is_shown() {
    let lost = host(|devices, _| {
        devices[0].lost = Some(Loss {
            since: Timestamp(0),
            reason: "XID 79".into(),
            kind: LossKind::Lost,
        });
    });
    let page = overview(&lost);
    assert!(
        page.contains("is lost and needs a reset or a reboot"),
        "{page}"
    );
    assert!(page.contains("(XID 79)"), "{page}");
    let none = host(|devices, _| devices.clear());
    assert!(overview(&none).contains("No GPU was found"));
    let shared = host(|devices, _| devices[0].memory_unified = true);
    assert!(overview(&shared).contains("memory is shared with the host"));
    let divided = host(|devices, _| {
        devices[0].instances = vec![Instance {
            id: InstanceId { gpu: 1, compute: 0 },
            uuid: DeviceId("MIG-1".into()),
            profile: Reading::Value("3g.40gb".into()),
            memory_total: Reading::Value(Bytes::mib(40_960)),
            memory_used: Reading::Value(Bytes::mib(1_024)),
            process_count: Reading::Value(0),
        }];
    });
    let page = overview(&divided);
    assert!(
        page.contains("instance 1/0 3g.40gb: 1.0 / 40.0 GiB"),
        "{page}"
    );
    let unexplained = host(|devices, _| {
        devices[0].memory_used = Reading::Value(Bytes::mib(36_454));
        devices[0].memory_unattributed = Reading::Value(Bytes::mib(36_454));
    });
    let page = overview(&unexplained);
    assert!(
        page.contains("has 35.6 GiB that no process explains"),
        "{page}"
    );
    assert!(page.contains("unattributed 35.6 GiB"), "{page}");
}

#[test]
fn broken_rules_are_noticed() {
    let mut annotated = snapshot(SystemTime::now().into());
    annotated.snapshot.processes = vec![process(7, "bob", "python")];
    annotated.guard.open = 1;
    annotated.guard.marks = vec![ViolationMark {
        run: RunKey {
            device: DeviceId("GPU-1".into()),
            instance: None,
            pid: 7,
            start_ticks: 77,
        },
        rule: RuleName {
            source: RuleSource::Default,
            kind: RuleKind::Idle,
        },
        measured: None,
        mode: GuardMode::Soft,
        deadline: Some(Timestamp::from(SystemTime::now()).plus_seconds(600)),
        would_have_ended_at: None,
        is_sole: true,
        can_snooze: false,
    }];
    let view = DaemonView {
        frame: Some(Arc::new(Frame::new(1, annotated).unwrap())),
        ..DaemonView::default()
    };
    let page = overview(&view);
    assert!(
        page.contains("<b>bob</b></bdi> breaks <b><bdi>default: idle"),
        "{page}"
    );
    assert!(page.contains("1 open</a>"), "{page}");
}

#[test]
fn many_gpus_are_a_map() {
    let view = host(|devices, _| {
        let first = devices[0].clone();
        devices.extend((1..200).map(|index| Device {
            id: DeviceId(format!("GPU-{}", index + 1)),
            index,
            ..first.clone()
        }));
    });
    let page = overview(&view);
    assert!(
        page.contains("<canvas class=\"heat\" id=\"heat\""),
        "{page}"
    );
    assert_eq!(page.matches("<li class=\"gpu\"").count(), 20);
    let few = host(|devices, _| devices.truncate(MAP_FROM - 1));
    assert!(!overview(&few).contains("<canvas"));
}

#[test]
fn long_tables_have_pages_and_are_searched() {
    let view = host(|_, processes| {
        processes.extend((1..=450).map(|pid| process(pid, "alice", &format!("job-{pid}"))));
    });
    let rows = |set: &[(&str, &str)]| {
        let page = rendered(&OVERVIEW, OVERVIEW_PARAMETERS, set, &view).unwrap();
        (page.matches("<tr data-key").count(), page)
    };
    let (count, page) = rows(&[]);
    assert_eq!(count, 200);
    assert!(page.contains("href=\"?from=200\""), "{page}");
    let (count, page) = rows(&[("from", "400"), ("sort", "memory")]);
    assert_eq!(count, 50);
    assert!(
        page.contains("href=\"?sort=memory&amp;from=200\""),
        "{page}"
    );
    assert_eq!(rows(&[("q", "JOB-44")]).0, 11);
    assert!(rows(&[("q", "nothing")]).1.contains("No process matches."));
}

#[test]
fn old_data_is_shown_with_the_reason() {
    let mut view = host(|_, _| {});
    view.failure = Some(DaemonFailure {
        what: "gpukilld is not running".into(),
        hint: Some("see why: systemctl status gpukilld".into()),
        since: Timestamp(0),
    });
    let page = overview(&view);
    assert!(
        page.contains("role=\"alert\"><p>gpukilld is not running"),
        "{page}"
    );
    assert!(page.contains("href=\"/gpu/GPU-1\""), "{page}");
    // Its age changes, so that it is not kept.
    let parameters = Parameters::default();
    assert_eq!(key(&OVERVIEW, &parameters, &view, 1, &[]), None);
    view.failure = None;
    assert!(key(&OVERVIEW, &parameters, &view, 1, &[]).is_some());
}

#[test]
fn sections_show_their_answer_or_why_there_is_none() {
    let view = host(|_, _| {});
    let denied = Problem::new(StatusCode::FORBIDDEN, "cannot see <it>").with_hint("ask an admin");
    let recent = Arc::new(Document::html("<p>recent</p>".into()));
    let refused = "<p class=\"warn\">cannot see &lt;it&gt;</p><p class=\"soft\">ask an admin</p>";
    let answers: [(SectionAnswer, &str); 3] = [
        (None, "One moment…"),
        (Some(Err(denied)), refused),
        (Some(Ok(recent)), "<p>recent</p>"),
    ];
    for (answer, expected) in answers {
        let answers = OVERVIEW.sections.iter().map(|section| {
            let is_this = section.name == RECENT.name;
            answer.clone().filter(|_| is_this)
        });
        let answers = answers.collect();
        let page = render(
            &gateway(false),
            &OVERVIEW,
            &view,
            &Parameters::default(),
            answers,
        );
        let page = page.unwrap().text();
        assert!(page.contains(expected), "{page}");
    }
}

#[test]
fn traces_are_drawn() {
    let view = host(|_, _| {});
    let traces = serde_json::json!({ "GPU-1": ["M0 90L1 80", "M0 90L1 80L1 100Z"] });
    let traces = Arc::new(Document::json(&traces).unwrap());
    let answers = OVERVIEW.sections.iter().map(|section| {
        let is_traces = section.name == TRACES.name;
        is_traces.then(|| Ok(Arc::clone(&traces)))
    });
    let answers = answers.collect();
    let page = render(
        &gateway(false),
        &OVERVIEW,
        &view,
        &Parameters::default(),
        answers,
    );
    let page = page.unwrap().text();
    assert!(page.contains("<path d=\"M0 90L1 80\"></path>"), "{page}");
}

#[test]
fn unknown_gpu_is_no_page() {
    let view = host(|_, _| {});
    let problem = rendered(&GPU, GPU_PARAMETERS, &[("gpu", "7")], &view).unwrap_err();
    assert_eq!(problem.status(), StatusCode::NOT_FOUND);
    let problem = rendered(&PROCESS, PROCESS_PARAMETERS, &[("process", "x")], &view);
    assert_eq!(problem.unwrap_err().status(), StatusCode::BAD_REQUEST);
}

#[test]
fn page_without_a_token_has_no_data() {
    let missing = Problem::new(StatusCode::UNAUTHORIZED, "this needs a token");
    let response = respond_problem(&gateway(true), missing);
    assert_eq!(response.status(), StatusCode::UNAUTHORIZED);
    assert!(response.headers().contains_key(WWW_AUTHENTICATE));
    assert_eq!(response.headers()[CONTENT_SECURITY_POLICY], POLICY);
    let missing = Problem::new(StatusCode::UNAUTHORIZED, "this needs a token");
    let page = layout::problem_page(&missing, true).into_string();
    assert!(page.contains("data-locked=\"\"") && page.contains("id=\"unlock-form\""));
    assert!(page.contains("gpukillctl web"), "{page}");
    let other = Problem::new(StatusCode::NOT_FOUND, "there is no such path");
    let page = layout::problem_page(&other, false).into_string();
    assert!(page.contains("<h1>there is no such path</h1>") && !page.contains("data-locked"));
}

#[test]
fn personal_gateway_acts_and_others_say_how() {
    let view = host(|_, processes| processes.push(process(7, "alice", "python")));
    let parameters = Parameters::of(PROCESS_PARAMETERS, &[("process", "7")]).unwrap();
    let page = |is_personal| {
        let late = PROCESS.sections.iter().map(|_| None).collect();
        let page = render(&gateway(is_personal), &PROCESS, &view, &parameters, late);
        page.unwrap().text()
    };
    let (own, of_host) = (page(true), page(false));
    assert!(own.contains(" data-acts=\"\"") && !of_host.contains(" data-acts"));
    for page in [own, of_host] {
        assert!(page.contains("<code>gpukillctl kill 7</code>"), "{page}");
        assert!(
            page.contains(
                "data-end=\"{&quot;pids&quot;:[7],&quot;scope&quot;:&quot;process&quot;}\""
            )
        );
    }
}

#[test]
fn first_load_is_small() {
    let view = host(|devices, processes| {
        let first = devices[0].clone();
        devices.extend((1..8).map(|index| Device {
            id: DeviceId(format!("GPU-{}", index + 1)),
            index,
            ..first.clone()
        }));
        processes.extend((1..=64).map(|pid| process(pid, "alice", &format!("python {pid}.py"))));
    });
    let files = assets();
    let all = [
        overview(&view),
        files.style.document.text(),
        files.script.document.text(),
        files.icon.document.text(),
    ];
    let sizes = all.map(|text| {
        let mut packed = GzEncoder::new(Vec::new(), Compression::new(4));
        packed.write_all(text.as_bytes()).unwrap();
        packed.finish().unwrap().len()
    });
    assert!(sizes.iter().sum::<usize>() < 60_000, "{sizes:?}");
}

#[test]
fn files_are_found_by_the_names_that_pages_have() {
    let page = overview(&host(|_, _| {}));
    let names = page.split("/assets/").skip(1);
    let names: Vec<&str> = names.map(|rest| rest.split('"').next().unwrap()).collect();
    assert_eq!(names.len(), 3, "{names:?}");
    let status = |name: &str| {
        let parameters = Parameters::of(&[assets::FILE], &[("file", name)]).unwrap();
        let answer = assets::respond(&parameters, &HeaderMap::new());
        answer.map_or_else(|problem| problem.status(), |response| response.status())
    };
    for name in names {
        assert_eq!(status(name), StatusCode::OK, "{name}");
    }
    assert_eq!(status("page.css"), StatusCode::NOT_FOUND);
}

#[test]
fn colours_are_distinct_and_stay() {
    let names = [
        "alice", "bob", "carol", "dana", "erin", "frank", "grace", "heidi",
    ];
    let list = |names: &[&str]| {
        let view = host(|_, processes| {
            processes.extend(
                names
                    .iter()
                    .zip(1..)
                    .map(|(name, pid)| process(pid, name, "x")),
            );
        });
        People::new(&view.frame.unwrap().list)
    };
    let all = list(&names);
    let colours: std::collections::BTreeSet<usize> =
        names.iter().map(|name| all.colour(name)).collect();
    assert_eq!(colours.len(), 8);
    // Somebody alone has the colour of their name, also on a page of the past.
    assert_eq!(list(&["dana"]).colour("dana"), list(&[]).colour("dana"));
}

#[test]
fn pages_are_kept_for_other_viewers() {
    let pages = RenderedPages::default();
    for number in 0..40 {
        pages.keep(number.to_string(), &Arc::new(Document::html(String::new())));
    }
    assert!(pages.find("7").is_none() && pages.find("8").is_some() && pages.find("39").is_some());
}

#[test]
fn empty_fields_of_a_form_are_left_out() {
    let query = without_empty_fields("sort=&q=a%20b&kind=");
    assert_eq!(query, "q=a+b");
    let uri = |text: &str| text.parse::<Uri>().unwrap();
    assert!(is_fragment(&uri("/?sort=gpu&fragment=1")) && !is_fragment(&uri("/?q=fragment")));
}

#[test]
fn numbers_and_names_are_written_for_people() {
    assert_eq!(
        [0, 999, 1_000, 3_104_567].map(thousands),
        ["0", "999", "1,000", "3,104,567"]
    );
    assert_eq!([0, 1, 1 << 30].map(size), ["0 GiB", "1 MiB", "1.0 GiB"]);
    assert_eq!(segment("tree 7/..\u{e9}"), "tree%207%2F%2E%2E%C3%A9");
}

#[test]
fn rules_are_in_words_with_their_line() {
    let text =
        "[global]\n\n[user_policies.alice]\nmemory_limit_gb = 40\n\n[[rules]]\nname = \"<b>\"\n";
    assert_eq!(guard::line_of(text, ""), Some(1));
    assert_eq!(guard::line_of(text, "alice"), Some(3));
    assert_eq!(guard::line_of(text, "<b>"), Some(7));
    assert_eq!(guard::line_of(text, "bob"), None);
    for (kind, number, expected) in [
        ("memory", 61 << 30, "61.0 GiB"),
        ("waste", 5, "5 %"),
        ("idle", 7_200_000, "2h 0m"),
        ("rogue", 4, "critical"),
        ("processes", 1_200, "1,200"),
    ] {
        assert_eq!(guard::amount(kind, number), expected, "{kind}");
    }
}
