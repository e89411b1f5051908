//! The fuzz targets: each function reads bytes as its part of gpukill does, and asserts
//! what must hold for any bytes.
//!
//! `fuzz_targets/` calls them one by one, and `tests/src/suite/fuzz_corpus.rs` calls all of
//! them with every file of `corpus/`. The targets for private parsers of the daemon are in
//! `daemon/src/fuzz_api.rs`.

use futures::{FutureExt as _, StreamExt as _};
use gpukill_gateway::settings::{Endpoint, KEYS as GATEWAY_KEYS, Settings as GatewaySettings};
use gpukill_policy::guard::rules::{Members, RuleSet, diff, edit, import, lint, parse};
use gpukill_policy::guard::schedule::Hours;
use gpukill_policy::rogue;
use gpukill_policy::select::{self, DeviceName};
use gpukill_proto::guard::edit::{GuardEdit, PolicyKind};
use gpukill_proto::rogue::{AllowKind, RogueEdit};
use gpukill_proto::service::{GpukillRequest, GpukillResponse};
use gpukill_proto::settings::{self, SettingMistake, value::parse_duration};
use gpukill_proto::text::{format_duration, sanitize};
use gpukill_proto::transport::preface::{PREFACE_LENGTH, Preface};
use gpukill_proto::transport::{Connection, MAX_DEADLINE, codec};
use gpukill_proto::units::Timestamp;
use gpukilld::config::{Config, KEYS};
use std::io::{ErrorKind, Write as _};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};
use tarpc::{ClientMessage, Response};

pub use gpukillctl::archive::manifest::fuzz as manifest;

pub use gpukill_gateway::fuzz_api::{gateway_query, gateway_request};

pub use gpukilld::fuzz_api::{
    cgroup, command, container, copy, driver_files, fdinfo, gpu_metrics, hwmon, ids, ioreg, kfd,
    login_uid, mappings, reset_answer, reset_request, sensor, sent, sockets, stat, status,
};

/// Reads any bytes, and panics if a property does not hold.
pub type Target = fn(&[u8]);

/// All targets. The name of a target is that of its program and of its corpus.
pub const TARGETS: &[(&str, Target)] = &[
    ("preface", preface),
    ("server_side", server_side),
    ("client_side", client_side),
    ("request", request),
    ("response", response),
    ("settings", settings),
    ("rules", rules),
    ("rule_edits", rule_edits),
    ("rogue_rules", rogue_rules),
    ("environment", environment),
    ("gateway_settings", gateway_settings),
    ("gateway_query", gateway_query),
    ("gateway_request", gateway_request),
    ("text", text),
    ("durations", durations),
    ("selector", selector),
    ("pattern", pattern),
    ("stat", stat),
    ("status", status),
    ("command", command),
    ("login_uid", login_uid),
    ("cgroup", cgroup),
    ("container", container),
    ("driver_files", driver_files),
    ("sensor", sensor),
    ("fdinfo", fdinfo),
    ("gpu_metrics", gpu_metrics),
    ("hwmon", hwmon),
    ("ids", ids),
    ("kfd", kfd),
    ("ioreg", ioreg),
    ("reset_request", reset_request),
    ("reset_answer", reset_answer),
    ("sockets", sockets),
    ("mappings", mappings),
    ("sent", sent),
    ("copy", copy),
    ("manifest", manifest),
];

/// The admin's rogue rules.
pub fn rogue_rules(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    match rogue::read::read(&text) {
        Ok(rules) => {
            assert!(rules.thresholds.is_sorted());
            let suspect = rogue::suspect::Suspect {
                user: Some(text.chars().take(8).collect()),
                name: Some(text.chars().take(15).collect()),
                executable: Some(format!("/{text}")),
                arguments: Some(text.lines().map(str::to_owned).collect()),
                ancestors: Some(text.lines().map(str::to_owned).collect()),
                libraries: Some(text.lines().map(str::to_owned).collect()),
                ..rogue::suspect::Suspect::default()
            };
            for verdict in rogue::evaluate(&suspect, &rules) {
                assert!(!verdict.indicators.is_empty() && verdict.score <= verdict.confidence);
                assert!(
                    verdict
                        .indicators
                        .iter()
                        .all(|indicator| indicator.evidence.len() < 400)
                );
            }
            for warning in rogue::lints::lint(&rules) {
                assert!(!warning.to_string().is_empty());
            }
            allowed_and_not(&text, &rules);
        }
        Err(mistakes) => assert!(!mistakes.is_empty()),
    }
}

