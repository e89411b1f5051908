//! The pages over HTTP and in a browser: every page, hostile names, live numbers in place, both themes,
//! three widths, and the end of a job by keyboard alone.

use super::wait_until_ready;
use gpukill_tests::harness::{
    Browser, Daemon, FakeDriver, Gateway, HttpResponse, TestBox, TestProcess, eventually, skip,
};
use serde_json::{Value, json};
use std::time::Duration;

/// The first argument of a process that would be a script.
const HOSTILE: &str = "<script>alert(1)</script>\"'&amp;";

/// A gateway of a host with a GPU that hostile processes use, and one that is lost.
struct HostileGateway {
    // Dropped in this order.
    gateway: Gateway,
    _daemon: Daemon,
    test_box: TestBox,
    process: TestProcess,
}

impl HostileGateway {
    fn start() -> Self {
        let process = TestProcess::start(HOSTILE);
        let test_box = TestBox::new();
        test_box.set_driver_state(&driver_state(&process, 70, false));
        let daemon = test_box.start();
        let gateway = Gateway::start(&test_box, "");
        wait_until_ready(&gateway);
        test_box.set_driver_state(&driver_state(&process, 70, true));
        eventually("the command line is known, and a GPU is lost", || {
            let list = gateway.get("/api/v1/snapshot");
            let is_lost = list.json()["gpus"][1]["state"] == "lost";
            (is_lost && list.text().contains("alert(1)")).then_some(())
        });
        Self {
            gateway,
            _daemon: daemon,
            test_box,
            process,
        }
    }

    fn paths(&self) -> Vec<String> {
        let list = self.gateway.get("/api/v1/snapshot").json();
        let process = &list["procs"][0];
        let start = process["start_ticks"].as_u64().expect("a start");
        let owner = process["owner"].as_str().unwrap_or("nobody");
        let (pid, of_nobody) = (self.process.pid(), "%3Cb%3Enobody%3C%2Fb%3E");
        [
            "/".to_owned(),
            "/?sort=memory&q=alert".to_owned(),
            "/gpu/0".to_owned(),
            "/gpu/1?range=7d".to_owned(),
            format!("/person/{owner}"),
            format!("/person/{of_nobody}"),
            format!("/job/{of_nobody}"),
            format!("/process/{pid}-{start}"),
            format!("/process/{pid}"),
            "/history?range=1h".to_owned(),
            "/guard".to_owned(),
            "/rogue".to_owned(),
            "/actions?range=7d&kind=kill&user=".to_owned(),
            "/status".to_owned(),
        ]
        .into()
    }
}

fn driver_state(process: &TestProcess, percent: u32, is_lost: bool) -> Value {
    json!({"gpus": [
        {"utilization": {"gpu": percent, "memory": 0}, "processes": [
            {"pid": process.pid(), "memory": 1_u64 << 30, "sm": 1},
        ]},
        {"lost": is_lost},
    ]})
}

fn policy(answer: &HttpResponse) -> &str {
    answer.header("content-security-policy").expect("a policy")
}

#[test]
fn every_page_is_html_without_scripts_of_others() {
    let hostile = HostileGateway::start();
    let gateway = &hostile.gateway;
    for path in hostile.paths() {
        let answer = gateway.get(&path);
        let page = answer.text();
        assert_eq!(answer.status, 200, "{path}: {page}");
        let media_type = answer.header("content-type");
        assert_eq!(media_type, Some("text/html; charset=utf-8"), "{path}");
        for part in [
            "default-src 'none'",
            "script-src 'self';",
            "trusted-types gpukill",
        ] {
            assert!(
                policy(&answer).contains(part),
                "{path}: {}",
                policy(&answer)
            );
        }
        assert!(!policy(&answer).contains("unsafe"), "{path}");
        assert!(page.starts_with("<!DOCTYPE html>"), "{path}");
        assert_eq!(page.matches("<script").count(), 1, "{path}: {page}");
        for forbidden in ["<script>", "<b>nobody", " style=", " onload=", "src=\"http"] {
            assert!(!page.contains(forbidden), "{path}: {forbidden}: {page}");
        }
        let sign = if path.contains('?') { '&' } else { '?' };
        let fragment = gateway.get(&format!("{path}{sign}fragment=1"));
        assert!(fragment.text().starts_with("<div id=\"page\""), "{path}");
    }
    let overview = gateway.get("/").text();
    assert!(overview.contains("&lt;script&gt;alert(1)"), "{overview}");
    assert!(overview.contains("is lost and needs a reset"), "{overview}");
    let explained = eventually("what is known of the process", || {
        let page = gateway
            .get(&format!("/process/{}", hostile.process.pid()))
            .text();
        page.contains("May be ended by").then_some(page)
    });
    assert!(explained.contains("gpukillctl kill"), "{explained}");
    let rules = eventually("the rules", || {
        let page = gateway.get("/guard").text();
        page.contains("<pre class=\"rules\">").then_some(page)
    });
    assert!(rules.contains("data-replay"), "{rules}");
}

