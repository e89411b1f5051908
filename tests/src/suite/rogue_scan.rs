//! Rogue detection on real processes: disguised miners that mine nothing, and honest work
//! that appears suspicious.

mod visibility;

use gpukill_tests::harness::{
    FakeDriver, Script, TestBox, copy_program, eventually, eventually_equals,
};
use rustix::fs::MemfdFlags;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write as _;
use std::net::TcpListener;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// The highest risk of each process, by its name in the test.
type RiskByName = BTreeMap<&'static str, Option<String>>;

/// A box with some processes on one GPU, each with a name for the test.
pub(crate) struct RogueBox {
    pub(crate) test_box: TestBox,
    driver: FakeDriver,
    processes: Vec<(&'static str, Script)>,
}

impl RogueBox {
    pub(crate) fn new() -> Self {
        let test_box = TestBox::new();
        test_box.make_world_accessible();
        Self {
            driver: FakeDriver::start(&test_box, Duration::ZERO),
            test_box,
            processes: Vec::new(),
        }
    }

    pub(crate) fn start_on_gpu(&mut self, name: &'static str, command: &mut Command) -> u32 {
        let script = Script::spawn(&self.test_box, command);
        let pid = script.pid();
        self.driver.add_processes(&[pid]);
        self.processes.push((name, script));
        pid
    }

    /// Creates a program of this name that sleeps, in this directory.
    pub(crate) fn create_program(&self, directory: &str, name: &str) -> PathBuf {
        let directory = self.test_box.path(directory);
        std::fs::create_dir_all(&directory).unwrap();
        copy_of_sleep(&directory.join(name))
    }

    fn listed_risks(&self) -> RiskByName {
        let list = self.test_box.list();
        let processes = list["procs"].as_array().unwrap();
        let of = |pid: u32| {
            let mut its = processes.iter().filter(|it| it["pid"] == pid);
            let risk = its.next()?["rogue"]["risk"].as_str()?;
            Some(risk.to_owned())
        };
        let scripts = self.processes.iter();
        scripts
            .map(|(name, script)| (*name, of(script.pid())))
            .collect()
    }

    /// The result of a scan, as soon as the store is open.
    fn scan(&self) -> Value {
        eventually("a scan", || {
            let scanned = self
                .test_box
                .ctl(&["rogue", "scan", "--hours", "1", "-o", "json"]);
            serde_json::from_str(&scanned.stdout).ok()
        })
    }

    fn pid(&self, name: &str) -> u32 {
        let (_, script) = self.processes.iter().find(|(it, _)| *it == name).unwrap();
        script.pid()
    }

