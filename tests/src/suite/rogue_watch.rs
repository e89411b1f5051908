//! The watch for rogues over real processes: miners in disguises that mine nothing, and
//! honest work that looks odd.

mod defaults;
mod told;

use gpukill_tests::harness::{Driver, Stage, Troupe, becomes, copy_program, eventually};
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

/// What processes are taken for: of each its worst risk, by what it is called here.
type Taken = BTreeMap<&'static str, Option<String>>;

/// Some processes on one GPU, each with a name for the test.
struct Scene {
    stage: Stage,
    driver: Driver,
    cast: Vec<(&'static str, Troupe)>,
}

impl Scene {
    fn new() -> Self {
        let stage = Stage::new();
        stage.open_to_all();
        Self {
            driver: Driver::start(&stage, Duration::ZERO),
            stage,
            cast: Vec::new(),
        }
    }

    /// Has a command use the GPU.
    fn plays(&mut self, name: &'static str, command: &mut Command) -> u32 {
        let troupe = Troupe::of(&self.stage, command);
        let pid = troupe.pid();
        self.driver.lists(&[pid]);
        self.cast.push((name, troupe));
        pid
    }

    /// A program of this name that does nothing, in this directory.
    fn program(&self, directory: &str, name: &str) -> PathBuf {
        let directory = self.stage.path(directory);
        std::fs::create_dir_all(&directory).unwrap();
        copied(&directory.join(name))
    }

    /// What is said of them in `list`.
    fn taken(&self) -> Taken {
        let list = self.stage.list();
        let processes = list["procs"].as_array().unwrap();
        let of = |pid: u32| {
            let mut its = processes.iter().filter(|it| it["pid"] == pid);
            let risk = its.next()?["rogue"]["risk"].as_str()?;
            Some(risk.to_owned())
        };
        let cast = self.cast.iter();
        cast.map(|(name, troupe)| (*name, of(troupe.pid())))
            .collect()
    }

    /// What a scan tells, as soon as the store is open.
    fn scanned(&self) -> Value {
        eventually("a scan", || {
            let scanned = self
                .stage
                .ctl(&["rogue", "scan", "--hours", "1", "-o", "json"]);
            serde_json::from_str(&scanned.stdout).ok()
        })
    }

    fn pid(&self, name: &str) -> u32 {
        let (_, troupe) = self.cast.iter().find(|(it, _)| *it == name).unwrap();
        troupe.pid()
    }