#[test]
fn problems_are_pages_for_browsers_alone() {
    let hostile = HostileGateway::start();
    let gateway = &hostile.gateway;
    for (path, status, message) in [
        ("/gpu/7", 404, "there is no such GPU"),
        ("/process/x", 400, "PID-START"),
        ("/?sort=x", 400, "sort is"),
        ("/?nothing=1", 400, "unknown parameter"),
    ] {
        let answer = gateway.get(path);
        assert_eq!(answer.status, status, "{path}");
        let page = answer.text();
        assert!(
            page.starts_with("<!DOCTYPE html>") && page.contains(message),
            "{page}"
        );
        let sign = if path.contains('?') { '&' } else { '?' };
        let fragment = gateway.get(&format!("{path}{sign}fragment=1"));
        assert_eq!(fragment.json()["status"], status, "{path}");
    }
    let browser = [("accept", "text/html,application/xhtml+xml")];
    let unknown = gateway.request("GET", "/nowhere", &browser);
    assert_eq!(unknown.status, 404);
    assert!(unknown.text().contains("<h1>there is no such path</h1>"));
    assert_eq!(gateway.get("/nowhere").json()["status"], 404);
}

#[test]
fn first_load_is_small_and_its_files_are_kept() {
    let hostile = HostileGateway::start();
    let gateway = &hostile.gateway;
    let packed = [("accept-encoding", "gzip")];
    let page = gateway.get("/").text();
    let mut bytes = gateway.request("GET", "/", &packed).body.len();
    let names: Vec<&str> = page
        .split("\"/assets/")
        .skip(1)
        .map(|rest| rest.split('"').next().expect("a name"))
        .collect();
    assert_eq!(names.len(), 3, "{names:?}");
    for name in names {
        let path = format!("/assets/{name}");
        let file = gateway.request("GET", &path, &packed);
        assert_eq!(file.status, 200, "{path}");
        bytes += file.body.len();
        let tag = file.header("etag").expect("a tag");
        assert!(tag.starts_with('"'), "{path}: {tag}");
        let headers = [packed[0], ("if-none-match", tag)];
        assert_eq!(
            gateway.request("GET", &path, &headers).status,
            304,
            "{path}"
        );
    }
    assert!(bytes <= 60_000, "{bytes}");
    assert_eq!(gateway.get("/assets/page.css").status, 404);
}

#[test]
fn pasted_rules_are_replayed_and_change_nothing() {
    let hostile = HostileGateway::start();
    let gateway = &hostile.gateway;
    let rules = gateway.get("/api/v1/guard/rules").json();
    let body = json!({ "rules": "[global]\ndefault_memory_limit_gb = 1\n", "hours": 1 });
    let replayed = gateway.post("/api/v1/guard/replay", "", &body);
    assert_eq!(replayed.status, 200, "{}", replayed.text());
    let members = |document: &Value| document.as_object().expect("an object").len();
    let in_force = gateway.get("/api/v1/guard/replay?hours=1").json();
    assert_eq!(members(&replayed.json()), members(&in_force));
    assert!(
        replayed.json()["rules"].as_u64() >= Some(1),
        "{}",
        replayed.text()
    );
    assert_eq!(gateway.get("/api/v1/guard/rules").json(), rules);
    for (body, why) in [
        (json!({ "rules": "[globl]\n" }), "globl"),
        (json!({ "rules": "", "hours": 0 }), "hours is 0"),
        (json!({ "hours": 1 }), "missing field `rules`"),
    ] {
        let refused = gateway.post("/api/v1/guard/replay", "", &body);
        assert_eq!(refused.status, 400, "{}", refused.text());
        assert!(refused.text().contains(why), "{}", refused.text());
    }
}

#[test]
fn cells_are_the_gpus_in_columns() {
    let hostile = HostileGateway::start();
    let cells = hostile.gateway.get("/api/v1/cells").json();
    assert_eq!(cells["gpu_index"], json!([0, 1]));
    assert_eq!(cells["util_pct"][0], 70);
    assert_eq!(cells["state"], json!(["ok", "lost"]));
    assert_eq!(cells["vendor"][0], 0);
    assert_eq!(cells["vendors"], json!(["nvidia"]));
}

/// A browser, or a reported skip.
fn browser() -> Option<Browser> {
    let browser = Browser::start();
    if browser.is_none() {
        skip("this machine has no Chromium");
    }
    browser
}

