//! Prometheus reads the metrics, the rules and the queries of the dashboard; where its programs are
//! not installed (Debian's package `prometheus`), the scenarios are skipped.

use super::boards::{BusyBoxScrape, Query, each_rule, queries_of_board, rules};
use super::promql::query_names;
use super::wait_until_ready;
use gpukill_tests::harness::{
    CommandOutput, Gateway, HttpResponse, RunningProgram, TestBox, eventually, skip,
};
use serde_json::Value;
use std::io::Write as _;
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Whether this program of Prometheus is installed. Reports the skip if not.
fn is_installed(program: &str) -> bool {
    let asked = Command::new(program).arg("--version").output();
    if asked.is_err() {
        skip(&format!("{program} is not installed (package prometheus)"));
    }
    asked.is_ok()
}

fn packaged(file: &str) -> PathBuf {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../packaging/prometheus");
    directory
        .join(file)
        .canonicalize()
        .expect("the file exists")
}

/// Asserts that promtool finds nothing wrong with these metrics.
fn assert_metrics_are_valid(metrics: &str) {
    let mut promtool = Command::new("promtool")
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("promtool starts");
    let mut input = promtool.stdin.take().expect("it is piped");
    input.write_all(metrics.as_bytes()).expect("it reads");
    drop(input);
    let output = promtool.wait_with_output().expect("it ends");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.is_empty(), "{said}");
}

#[test]
fn metrics_are_valid_with_and_without_a_daemon() {
    if !is_installed("promtool") {
        return;
    }
    assert_metrics_are_valid(&BusyBoxScrape::new().text);
    let test_box = TestBox::new();
    let gateway = Gateway::start(&test_box, "");
    let text = gateway.get("/metrics").text();
    assert!(text.contains("\ngpukill_up 0\n"), "{text}");
    assert_metrics_are_valid(&text);
}

#[test]
fn rules_pass_their_tests() {
    if !is_installed("promtool") {
        return;
    }
    let words: [&[&str]; 2] = [&["check", "rules"], &["test", "rules"]];
    for (words, file) in words.iter().zip(["gpukill.rules.yml", "gpukill.test.yml"]) {
        let ran = CommandOutput::run(Command::new("promtool").args(*words).arg(packaged(file)));
        assert_eq!(ran.code, 0, "{ran:?}");
    }
}

/// A Prometheus server that scrapes a gateway every second and evaluates the rules.
struct Prometheus {
    _program: RunningProgram,
    address: String,
    _directory: tempfile::TempDir,
}

impl Prometheus {
    fn start(gateway: &Gateway) -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let settings = directory.path().join("prometheus.yml");
        let text = format!(
            "global: {{scrape_interval: 1s, evaluation_interval: 1s}}\n\
             rule_files: [{:?}]\n\
             scrape_configs:\n  - job_name: gpukill\n    static_configs: [{{targets: ['{}']}}]\n",
            packaged("gpukill.rules.yml"),
            gateway.address()
        );
        std::fs::write(&settings, text).expect("a settings file");
        let option = |name: &str, path: &Path| format!("--{name}={}", path.display());
        let program = RunningProgram::start(
            Command::new("prometheus")
                .arg(option("config.file", &settings))
                .arg(option("storage.tsdb.path", &directory.path().join("data")))
                .arg("--web.listen-address=127.0.0.1:0"),
        );
        let address = loop {
            let line = program.next_error_line();
            if let Some((_, after)) = line.split_once("msg=\"Listening on\" address=") {
                break after.split(' ').next().unwrap_or_default().to_owned();
            }
        };
        let started = Self {
            _program: program,
            address,
            _directory: directory,
        };
        // It listens before it has read its store.
        eventually("Prometheus is ready", || {
            (started.get("/-/ready").status == 200).then_some(())
        });
        started
    }

    fn get(&self, path: &str) -> HttpResponse {
        let mut stream = TcpStream::connect(&self.address).expect("it listens");
        // HTTP/1.0 has no chunks.
        let request = format!("GET {path} HTTP/1.0\r\nhost: {}\r\n\r\n", self.address);
        stream.write_all(request.as_bytes()).expect("it is sent");
        HttpResponse::read(stream)
    }

    /// The data of a path of the API.
    fn api(&self, path: &str) -> Value {
        let answer = self.get(&format!("/api/v1/{path}")).json();
        assert_eq!(answer["status"], "success", "{path}: {answer}");
        answer["data"].clone()
    }

    /// The series that a query finds now.
    fn query(&self, expression: &str) -> Vec<Value> {
        let escaped: String = expression
            .bytes()
            .map(|byte| format!("%{byte:02x}"))
            .collect();
        let data = self.api(&format!("query?query={escaped}"));
        data["result"].as_array().expect("a list").clone()
    }
}

/// The expression as Grafana sends it when everything is selected.
fn with_all_selected(expression: &str) -> String {
    expression
        .replace("$instance", ".*")
        .replace("$gpu", ".*")
        .replace("$__rate_interval", "1m")
        .replace("$__range", "1h")
}

#[test]
fn queries_of_the_dashboard_find_series() {
    if !is_installed("prometheus") {
        return;
    }
    let scrape = BusyBoxScrape::new();
    wait_until_ready(&scrape.gateway);
    let families = scrape.types();
    let prometheus = Prometheus::start(&scrape.gateway);
    // Two scrapes, which a rate needs.
    eventually("the gateway is scraped", || {
        let found = prometheus.query("count_over_time(gpukill_up[1m]) >= 2");
        (!found.is_empty()).then_some(())
    });
    for Query {
        place, expression, ..
    } in queries_of_board()
    {
        let names = query_names(&expression);
        let is_there = |name: &String| {
            let family = name.strip_suffix("_bucket").unwrap_or(name);
            families.contains_key(family)
        };
        let expression = with_all_selected(&expression);
        // Nothing has happened yet that is counted there.
        let is_filtered = expression.ends_with(" > 0");
        if names.metrics.keys().all(is_there) && !is_filtered {
            eventually(&format!("{place} has data: {expression}"), || {
                (!prometheus.query(&expression).is_empty()).then_some(())
            });
        } else {
            let _ = prometheus.query(&expression);
        }
    }
    let rules = rules();
    let expected = each_rule(&rules).count();
    eventually("every rule is evaluated", || {
        let data = prometheus.api("rules");
        let all: Vec<&Value> = each_rule(&data).collect();
        let failed = all.iter().find(|rule| rule["health"] == "err");
        assert_eq!(failed, None);
        let evaluated = all.iter().filter(|rule| rule["health"] == "ok");
        (evaluated.count() == expected).then_some(())
    });
    // The box of this scenario is hot.
    eventually("the alert of the threshold fires", || {
        let found =
            prometheus.query("ALERTS{alertname=\"GpukillGpuAlert\", alertstate=\"firing\"}");
        (!found.is_empty()).then_some(())
    });
}
