//! Alerts: GPUs above a threshold that the admin has set.

use gpukill_tests::harness::{Daemon, TestBox, eventually, eventually_equals};
use rustix::process::Signal;
use serde_json::{Value, json};

const GIB: u64 = 1 << 30;

/// Three GPUs: the first with this temperature and this much of its 100 GiB in use, one
/// without these readings, and one that shares the memory of the host and uses more than it
/// has.
fn three_gpus(temperature: &Value, used: u64) -> Value {
    json!({"gpus": [
        {
            "uuid": "GPU-a", "temperature": temperature,
            "memory": {"total": 100 * GIB, "used": used * GIB},
        },
        {"uuid": "GPU-b", "temperature": null, "memory": {"total": 100 * GIB, "used": 0}},
        {
            "uuid": "GPU-c", "memory": null,
            "processes": [{"pid": 5_000_000, "memory": (1 << 20) * GIB}],
        },
    ]})
}

/// Sets this state and waits until some polls have read it.
fn set_state_and_poll(test_box: &TestBox, temperature: &Value, used: u64) {
    test_box.set_driver_state(&three_gpus(temperature, used));
    let shown = || {
        let gpu = test_box.list()["gpus"][0].clone();
        (gpu["temp_c"].clone(), gpu["mem_used_bytes"].clone())
    };
    eventually_equals(&(temperature.clone(), json!(used * GIB)), shown);
    wait_for_polls(test_box);
}

fn wait_for_polls(test_box: &TestBox) {
    let polls = || test_box.json(&["status", "-o", "json"])["polls"].as_u64();
    let before = polls().unwrap();
    eventually("polls go on", || (polls()? > before + 5).then_some(()));
}

/// The log lines about alerts and faults, without their times. Faults of single GPUs are left out:
/// a poll may read a GPU while the driver state changes, and then it is lost for one poll.
fn logged_alerts_and_faults(daemon: &Daemon) -> Vec<String> {
    let log = daemon.log();
    let lines = log.lines().filter_map(|line| line.split_once(' '));
    let entries = lines.map(|(_, entry)| entry.trim_start().to_owned());
    entries
        .filter(|entry| entry.contains("alert") || entry.contains("fault"))
        .filter(|entry| !entry.contains("part=\"GPU"))
        .collect()
}

fn alert(what: &str) -> (String, String) {
    ("GPU 0".to_owned(), what.to_owned())
}

/// The part and the text of each alert now.
fn alerts(test_box: &TestBox) -> Vec<(String, String)> {
    let list = test_box.list();
    let alerts = list["alerts"].as_array().expect("a list of alerts").iter();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    alerts
        .map(|alert| (text(&alert["part"]), text(&alert["what"])))
        .collect()
}

const TEMPERATURE: &str = "temperature at or above 85 °C";
const MEMORY: &str = "memory in use at or above 90 %";