/// Allowing and then disallowing an entry leaves the rules as they were.
fn allowed_and_not(text: &str, rules: &rogue::rules::RogueRules) {
    let edited = |text: &str, change| rogue::edit::edit(text, &change, Timestamp(0));
    for by in AllowKind::ALL {
        let what = "/fuzzed@somebody".to_owned();
        let Ok(allowed) = edited(text, RogueEdit::Allow(by, what.clone())) else {
            continue;
        };
        let without = edited(&allowed, RogueEdit::Disallow(by, what));
        let without = without.expect("it is allowed");
        let again = rogue::read::read(&without).expect("an edit is right");
        assert_eq!(sorted(again), sorted(rules.clone()));
    }
}

/// The rules with the allow list in a fixed order.
fn sorted(mut rules: rogue::rules::RogueRules) -> rogue::rules::RogueRules {
    rules.allowed.sort_by_key(|it| format!("{it:?}"));
    rules
}

/// The first message of either side.
pub fn preface(bytes: &[u8]) {
    let Some(first) = bytes.first_chunk::<PREFACE_LENGTH>() else {
        return;
    };
    match Preface::decode(first) {
        // Two bytes have no meaning yet.
        Some(preface) => {
            let again = preface.encode();
            assert_eq!((&again[..10], &again[12..]), (&first[..10], &first[12..]));
        }
        None => assert_ne!(&first[..4], b"GPKL"),
    }
}

/// Everything a client sends, from its first byte on.
pub fn server_side(bytes: &[u8]) {
    let Some(stream) = after_preface(bytes) else {
        return;
    };
    let mut requests = codec::server_transport(tokio::io::join(stream, tokio::io::sink()));
    while let Some(Some(Ok(request))) = requests.next().now_or_never() {
        assert_fair(&request);
    }
}

/// Everything a daemon sends, from its first byte on.
pub fn client_side(bytes: &[u8]) {
    let (ours, mut theirs) = UnixStream::pair().expect("two sockets");
    // More bytes than a socket buffer holds would block, and are no concern of the parser.
    let bytes = &bytes[..bytes.len().min(64 << 10)];
    theirs.write_all(bytes).expect("there is room");
    theirs.shutdown(Shutdown::Write).expect("it is connected");
    let mut wait = |_: &UnixStream, _| Err(ErrorKind::TimedOut.into());
    let Ok(mut connection) = Connection::handshake(ours, &mut wait) else {
        return;
    };
    let deadline = Duration::from_secs(1);
    while connection
        .call(&GpukillRequest::Status {}, deadline, &mut wait)
        .is_ok()
    {}
}

fn after_preface(mut bytes: &[u8]) -> Option<&[u8]> {
    let preface = Preface::receive(&mut bytes).now_or_never();
    preface.expect("there is nothing to wait for").ok()?;
    Some(bytes)
}

/// One request.
pub fn request(bytes: &[u8]) {
    if let Ok(request) = codec::decode_request(bytes) {
        assert_fair(&request);
    }
}

/// tarpc converts a deadline to an `Instant` and adds to it: a far deadline panics there.
fn assert_fair<T>(request: &ClientMessage<T>) {
    if let ClientMessage::Request(request) = request {
        assert!(request.context.deadline <= Instant::now() + MAX_DEADLINE);
    }
}

/// One answer.
pub fn response(bytes: &[u8]) {
    if let Ok(answer) = codec::decode(bytes) {
        assert_encodes(&answer);
    }
}

fn assert_encodes(answer: &Response<GpukillResponse>) {
    if answer.message.is_err() {
        // tarpc does not read every kind of error as it writes it.
        return;
    }
    let bytes = codec::encode(answer).expect("what was decoded encodes");
    let again: Response<GpukillResponse> = codec::decode(&bytes).expect("and decodes again");
    assert_eq!(codec::encode(&again).expect("encodes"), bytes);
}

/// The settings file of the daemon.
pub fn settings(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let (mut config, wrong) = settings::defaults::<Config>(KEYS);
    assert_eq!(wrong, []);
    let mistakes = settings::apply_file(KEYS, &text, &mut config);
    let lines = 1 + text.bytes().filter(|byte| *byte == b'\n').count();
    for SettingMistake { line, .. } in mistakes {
        assert!(line.is_none_or(|line| (1..=lines).contains(&line)));
    }
    assert_sane(&config);
}

