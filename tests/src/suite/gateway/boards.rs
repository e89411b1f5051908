//! docs/metrics.md has every metric as it is scraped; the rules of Prometheus and the dashboard of
//! Grafana name only metrics and labels that are there.

use super::promql::query_names;
use super::wait_until_ready;
use gpukill_tests::harness::{Daemon, Gateway, TestBox, TestProcess, eventually};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// Labels that Prometheus adds to every series.
const TARGET_LABELS: [&str; 2] = ["instance", "job"];

/// The metric that Prometheus itself adds to every scrape.
const SCRAPE_RESULT: &str = "up";

/// The conditions under which a metric is in every scrape of a gateway with current data.
const ALWAYS_THERE: [&str; 2] = ["never", "no current data"];

/// A row of docs/metrics.md.
#[derive(Debug)]
struct DocumentedMetric {
    kind: String,
    /// The labels of each series.
    labels: BTreeSet<String>,
    /// The labels of some series.
    more_labels: BTreeSet<String>,
    /// When it has no series.
    absent_if: String,
}

impl DocumentedMetric {
    fn has(&self, label: &str) -> bool {
        let is_bound = self.kind == "histogram" && label == "le";
        is_bound || self.labels.contains(label) || self.more_labels.contains(label)
    }
}

fn workspace_file(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(path)
}

fn read(path: &str) -> String {
    let path = workspace_file(path);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The words in backquotes.
fn quoted(text: &str) -> BTreeSet<String> {
    let parts = text.split('`').skip(1).step_by(2);
    parts.map(str::to_owned).collect()
}

/// The metrics of docs/metrics.md.
fn documented() -> BTreeMap<String, DocumentedMetric> {
    let page = read("docs/metrics.md");
    let rows = page.lines().filter_map(|line| {
        let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
        let &[name, kind, labels, _unit, _meaning, absent_if] = cells.as_slice() else {
            return None;
        };
        let name = name.strip_prefix('`')?.strip_suffix('`')?;
        let (labels, more_labels) = labels.split_once(';').unwrap_or((labels, ""));
        let metric = DocumentedMetric {
            kind: kind.to_owned(),
            labels: quoted(labels),
            more_labels: quoted(more_labels),
            absent_if: absent_if.to_owned(),
        };
        Some((name.to_owned(), metric))
    });
    rows.collect()
}

/// The documented metric of a name in a query or a scrape.
fn documented_as<'a>(
    all: &'a BTreeMap<String, DocumentedMetric>,
    name: &str,
) -> Option<(String, &'a DocumentedMetric)> {
    let suffixes = ["_bucket", "_sum", "_count"].into_iter();
    let family = suffixes
        .filter_map(|suffix| name.strip_suffix(suffix))
        .find(|family| all.get(*family).is_some_and(|it| it.kind == "histogram"));
    let family = family.unwrap_or(name);
    Some((family.to_owned(), all.get(family)?))
}

/// The names of metrics in the sources of the gateway, without its tests.
fn names_in_sources() -> BTreeSet<String> {
    let mut files = vec![workspace_file("gateway/src/metrics.rs")];
    let parts = std::fs::read_dir(workspace_file("gateway/src/metrics")).unwrap();
    files.extend(parts.map(|entry| entry.unwrap().path()));
    let mut names = BTreeSet::new();
    for file in files.iter().filter(|it| it.is_file()) {
        let text = std::fs::read_to_string(file).unwrap();
        let code = text.split("#[cfg(test)]").next().unwrap_or_default();
        for part in code.split('"') {
            let is_name = part
                .bytes()
                .all(|it| it.is_ascii_lowercase() || it.is_ascii_digit() || it == b'_');
            let mut prefixes = ["gpukill_", "process_"].into_iter();
            if is_name && prefixes.any(|it| part.len() > it.len() && part.starts_with(it)) {
                names.insert(part.to_owned());
            }
        }
    }
    names
}

#[test]
fn every_metric_is_documented() {
    let documented: BTreeSet<String> = documented().into_keys().collect();
    let there = names_in_sources();
    assert!(there.len() > 50, "{there:?}");
    let undocumented: Vec<_> = there.difference(&documented).collect();
    let invented: Vec<_> = documented.difference(&there).collect();
    assert_eq!((undocumented, invented), (Vec::new(), Vec::new()));
}