#[test]
fn one_alert_until_well_below_threshold() {
    let test_box = TestBox::new();
    test_box.configure("[alerts]\ntemp_threshold_celsius = 85.0");
    test_box.set_driver_state(&three_gpus(&json!(84), 89));
    let mut command = test_box.daemon_command();
    command.env("GPUKILLD_ALERTS_MEMORY_THRESHOLD_PERCENT", "90");
    let daemon = test_box.start_with(&mut command);
    set_state_and_poll(&test_box, &json!(84), 89);
    assert_eq!(test_box.faults(), []);

    test_box.set_driver_state(&three_gpus(&json!(91), 89));
    let hot = vec![alert(TEMPERATURE)];
    eventually_equals(&hot, || alerts(&test_box));
    // An alert is no fault.
    assert_eq!(test_box.faults(), []);
    let table = test_box.ctl(&["list"]).stdout;
    let below = format!("\nalert: GPU 0: {TEMPERATURE}\n");
    assert!(
        table.contains(&below) && !table.contains("fault"),
        "{table}"
    );
    assert!(
        table.lines().any(|row| row.trim_start().starts_with("!0 ")),
        "{table}"
    );
    let table = test_box.ctl(&["status"]).stdout;
    let now = format!("{TEMPERATURE}, now 91 °C");
    let is_shown = |line: &str| {
        line.starts_with(" GPU 0 ") && line.contains(" alert since ") && line.ends_with(&now)
    };
    assert!(table.lines().any(is_shown), "{table}");
    test_box.set_driver_state(&three_gpus(&json!(91), 95));
    let both = vec![alert(MEMORY), alert(TEMPERATURE)];
    let sorted = || {
        let mut alerts = alerts(&test_box);
        alerts.sort();
        alerts
    };
    eventually_equals(&both, sorted);
    let since = |list: &Value| -> Vec<Value> {
        let alerts = list["alerts"].as_array().unwrap().iter();
        alerts.map(|alert| alert["since"].clone()).collect()
    };
    let first_since = since(&test_box.list());
    // Not far enough below the threshold, and then unknown.
    set_state_and_poll(&test_box, &json!(83), 88);
    set_state_and_poll(&test_box, &Value::Null, 88);
    assert_eq!((sorted(), since(&test_box.list())), (both, first_since));

    test_box.set_driver_state(&three_gpus(&json!(82), 88));
    eventually_equals(&vec![alert(MEMORY)], sorted);
    test_box.set_driver_state(&three_gpus(&json!(82), 87));
    eventually_equals(&Vec::new(), || alerts(&test_box));
    for what in [TEMPERATURE, MEMORY] {
        eventually("its beginning is recorded", || {
            let entry = (json!("alert"), json!(format!("GPU 0: {what}")));
            recorded_events(&test_box).contains(&entry).then_some(())
        });
    }
    let gpu = "gpu=0 gpu_uuid=GPU-a";
    let expected = vec![
        format!("WARN alert on GPU 0: {TEMPERATURE} {gpu} quantity=temperature value=91 limit=85"),
        format!("WARN alert on GPU 0: {MEMORY} {gpu} quantity=memory value=95 limit=90"),
        format!(
            "INFO alert is over on GPU 0: {TEMPERATURE} {gpu} quantity=temperature value=82 \
            limit=85"
        ),
        format!("INFO alert is over on GPU 0: {MEMORY} {gpu} quantity=memory value=87 limit=90"),
    ];
    eventually_equals(&expected, || logged_alerts_and_faults(&daemon));
    daemon.stop();
}

/// The kind and the text of each recorded event.
fn recorded_events(test_box: &TestBox) -> Vec<(Value, Value)> {
    let document = test_box.json(&["audit", "actions", "-o", "json"]);
    let actions = document["actions"].as_array().unwrap().iter();
    let events = actions.map(|action| (action["kind"].clone(), action["what"].clone()));
    events.collect()
}

#[test]
fn reload_changes_thresholds() {
    let test_box = TestBox::new();
    test_box.set_driver_state(&three_gpus(&json!(91), 99));
    let daemon = test_box.start();
    set_state_and_poll(&test_box, &json!(91), 99);
    assert_eq!(test_box.faults(), []);
    let reload = |settings: &str, expected: &[&str]| {
        test_box.configure(settings);
        daemon.signal(Signal::HUP);
        let expected: Vec<_> = expected.iter().map(|what| alert(what)).collect();
        eventually_equals(&expected, || alerts(&test_box));
    };
    reload("[alerts]\ntemp_threshold_celsius = 85", &[TEMPERATURE]);
    let higher = "temperature at or above 90 °C";
    reload("[alerts]\ntemp_threshold_celsius = 90", &[higher]);
    reload("", &[]);
    reload("[alerts]\ntemp_threshold_celsius = 85", &[TEMPERATURE]);
    test_box.set_driver_state(&json!({"gpus": []}));
    let gone = "all 3 GPUs are gone: its driver was unloaded";
    let gone = vec![("nvidia".to_owned(), gone.to_owned())];
    eventually_equals(&gone, || test_box.faults());
    let entry =
        |what: &str, rest: &str| format!("{what} gpu=0 gpu_uuid=GPU-a quantity=temperature {rest}");
    let begins = |what: &str| format!("WARN alert on GPU 0: {what}");
    let over = |what: &str| format!("INFO alert is over on GPU 0: {what}");
    let why = "why=\"this threshold no longer applies\"";
    let expected = vec![
        entry(&begins(TEMPERATURE), "value=91 limit=85"),
        entry(&over(TEMPERATURE), &format!("limit=85 {why}")),
        entry(&begins(higher), "value=91 limit=90"),
        entry(&over(higher), &format!("limit=90 {why}")),
        entry(&begins(TEMPERATURE), "value=91 limit=85"),
        "WARN fault part=nvidia what=\"all 3 GPUs are gone: its driver was unloaded\"".to_owned(),
        entry(&over(TEMPERATURE), "limit=85 why=\"the GPU is gone\""),
    ];
    eventually_equals(&expected, || logged_alerts_and_faults(&daemon));
    daemon.stop();
}