/// An environment variable that overrides any key of the daemon.
pub fn environment(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let variables = KEYS
        .iter()
        .map(|key| (key.variable.to_owned(), text.clone().into_owned()));
    let (mut config, _) = settings::defaults::<Config>(KEYS);
    settings::apply_environment(KEYS, None, variables, &mut config);
    assert_sane(&config);
}

/// The settings file of the gateway.
pub fn gateway_settings(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let (mut settings, wrong) = settings::defaults::<GatewaySettings>(GATEWAY_KEYS);
    assert_eq!(wrong, []);
    let mistakes = settings::apply_file(GATEWAY_KEYS, &text, &mut settings);
    let lines = 1 + text.bytes().filter(|byte| *byte == b'\n').count();
    for SettingMistake { line, .. } in &mistakes {
        assert!(line.is_none_or(|line| (1..=lines).contains(&line)));
    }
    if !mistakes.is_empty() {
        // The gateway does not start with them.
        return;
    }
    for endpoint in &settings.listen {
        match endpoint {
            Endpoint::Tcp(address) => {
                let is_allowed = settings.check_exposure(*address).is_ok();
                let is_protected = settings.behind_proxy || text.contains("certificate");
                assert!(!is_allowed || is_protected || address.ip().is_loopback());
            }
            Endpoint::Unix(path) => assert!(path.is_absolute()),
        }
    }
    for name in &settings.names {
        let is_bare = !name.contains(['/', '@', ' ', '*']) && !name.ends_with(':');
        assert!(!name.is_empty() && is_bare && *name == name.to_ascii_lowercase());
    }
    for count in [
        settings.max_connections,
        settings.max_peer_connections,
        settings.max_streams,
    ] {
        assert!((1..=65_536).contains(&count));
    }
}

/// Whatever the mistakes are, no value outside its bounds is accepted.
fn assert_sane(config: &Config) {
    const HOUR: Duration = Duration::from_secs(3_600);
    let (poll, sample) = (config.daemon.poll_interval, config.audit.sample_interval);
    assert!((Duration::from_millis(100)..=HOUR).contains(&poll));
    assert!((Duration::from_secs(1)..=HOUR).contains(&sample));
    assert!((HOUR..=24 * 3_650 * HOUR).contains(&config.audit.keep_samples));
    assert!(config.daemon.socket.is_absolute() && config.daemon.state_dir.is_absolute());
    assert!(config.backends.procfs_root.is_absolute() && config.reset.helper.is_absolute());
    assert!(!config.access.operator_group.is_empty() && !config.access.admin_group.is_empty());
    let protect = &config.protect;
    for names in [
        &protect.names,
        &protect.users,
        &protect.units,
        &protect.containers,
    ] {
        assert!(names.len() <= 256);
        for name in names {
            assert!((1..=255).contains(&name.len()) && !name.contains(['*', '?', '\n']));
        }
    }
}

/// The guard's rules.
pub fn rules(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let lines = 1 + text.bytes().filter(|byte| *byte == b'\n').count();
    match parse::parse(&text) {
        Ok(rules) => {
            assert_bounded(&rules);
            for warning in lint::lint(&rules) {
                assert!(!warning.to_string().contains('\n'), "{warning}");
            }
            let json = import::to_json(&text).expect("what is read is exported");
            let imported = import::from_json(&json).expect("what is exported is imported");
            let again = parse::parse(&imported.text).expect("and read");
            let positions = rules.positions.clone();
            assert_eq!(RuleSet { positions, ..again }, rules);
        }
        Err(mistakes) => {
            assert!((1..=1_000).contains(&mistakes.len()));
            for mistake in mistakes {
                assert!(
                    (1..=lines).contains(&mistake.position.map_or(0, |place| place.line)),
                    "{mistake}"
                );
                assert!(!mistake.to_string().contains('\n'), "{mistake}");
            }
        }
    }
}