/// A scrape of a box with a busy GPU, a MIG GPU and a GPU that has a fan and reports an XID, with
/// the box and its programs.
pub(super) struct BusyBoxScrape {
    pub(super) gateway: Gateway,
    pub(super) text: String,
    _daemon: Daemon,
    _test_box: TestBox,
    _process: TestProcess,
}

impl BusyBoxScrape {
    pub(super) fn new() -> Self {
        let process = TestProcess::start("python");
        let test_box = TestBox::new();
        test_box.configure("[alerts]\ntemp_threshold_celsius = 60\n");
        let gpus = json!([
            {
                "utilization": {"gpu": 70, "memory": 20}, "temperature": 71,
                "ecc": {"enabled": true}, "recovery_action": 1,
                "remapped_rows": {"correctable": 1, "pending": true},
                "processes": [{"pid": process.pid(), "memory": 1 << 30, "sm": 40}],
            },
            {"mig": true, "instances": [{"gpu_instance": 2, "compute_instance": 0}]},
            {"fan": 30},
        ]);
        test_box.set_driver_state(&json!({"gpus": gpus}));
        let daemon = test_box.start();
        let gateway = Gateway::start(&test_box, "[metrics]\nprocesses = true\n");
        wait_until_ready(&gateway);
        // An event that is there before the sensor is would not be reported.
        let event = json!([{"id": 1, "gpu": 2, "type": 8, "data": 79}]);
        test_box.set_driver_state(&json!({"gpus": gpus, "events": event}));
        let text = eventually("everything has series", || {
            let text = gateway.get("/metrics").text();
            let awaited = [
                "gpukill_process_utilization_ratio{",
                "gpukill_user_utilization_ratio{",
                "gpukill_gpu_xid_last_timestamp_seconds{",
                "gpukill_alerts{",
                "gpukill_guard_mode{",
                "gpukill_rogue_suspects{",
                "gpukill_gateway_requests_total{route=\"/metrics\"",
            ];
            let has = |start: &&str| text.lines().any(|line| line.starts_with(start));
            awaited.iter().all(has).then_some(text)
        });
        Self {
            gateway,
            text,
            _daemon: daemon,
            _test_box: test_box,
            _process: process,
        }
    }

    /// The labels of each series.
    fn series(&self) -> Vec<(String, BTreeSet<String>)> {
        let lines = self.text.lines().filter(|line| !line.starts_with('#'));
        let named = lines.map(|line| line.rsplit_once(' ').expect("a value").0);
        named.flat_map(|named| query_names(named).metrics).collect()
    }

    /// The type of each metric.
    pub(super) fn types(&self) -> BTreeMap<String, String> {
        let lines = self
            .text
            .lines()
            .filter_map(|line| line.strip_prefix("# TYPE "));
        let types = lines.map(|line| line.split_once(' ').expect("a type"));
        types
            .map(|(name, kind)| (name.to_owned(), kind.to_owned()))
            .collect()
    }
}

/// A query of the rules or the dashboard, with its place there.
#[derive(Debug)]
pub(super) struct Query {
    pub(super) place: String,
    pub(super) expression: String,
    /// The labels in the name of each line.
    legend: Vec<String>,
}

/// The rules for Prometheus.
pub(super) fn rules() -> Value {
    serde_saphyr::from_str(&read("packaging/prometheus/gpukill.rules.yml")).expect("YAML")
}

/// Each rule.
pub(super) fn each_rule(rules: &Value) -> impl Iterator<Item = &Value> {
    let groups = rules["groups"].as_array().expect("groups").iter();
    groups.flat_map(|group| group["rules"].as_array().expect("rules"))
}

fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    let text = value[key].as_str();
    text.unwrap_or_else(|| panic!("no {key}: {value}"))
}

/// The words after `from` in the texts `{{word}}` or `{{ $labels.word }}`.
fn labels_in_template(template: &str, from: &str) -> Vec<String> {
    let parts = template.split("{{").skip(1);
    let words = parts.filter_map(|part| part.split("}}").next()?.trim().strip_prefix(from));
    words.map(str::to_owned).collect()
}