#[test]
fn every_page_is_clean_in_a_browser() {
    let Some(mut browser) = browser() else {
        return;
    };
    let hostile = HostileGateway::start();
    let root = format!("http://{}", hostile.gateway.address());
    for (size, theme) in [
        ((360, 740), "light"),
        ((1280, 900), "dark"),
        ((2560, 1300), "light"),
    ] {
        browser.set_screen(size, theme);
        for path in hostile.paths() {
            browser.load(&format!("{root}{path}"));
            eventually("the page is live", || {
                let class = browser.evaluate("document.getElementById('live').className");
                (class == "live on").then_some(())
            });
            let what = format!("{path} {size:?} {theme}");
            assert_eq!(browser.console(), Vec::<String>::new(), "{what}");
            for url in browser.requests() {
                assert!(url.starts_with(&root), "{what}: {url}");
            }
            let overflow = "document.scrollingElement.scrollWidth - innerWidth";
            let overflow = browser.evaluate(overflow).as_f64().expect("a number");
            assert!(overflow <= 0.0, "{what}: {overflow}");
            assert_eq!(browser.nameless_controls(), Vec::<String>::new(), "{what}");
        }
    }
}

#[test]
fn numbers_change_in_place() {
    let Some(mut browser) = browser() else {
        return;
    };
    let hostile = HostileGateway::start();
    browser.set_screen((1280, 400), "light");
    browser.load(&format!("http://{}/", hostile.gateway.address()));
    let shown = "document.querySelector('.gpu .util b').textContent";
    assert_eq!(browser.evaluate(shown), "70");
    browser.evaluate(
        "window.row = document.querySelector('.gpu'); row.querySelector('a').focus(); \
         getSelection().selectAllChildren(document.querySelector('.tiles dt')); scrollTo(0, 90)",
    );
    let state = driver_state(&hostile.process, 31, true);
    hostile.test_box.set_driver_state(&state);
    eventually("the new value is shown", || {
        (browser.evaluate(shown) == "31").then_some(())
    });
    // The same element, with the focus, the selection and the place.
    let kept = "[row === document.querySelector('.gpu'), row.contains(document.activeElement), \
                getSelection().toString(), scrollY]";
    assert_eq!(browser.evaluate(kept), json!([true, true, "Busy", 90]));
    hostile.gateway.terminate();
    eventually("the lost connection is shown", || {
        let text = browser.evaluate("document.getElementById('live').textContent");
        text.as_str()?.ends_with(" old").then_some(())
    });
    assert_eq!(browser.evaluate(shown), "31");
}

#[test]
fn job_is_ended_by_keyboard() {
    let Some(mut browser) = browser() else {
        return;
    };
    let process = TestProcess::start("python");
    let test_box = TestBox::new();
    let driver = FakeDriver::start(&test_box, Duration::from_millis(300));
    let _daemon = test_box.start();
    let (gateway, token) = Gateway::start_personal(&test_box);
    let pid = process.pid();
    driver.add_processes(&[pid]);
    let root = format!("http://{}", gateway.address());
    // Without the token there is nothing but the place for it.
    browser.load(&format!("{root}/process/{pid}"));
    eventually("the page asks for its token", || {
        let hidden = browser.evaluate("document.getElementById('unlock').hidden");
        (hidden == false).then_some(())
    });
    let text = browser.evaluate("document.body.innerText");
    assert!(!text.as_str().expect("a text").contains("python"), "{text}");
    browser.load("about:blank");
    browser.load(&format!("{root}/process/{pid}#{token}"));
    let button = "document.querySelector('details.act[data-end*=process] summary')";
    eventually("the process is shown", || {
        let found = browser.evaluate(&format!("{button} !== null"));
        (found == true).then_some(())
    });
    assert_eq!(browser.evaluate("location.hash"), "");
    browser.evaluate(&format!("{button}.focus()"));
    browser.press("Enter");
    let focused = "document.activeElement.textContent";
    eventually("the plan is shown", || {
        let text = browser.evaluate("document.querySelector('dialog')?.innerText ?? ''");
        let is_planned = text.as_str()?.contains(&pid.to_string());
        is_planned.then_some(())
    });
    // Cancel comes first.
    assert_eq!(browser.evaluate(focused), "Cancel");
    browser.press("Tab");
    assert_eq!(browser.evaluate(focused), "End 1 process");
    browser.press("Enter");
    eventually("the process has ended", || {
        let text = browser.evaluate("document.querySelector('dialog').innerText");
        text.as_str()?.contains("ended").then_some(())
    });
    browser.press("Escape");
    eventually("the dialog is closed", || {
        let open = browser.evaluate("document.querySelector('dialog') !== null");
        (open == false).then_some(())
    });
}