/// Whatever the text is, no value outside its bounds is accepted.
fn assert_bounded(rules: &RuleSet) {
    const TEN_YEARS: Duration = Duration::from_secs(3_650 * 24 * 3_600);
    let limits = [&rules.defaults]
        .into_iter()
        .chain(rules.users.iter().map(|it| &it.limits))
        .chain(rules.groups.iter().map(|it| &it.limits))
        .chain(rules.times.iter().map(|it| &it.limits));
    for limits in limits {
        assert!(limits.memory.is_none_or(|it| it.0 <= 1 << 50));
        assert!(limits.utilization.is_none_or(|it| it.0 <= 100));
        assert!(limits.duration.is_none_or(|it| it <= TEN_YEARS));
        assert!(
            limits
                .idle
                .is_none_or(|it| (Duration::from_secs(1)..=TEN_YEARS).contains(&it))
        );
    }
    let windows = rules.times.iter().map(|it| &it.hours);
    for Hours { from, to, .. } in windows {
        assert!(*from < 24 * 60 && *to <= 24 * 60);
    }
    for Members { users, .. } in rules.behaviours.iter().map(|it| &it.members) {
        assert!(users.iter().all(|user| (1..=255).contains(&user.len())));
    }
}

/// An edit of a policy key or of a global key in valid rules. The first four lines are the
/// number of the policy kind, the name, the key and the value; the rest are the rules.
pub fn rule_edits(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let mut parts = text.splitn(5, '\n').map(str::to_owned);
    let mut next = || parts.next().unwrap_or_default();
    let (kind, name, key, value, rules) = (next(), next(), next(), next(), next());
    let kind = kind.len() % (PolicyKind::ALL.len() + 1);
    let (set, removed) = match PolicyKind::ALL.get(kind) {
        Some(kind) => {
            let (kind, name) = (*kind, name);
            let removed = GuardEdit::RemovePolicy {
                kind,
                name: name.clone(),
            };
            let fields = vec![(key, value)];
            (GuardEdit::SetPolicy { kind, name, fields }, removed)
        }
        None => {
            let (path, value) = (key, value);
            let removed = GuardEdit::SetKey {
                path: path.clone(),
                value: String::new(),
            };
            (GuardEdit::SetKey { path, value }, removed)
        }
    };
    let Ok(after) = edit::edit(&rules, &set) else {
        return;
    };
    assert!(parse::parse(&after).is_ok());
    assert_eq!(
        diff::unified_diff(("a", &rules), ("b", &after)).is_empty(),
        rules == after
    );
    if let Ok(without) = edit::edit(&after, &removed) {
        assert!(parse::parse(&without).is_ok());
    }
}

/// Untrusted text as it is shown. The first byte is the maximum length.
pub fn text(bytes: &[u8]) {
    let (most, rest) = bytes.split_first().unwrap_or((&0, &[]));
    let most = usize::from(*most);
    let shown = sanitize(rest, most);
    assert!(shown.len() <= most);
    assert!(!shown.chars().any(is_harmful), "{shown:?}");
    assert_eq!(sanitize(shown.as_bytes(), most), shown);
}

/// Whether a character controls a terminal, breaks a line, or changes the direction of
/// text.
fn is_harmful(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}')
}

/// A duration as users write it.
pub fn durations(bytes: &[u8]) {
    if let Ok(typed) = std::str::from_utf8(bytes)
        && let Some(length) = parse_duration(typed)
    {
        assert!(!format_duration(length).is_empty());
    }
}

/// The names of devices that a selector can match.
const BOX: [DeviceName<'static>; 3] = [
    DeviceName {
        index: 0,
        id: "GPU-8f3c1111-aaaa",
        pci: Some("0000:1b:00.0"),
        name: Some("NVIDIA H100 80GB HBM3"),
    },
    DeviceName {
        index: 1,
        id: "GPU-8f3c2222-bbbb",
        pci: Some("0001:43:00.0"),
        name: Some("NVIDIA RTX A6000 \u{e9}\u{4e2d}"),
    },
    DeviceName {
        index: u32::MAX,
        id: "\u{e9}\u{4e2d}",
        pci: None,
        name: None,
    },
];

/// A device selector, or a user.
pub fn selector(bytes: &[u8]) {
    let Ok(typed) = std::str::from_utf8(bytes) else {
        return;
    };
    match select::select_devices(typed, &BOX) {
        Ok(chosen) => assert!(!chosen.is_empty() && chosen.iter().all(|at| *at < BOX.len())),
        Err(error) => assert!(!error.to_string().is_empty()),
    }
    assert!(!select::names_user(typed, None, None));
}

/// A regular expression for process names, from an untrusted client.
pub fn pattern(bytes: &[u8]) {
    let Ok(typed) = std::str::from_utf8(bytes) else {
        return;
    };
    match select::compile_pattern(typed) {
        Ok(pattern) => assert!(pattern.is_match("python") || !pattern.is_match("python")),
        Err(why) => assert!(!why.contains('\n'), "{why:?}"),
    }
}