fn queries_of_rules() -> Vec<Query> {
    let rules = rules();
    let queries = each_rule(&rules).map(|rule| {
        let name = rule["alert"].as_str().or(rule["record"].as_str());
        let annotations = rule["annotations"].as_object().into_iter().flatten();
        let texts = annotations.filter_map(|(_, text)| text.as_str());
        Query {
            place: name.expect("a name").to_owned(),
            expression: text(rule, "expr").to_owned(),
            legend: texts
                .flat_map(|text| labels_in_template(text, "$labels."))
                .collect(),
        }
    });
    queries.collect()
}

fn board() -> Value {
    serde_json::from_str(&read("packaging/grafana/gpukill.json")).expect("JSON")
}

/// The queries of the panels and of the variables of the dashboard.
pub(super) fn queries_of_board() -> Vec<Query> {
    let board = board();
    let panels = board["panels"].as_array().expect("panels").iter();
    let of_panels = panels.flat_map(|panel| {
        let targets = panel["targets"].as_array().into_iter().flatten();
        targets.map(move |target| Query {
            place: text(panel, "title").to_owned(),
            expression: text(target, "expr").to_owned(),
            legend: labels_in_template(text(target, "legendFormat"), ""),
        })
    });
    of_panels.collect()
}

/// The queries of the variables of the dashboard: a metric with matchers, and a label.
fn variables_of_board() -> Vec<(String, String)> {
    let board = board();
    let variables = board["templating"]["list"].as_array().expect("variables");
    let of_metrics = variables.iter().filter(|it| it["type"] == "query");
    let queries = of_metrics.map(|variable| {
        let query = text(&variable["query"], "query");
        assert_eq!(query, text(variable, "definition"));
        let inside = query
            .strip_prefix("label_values(")
            .and_then(|it| it.strip_suffix(')'));
        let (metric, label) = inside.expect(query).rsplit_once(", ").expect(query);
        (metric.to_owned(), label.to_owned())
    });
    queries.collect()
}

#[test]
fn every_query_names_metrics_and_labels_that_are_there() {
    let documented = documented();
    let scrape = BusyBoxScrape::new();
    let (series, types) = (scrape.series(), scrape.types());
    for (name, kind) in &types {
        let metric = documented.get(name).expect(name);
        assert_eq!(&metric.kind, kind, "{name}");
    }
    for (name, labels) in &series {
        let (_, metric) = documented_as(&documented, name).expect(name);
        let labels: BTreeSet<&String> = labels.iter().filter(|it| *it != "le").collect();
        let missing: Vec<_> = metric
            .labels
            .iter()
            .filter(|it| !labels.contains(it))
            .collect();
        assert_eq!(missing, [""; 0], "{name}");
        for label in labels {
            assert!(metric.has(label), "{name}: {label}");
        }
    }
    let recorded: BTreeSet<String> = each_rule(&rules())
        .filter_map(|rule| rule["record"].as_str().map(str::to_owned))
        .collect();
    let mut queries = queries_of_rules();
    queries.extend(queries_of_board());
    queries.extend(variables_of_board().into_iter().map(|(expression, label)| {
        let place = format!("the variable with {label}");
        Query {
            place,
            expression,
            legend: vec![label],
        }
    }));
    assert!(queries.len() > 80, "{}", queries.len());
    for query in &queries {
        assert_query_is_answered(query, &documented, &types, &recorded);
    }
}