    /// The indicators of a process in `explain`.
    fn indicators(&self, name: &str) -> Vec<String> {
        let pid = self.pid(name).to_string();
        let explained = self.test_box.json(&["explain", &pid, "-o", "json"]);
        let indicators = explained["rogue"]["indicators"].as_array().unwrap().iter();
        indicators
            .map(|it| it["kind"].as_str().unwrap().to_owned())
            .collect()
    }
}

fn copy_of_sleep(to: &Path) -> PathBuf {
    copy_program("/bin/sleep", to);
    std::fs::set_permissions(to, std::fs::Permissions::from_mode(0o755)).unwrap();
    to.to_owned()
}

pub(crate) fn sleep_command(program: &Path) -> Command {
    let mut command = Command::new(program);
    command.arg("1000");
    command
}

/// A shell that waits, with these arguments on its command line.
fn shell_with_arguments(arguments: &[&str]) -> Command {
    let mut command = Command::new("/bin/sh");
    command.args(["-c", "sleep 1000; true"]).args(arguments);
    command
}

const POOL: &str = "stratum+tcp://pool.example:4444";

/// The same in base64, inside a longer text.
const ENCODED_POOL: &str = "eyJ1cmwiOiJzdHJhdHVtK3RjcDovL3Bvb2wuZXhhbXBsZTo0NDQ0In0=";

#[test]
fn disguised_miners_are_found_honest_work_is_not() {
    let mut rogue_box = RogueBox::new();
    let by_name = rogue_box.create_program("bin", "xmrig");
    rogue_box.start_on_gpu("by name", &mut sleep_command(&by_name));
    rogue_box.start_on_gpu(
        "with a pool",
        &mut shell_with_arguments(&["python3", "train.py", "-o", POOL]),
    );
    rogue_box.start_on_gpu(
        "in base64",
        &mut shell_with_arguments(&["python3", "-c", ENCODED_POOL]),
    );
    let mut masked = Command::new("bash");
    masked.args(["-c", "exec -a '[kworker/0:1]' sleep 1000"]);
    rogue_box.start_on_gpu("as a kernel thread", &mut masked);
    let in_memory = memory_file();
    let path = format!("/proc/self/fd/{}", in_memory.as_raw_fd());
    rogue_box.start_on_gpu("of no file", &mut sleep_command(Path::new(&path)));
    let shared = program_in_shared_memory("gpukill-worker");
    rogue_box.start_on_gpu("in shared memory", &mut sleep_command(&shared));
    std::fs::remove_file(&shared).unwrap();
    for (name, program) in [
        ("cuda", "cuda_train"),
        ("pytest", "pytest"),
        ("ollama", "ollama"),
        ("python", "python3.11"),
    ] {
        let program = rogue_box.create_program("honest", program);
        rogue_box.start_on_gpu(name, &mut sleep_command(&program));
    }
    let mut titled = Command::new("bash");
    titled.args(["-c", "exec -a 'sglang::scheduler_DP0_TP0' sleep 1000"]);
    rogue_box.start_on_gpu("sglang", &mut titled);
    // An upgrade replaced the program while it ran.
    std::fs::remove_file(rogue_box.test_box.path("honest/python3.11")).unwrap();
    let daemon = rogue_box.test_box.start();
    let expected: RiskByName = [
        ("by name", Some("high")),
        ("with a pool", Some("medium")),
        ("in base64", Some("medium")),
        ("as a kernel thread", Some("low")),
        ("of no file", Some("low")),
        ("in shared memory", Some("low")),
        ("cuda", None),
        ("pytest", None),
        ("ollama", None),
        ("python", None),
        ("sglang", None),
    ]
    .map(|(name, risk)| (name, risk.map(str::to_owned)))
    .into();
    eventually_equals(&expected, || rogue_box.listed_risks());
    assert_eq!(rogue_box.indicators("in base64"), ["pool_on_command_line"]);
    assert_eq!(rogue_box.indicators("of no file"), ["executable_location"]);
    // The log has each of them once, and a scan finds all of them.
    let scanned = rogue_box.scan();
    let found = scanned["findings"].as_array().unwrap();
    assert_eq!(found.len(), 6, "{scanned}");
    assert_eq!(found[0]["pid"], rogue_box.pid("by name"));
    let log = daemon.log();
    let count = log.matches("may be a ").count();
    assert_eq!(count, 6, "{log}");
    let status = rogue_box.test_box.json(&["status", "-o", "json"]);
    assert_eq!(status["rogue"]["findings"], 6, "{status}");
    assert_eq!(status["rogue"]["worst"], "high");
}

/// An anonymous file that contains the program.
fn memory_file() -> File {
    // Without close-on-exec, because the child executes it.
    let memory = rustix::fs::memfd_create("worker", MemfdFlags::empty()).unwrap();
    let mut memory = File::from(memory);
    memory
        .write_all(&std::fs::read("/bin/sleep").unwrap())
        .unwrap();
    memory
}

/// The program in shared memory, in a directory of its own.
fn program_in_shared_memory(name: &str) -> PathBuf {
    let directory = PathBuf::from(format!("/dev/shm/{name}-{}", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    copy_of_sleep(&directory.join("worker"))
}

#[test]
fn pool_connection_raises_risk_and_is_reported() {
    let mut rogue_box = RogueBox::new();
    let pool = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = pool.local_addr().unwrap().port();
    let rules = rogue_box.test_box.path("rogue.toml");
    std::fs::write(rules, format!("[patterns]\npool_ports = [{port}]\n")).unwrap();
    let connect = rogue_box.test_box.path("connect");
    let script = format!(
        "until [ -e {} ]; do sleep 0.1; done; exec 3<>/dev/tcp/127.0.0.1/{port}; sleep 1000; true",
        connect.display()
    );
    let mut miner = Command::new("bash");
    miner.args(["-c", &script, "python3", "-o", POOL]);
    rogue_box.start_on_gpu("miner", &mut miner);
    let daemon = rogue_box.test_box.start();
    let taken = |risk: &str| RiskByName::from([("miner", Some(risk.to_owned()))]);
    eventually_equals(&taken("medium"), || rogue_box.listed_risks());
    std::fs::write(connect, "").unwrap();
    eventually_equals(&taken("high"), || rogue_box.listed_risks());
    let risks = |log: String| {
        let lines = log
            .lines()
            .filter(|line| line.contains("may be a crypto miner"));
        lines.count()
    };
    eventually_equals(&2, || risks(daemon.log()));
    assert_eq!(
        rogue_box.indicators("miner"),
        ["pool_on_command_line", "pool_port"]
    );
    // A restarted daemon knows that it was reported, and does not report it again.
    daemon.stop();
    let daemon = rogue_box.test_box.start();
    eventually_equals(&taken("high"), || rogue_box.listed_risks());
    assert_eq!(risks(daemon.log()), 0, "{}", daemon.log());
}

#[test]
fn finished_findings_are_remembered() {
    let mut rogue_box = RogueBox::new();
    let by_name = rogue_box.create_program("bin", "xmrig");
    rogue_box.start_on_gpu("miner", &mut sleep_command(&by_name));
    let honest = rogue_box.create_program("bin", "train");
    rogue_box.start_on_gpu("honest", &mut sleep_command(&honest));
    let _daemon = rogue_box.test_box.start();
    eventually("it is found", || rogue_box.listed_risks()["miner"].clone());
    let pid = rogue_box.pid("miner");
    rogue_box.processes.retain(|(name, _)| *name != "miner");
    let found = eventually("it is over", || {
        let scanned = rogue_box.scan();
        let found = scanned["findings"][0].clone();
        // The honest process may not be in a sample yet.
        let is_whole = scanned["evaluated"].as_u64() >= Some(2);
        (is_whole && found["present"] == json!(false)).then_some(found)
    });
    assert_eq!(found["pid"], pid);
    assert_eq!(found["verdicts"][0]["threat"], "crypto_miner");
    let actions: Vec<Value> = found["recommendations"].as_array().unwrap().clone();
    assert!(actions.iter().all(|it| it["what"] != "end"), "{actions:?}");
}

#[test]
fn miner_is_found_by_executable_hash() {
    let mut rogue_box = RogueBox::new();
    let [miner, honest] = ["bin", "honest"].map(|place| rogue_box.create_program(place, "python3"));
    let mut file = File::options().append(true).open(&miner).unwrap();
    file.write_all(b"mines").unwrap();
    drop(file);
    rogue_box.start_on_gpu("miner", &mut sleep_command(&miner));
    rogue_box.start_on_gpu("honest", &mut sleep_command(&honest));
    let _daemon = rogue_box.test_box.start();
    let taken = |risk: Option<&str>| {
        let risk = risk.map(str::to_owned);
        RiskByName::from([("miner", risk), ("honest", None)])
    };
    eventually_equals(&taken(None), || rogue_box.listed_risks());
    let set = |hash: &str| {
        let key = "patterns.miner_sha256";
        let ran = rogue_box.test_box.ctl(&["rogue", "set", key, hash]);
        assert_eq!(ran.code, 0, "{ran:?}");
    };
    set(&sha256sum(&miner));
    eventually_equals(&taken(Some("critical")), || rogue_box.listed_risks());
    assert_eq!(
        rogue_box.indicators("miner").first().map(String::as_str),
        Some("miner_hash")
    );
    set("[]");
    eventually_equals(&taken(None), || rogue_box.listed_risks());
    // Evidence that no rule requests is not reported as unknown.
    let pid = rogue_box.pid("miner").to_string();
    let explained = rogue_box.test_box.json(&["explain", &pid, "-o", "json"]);
    let unseen = explained["rogue"]["unread"].to_string();
    assert!(!unseen.contains("hash"), "{unseen}");
}

fn sha256sum(file: &Path) -> String {
    let ran = Command::new("sha256sum").arg(file).output().unwrap();
    let line = String::from_utf8(ran.stdout).unwrap();
    line.split_ascii_whitespace().next().unwrap().to_owned()
}

#[test]
fn allowed_executables_are_ignored() {
    let mut rogue_box = RogueBox::new();
    let program = rogue_box.create_program("bin", "xmrig");
    rogue_box.start_on_gpu("miner", &mut sleep_command(&program));
    let _daemon = rogue_box.test_box.start();
    let taken = |risk: Option<&str>| RiskByName::from([("miner", risk.map(str::to_owned))]);
    eventually_equals(&taken(Some("high")), || rogue_box.listed_risks());
    // A process chooses its own name: an allowed name does not remove nearly certain
    // evidence.
    let allowed = rogue_box
        .test_box
        .ctl(&["rogue", "allow", "process", "xmrig"]);
    assert_eq!(allowed.code, 0, "{allowed:?}");
    let path = program.display().to_string();
    assert_eq!(
        rogue_box
            .test_box
            .ctl(&["rogue", "allow", "executable", &path])
            .code,
        0
    );
    eventually_equals(&taken(None), || rogue_box.listed_risks());
    assert_eq!(
        rogue_box
            .test_box
            .ctl(&["rogue", "disallow", "executable", &path])
            .code,
        0
    );
    eventually_equals(&taken(Some("high")), || rogue_box.listed_risks());
}

#[test]
fn known_miner_is_high_deleted_helper_is_medium() {
    let mut rogue_box = RogueBox::new();
    let miner = rogue_box.create_program("bin", "kdevtmpfsi");
    rogue_box.start_on_gpu("miner", &mut sleep_command(&miner));
    let helper = rogue_box.create_program("bin", "systemd-helper");
    rogue_box.start_on_gpu("helper", &mut sleep_command(&helper));
    std::fs::remove_file(&helper).unwrap();
    let daemon = rogue_box.test_box.start();
    let expected = [("helper", "medium"), ("miner", "high")];
    let expected = expected.map(|(name, risk)| (name, Some(risk.to_owned())));
    eventually_equals(&expected.into(), || rogue_box.listed_risks());
    daemon.stop();
}