    /// The signs that are seen of one, as `explain` has them.
    fn signs(&self, name: &str) -> Vec<String> {
        let pid = self.pid(name).to_string();
        let explained = self.stage.json(&["explain", &pid, "-o", "json"]);
        let signs = explained["rogue"]["signs"].as_array().unwrap().iter();
        signs
            .map(|it| it["kind"].as_str().unwrap().to_owned())
            .collect()
    }
}

/// A copy of a program that sleeps.
fn copied(to: &Path) -> PathBuf {
    copy_program("/bin/sleep", to);
    std::fs::set_permissions(to, std::fs::Permissions::from_mode(0o755)).unwrap();
    to.to_owned()
}

fn sleeps(program: &Path) -> Command {
    let mut command = Command::new(program);
    command.arg("1000");
    command
}

/// A shell that waits, told these arguments.
fn told(arguments: &[&str]) -> Command {
    let mut command = Command::new("/bin/sh");
    command.args(["-c", "sleep 1000; true"]).args(arguments);
    command
}

const POOL: &str = "stratum+tcp://pool.example:4444";

/// The same, in base64, in the middle of something longer.
const ENCODED: &str = "eyJ1cmwiOiJzdHJhdHVtK3RjcDovL3Bvb2wuZXhhbXBsZTo0NDQ0In0=";

#[test]
fn miners_in_disguises_are_found_and_honest_work_is_left_alone() {
    let mut scene = Scene::new();
    let by_name = scene.program("bin", "xmrig");
    scene.plays("by name", &mut sleeps(&by_name));
    scene.plays(
        "told a pool",
        &mut told(&["python3", "train.py", "-o", POOL]),
    );
    scene.plays("in base64", &mut told(&["python3", "-c", ENCODED]));
    let mut masked = Command::new("bash");
    masked.args(["-c", "exec -a '[kworker/0:1]' sleep 1000"]);
    scene.plays("as a kernel thread", &mut masked);
    let in_memory = memory();
    let path = format!("/proc/self/fd/{}", in_memory.as_raw_fd());
    scene.plays("of no file", &mut sleeps(Path::new(&path)));
    let shared = shared("gpukill-worker");
    scene.plays("in shared memory", &mut sleeps(&shared));
    std::fs::remove_file(&shared).unwrap();
    for (name, program) in [
        ("cuda", "cuda_train"),
        ("pytest", "pytest"),
        ("ollama", "ollama"),
        ("python", "python3.11"),
    ] {
        let program = scene.program("honest", program);
        scene.plays(name, &mut sleeps(&program));
    }
    let mut titled = Command::new("bash");
    titled.args(["-c", "exec -a 'sglang::scheduler_DP0_TP0' sleep 1000"]);
    scene.plays("sglang", &mut titled);
    // It was upgraded while it ran.
    std::fs::remove_file(scene.stage.path("honest/python3.11")).unwrap();
    let daemon = scene.stage.start();
    let expected: Taken = [
        ("by name", Some("high")),
        ("told a pool", Some("medium")),
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
    becomes(&expected, || scene.taken());
    assert_eq!(scene.signs("in base64"), ["pool_on_command_line"]);
    assert_eq!(scene.signs("of no file"), ["executable_place"]);
    // Each is told once in the log, and all of them are found by a scan.
    let scanned = scene.scanned();
    let found = scanned["findings"].as_array().unwrap();
    assert_eq!(found.len(), 6, "{scanned}");
    assert_eq!(found[0]["pid"], scene.pid("by name"));
    let log = daemon.log();
    let told = log.matches("may be a ").count();
    assert_eq!(told, 6, "{log}");
    let status = scene.stage.json(&["status", "-o", "json"]);
    assert_eq!(status["rogue"]["findings"], 6, "{status}");
    assert_eq!(status["rogue"]["worst"], "high");
}

/// A file without a name that holds the program.
fn memory() -> File {
    // Not closed on exec: the child is to run it.
    let memory = rustix::fs::memfd_create("worker", MemfdFlags::empty()).unwrap();
    let mut memory = File::from(memory);
    memory
        .write_all(&std::fs::read("/bin/sleep").unwrap())
        .unwrap();
    memory
}

/// The program in shared memory, in a directory of its own.
fn shared(name: &str) -> PathBuf {
    let directory = PathBuf::from(format!("/dev/shm/{name}-{}", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    copied(&directory.join("worker"))
}

#[test]
fn a_connection_to_a_pool_makes_it_worse_and_that_is_told_again() {
    let mut scene = Scene::new();
    let pool = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = pool.local_addr().unwrap().port();
    let rules = scene.stage.path("rogue.toml");
    std::fs::write(rules, format!("[patterns]\npool_ports = [{port}]\n")).unwrap();
    let connect = scene.stage.path("connect");
    let script = format!(
        "until [ -e {} ]; do sleep 0.1; done; exec 3<>/dev/tcp/127.0.0.1/{port}; sleep 1000; true",
        connect.display()
    );
    let mut miner = Command::new("bash");
    miner.args(["-c", &script, "python3", "-o", POOL]);
    scene.plays("miner", &mut miner);
    let daemon = scene.stage.start();
    let taken = |risk: &str| Taken::from([("miner", Some(risk.to_owned()))]);
    becomes(&taken("medium"), || scene.taken());
    std::fs::write(connect, "").unwrap();
    becomes(&taken("high"), || scene.taken());
    let risks = |log: String| {
        let lines = log
            .lines()
            .filter(|line| line.contains("may be a crypto miner"));
        lines.count()
    };
    becomes(&2, || risks(daemon.log()));
    assert_eq!(scene.signs("miner"), ["pool_on_command_line", "pool_port"]);
    // A daemon that is started anew has told it, and tells it no more.
    daemon.stop();
    let daemon = scene.stage.start();
    becomes(&taken("high"), || scene.taken());
    assert_eq!(risks(daemon.log()), 0, "{}", daemon.log());
}

#[test]
fn what_was_found_is_remembered_when_it_is_gone_and_so_is_what_nobody_saw() {
    let mut scene = Scene::new();
    let by_name = scene.program("bin", "xmrig");
    scene.plays("miner", &mut sleeps(&by_name));
    let honest = scene.program("bin", "train");
    scene.plays("honest", &mut sleeps(&honest));
    let _daemon = scene.stage.start();
    eventually("it is found", || scene.taken()["miner"].clone());
    let pid = scene.pid("miner");
    scene.cast.retain(|(name, _)| *name != "miner");
    let found = eventually("it is over", || {
        let scanned = scene.scanned();
        let found = scanned["findings"][0].clone();
        // The honest one may be in no sample yet.
        let is_whole = scanned["judged"].as_u64() >= Some(2);
        (is_whole && found["present"] == json!(false)).then_some(found)
    });
    assert_eq!(found["pid"], pid);
    assert_eq!(found["verdicts"][0]["threat"], "crypto_miner");
    let actions: Vec<Value> = found["recommendations"].as_array().unwrap().clone();
    assert!(actions.iter().all(|it| it["what"] != "end"), "{actions:?}");
}

#[test]
fn a_miner_that_looks_like_nothing_is_known_by_the_hash_of_its_executable() {
    let mut scene = Scene::new();
    let [miner, honest] = ["bin", "honest"].map(|place| scene.program(place, "python3"));
    let mut file = File::options().append(true).open(&miner).unwrap();
    file.write_all(b"mines").unwrap();
    drop(file);
    scene.plays("miner", &mut sleeps(&miner));
    scene.plays("honest", &mut sleeps(&honest));
    let _daemon = scene.stage.start();
    let taken = |risk: Option<&str>| {
        let risk = risk.map(str::to_owned);
        Taken::from([("miner", risk), ("honest", None)])
    };
    becomes(&taken(None), || scene.taken());
    let set = |hash: &str| {
        let key = "patterns.miner_sha256";
        let ran = scene.stage.ctl(&["rogue", "set", key, hash]);
        assert_eq!(ran.code, 0, "{ran:?}");
    };
    set(&sha256sum(&miner));
    becomes(&taken(Some("critical")), || scene.taken());
    assert_eq!(
        scene.signs("miner").first().map(String::as_str),
        Some("miner_hash")
    );
    set("[]");
    becomes(&taken(None), || scene.taken());
    // Nothing is told to be unknown that nobody asks for.
    let pid = scene.pid("miner").to_string();
    let explained = scene.stage.json(&["explain", &pid, "-o", "json"]);
    let unseen = explained["rogue"]["unseen"].to_string();
    assert!(!unseen.contains("hash"), "{unseen}");
}

/// The SHA-256 of a file, as the admin's own tool has it.
fn sha256sum(file: &Path) -> String {
    let ran = Command::new("sha256sum").arg(file).output().unwrap();
    let line = String::from_utf8(ran.stdout).unwrap();
    line.split_ascii_whitespace().next().unwrap().to_owned()
}

#[test]
fn whoever_is_allowed_is_left_alone() {
    let mut scene = Scene::new();
    let program = scene.program("bin", "xmrig");
    scene.plays("miner", &mut sleeps(&program));
    let _daemon = scene.stage.start();
    let taken = |risk: Option<&str>| Taken::from([("miner", risk.map(str::to_owned))]);
    becomes(&taken(Some("high")), || scene.taken());
    // A name is its own to choose: what is nearly a proof counts still.
    let allowed = scene.stage.ctl(&["rogue", "allow", "process", "xmrig"]);
    assert_eq!(allowed.code, 0, "{allowed:?}");
    let path = program.display().to_string();
    assert_eq!(
        scene
            .stage
            .ctl(&["rogue", "allow", "executable", &path])
            .code,
        0
    );
    becomes(&taken(None), || scene.taken());
    assert_eq!(
        scene
            .stage
            .ctl(&["rogue", "disallow", "executable", &path])
            .code,
        0
    );
    becomes(&taken(Some("high")), || scene.taken());
}