/// Asserts that the query names metrics that have series, or that may have none, and labels that
/// they have.
fn assert_query_is_answered(
    query: &Query,
    documented: &BTreeMap<String, DocumentedMetric>,
    types: &BTreeMap<String, String>,
    recorded: &BTreeSet<String>,
) {
    let place = &query.place;
    let names = query_names(&query.expression);
    let mut known: BTreeSet<&str> = TARGET_LABELS.into();
    for (name, labels) in &names.metrics {
        if name == SCRAPE_RESULT {
            continue;
        }
        if recorded.contains(name) {
            // The labels of its own query.
            known.extend(["uuid", "gpu", "user"]);
            continue;
        }
        let found = documented_as(documented, name);
        let (family, metric) = found.unwrap_or_else(|| panic!("{place}: {name} is unknown"));
        let is_always_there = ALWAYS_THERE.contains(&metric.absent_if.as_str());
        let is_there = types.contains_key(&family);
        assert!(
            is_there || !is_always_there,
            "{place}: {name} has no series"
        );
        for label in labels {
            let is_known = metric.has(label) || TARGET_LABELS.contains(&label.as_str());
            assert!(is_known, "{place}: {name} has no label {label}");
        }
        known.extend(metric.labels.iter().map(String::as_str));
        known.extend(metric.more_labels.iter().map(String::as_str));
        known.extend((metric.kind == "histogram").then_some("le"));
    }
    for label in names.grouping.iter().chain(&query.legend) {
        assert!(known.contains(label.as_str()), "{place}: no label {label}");
    }
}

#[test]
fn dashboard_is_complete() {
    let board = board();
    let panels = board["panels"].as_array().expect("panels");
    let rows = panels.iter().filter(|panel| panel["type"] == "row");
    let rows: Vec<&str> = rows.map(|row| text(row, "title")).collect();
    assert_eq!(rows, ["Overview", "Per GPU", "People", "Guard", "Health"]);
    let ids: BTreeSet<u64> = panels
        .iter()
        .filter_map(|panel| panel["id"].as_u64())
        .collect();
    assert_eq!(ids.len(), panels.len(), "each panel has an id of its own");
    let mut taken = BTreeSet::new();
    for panel in panels {
        let title = text(panel, "title");
        let [x, y, width, height] =
            ["x", "y", "w", "h"].map(|key| panel["gridPos"][key].as_u64().expect(title));
        assert!(x + width <= 24, "{title}");
        for at in (x..x + width).flat_map(|x| (y..y + height).map(move |y| (x, y))) {
            assert!(taken.insert(at), "{title} lies on another panel at {at:?}");
        }
        if panel["type"] == "row" {
            continue;
        }
        assert!(text(panel, "description").ends_with('.'), "{title}");
        assert_eq!(panel["datasource"]["uid"], "${datasource}", "{title}");
        for target in panel["targets"].as_array().expect(title) {
            assert_eq!(target["datasource"]["uid"], "${datasource}", "{title}");
            // Every panel shows the hosts that are selected.
            assert!(
                text(target, "expr").contains("instance=~\"$instance\""),
                "{title}"
            );
        }
    }
}

#[test]
fn every_alert_is_tested_and_documented() {
    let tests: Value =
        serde_saphyr::from_str(&read("packaging/prometheus/gpukill.test.yml")).expect("YAML");
    let page = quoted(&read("docs/metrics.md").replace("```", ""));
    let tests = tests["tests"].as_array().expect("tests").iter();
    let mut fired = BTreeSet::new();
    let mut recorded = BTreeSet::new();
    for test in tests {
        for it in test["alert_rule_test"].as_array().into_iter().flatten() {
            if !it["exp_alerts"].as_array().expect("alerts").is_empty() {
                fired.insert(text(it, "alertname").to_owned());
            }
        }
        for it in test["promql_expr_test"].as_array().into_iter().flatten() {
            recorded.extend(query_names(text(it, "expr")).metrics.into_keys());
        }
    }
    let rules = rules();
    for rule in each_rule(&rules) {
        if let Some(name) = rule["record"].as_str() {
            assert!(recorded.contains(name), "{name} is not tested");
            assert!(page.contains(name), "{name} is not in docs/metrics.md");
            continue;
        }
        let name = text(rule, "alert");
        assert!(fired.contains(name), "{name} is not tested");
        assert!(page.contains(name), "{name} is not in docs/metrics.md");
        let severity = text(&rule["labels"], "severity");
        assert!(
            ["critical", "warning", "info"].contains(&severity),
            "{name}"
        );
        for annotation in ["summary", "description"] {
            assert!(!text(&rule["annotations"], annotation).is_empty(), "{name}");
        }
    }
}
