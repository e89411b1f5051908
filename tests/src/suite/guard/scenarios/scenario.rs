//! A scenario: persons on a box and their real processes on its GPUs.

use super::super::write_rules;
use super::simulated_process::{GpuUsage, SimulatedProcess};
use gpukill_tests::harness::{
    Daemon, FakeProcfs, TestBox, TestProcess, can_run_as_other_users, copy_program, test_uid,
};
use serde_json::{Value, json};
use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};

/// The uid of the first person.
const FIRST_UID: u32 = test_uid(200);

/// A box and the persons on it.
pub(super) struct Scenario {
    pub(super) test_box: TestBox,
    procfs: FakeProcfs,
    /// Whether processes run as the uids of their persons. Only root can do that; otherwise the
    /// uids are simulated.
    is_real: bool,
    /// The names of the persons, in the order of their uids.
    people: Vec<String>,
    processes: Vec<ScenarioProcess>,
    /// The names of all processes, including ended ones.
    names: Vec<(u32, String)>,
    /// The state of each GPU without its processes.
    gpus: Vec<Value>,
    /// Environment variables of the daemon.
    pub(super) settings: Vec<(&'static str, String)>,
}

/// A process on GPUs.
struct ScenarioProcess {
    /// Its name in the scenario.
    name: String,
    child: TestProcess,
    usage: Vec<GpuUsage>,
}

impl Scenario {
    /// A box with this many GPUs and without persons.
    pub(super) fn new(gpus: usize) -> Self {
        let test_box = TestBox::new();
        test_box.make_world_accessible();
        let procfs = FakeProcfs::new(test_box.path("proc"));
        // The parent of all processes must exist in the tree; otherwise they would be orphans.
        procfs.link_with_changed_files(std::process::id(), &[("cgroup", Some("0::/\n"))]);
        Self {
            procfs,
            test_box,
            is_real: can_run_other_users(),
            people: Vec::new(),
            processes: Vec::new(),
            names: Vec::new(),
            gpus: vec![json!({}); gpus],
            settings: Vec::new(),
        }
    }

    /// Sets the state of a GPU.
    pub(super) fn set_gpu(&mut self, at: usize, is: Value) {
        self.gpus[at] = is;
    }

    /// The uid of a person, assigned at first use.
    pub(super) fn uid(&mut self, person: &str) -> u32 {
        let known = self.people.iter().position(|it| it == person);
        let at = known.unwrap_or_else(|| {
            self.people.push(person.to_owned());
            self.people.len() - 1
        });
        FIRST_UID + u32::try_from(at).unwrap()
    }

    /// Adds a person with one process.
    pub(super) fn add_person(&mut self, person: &str, usage: &[GpuUsage]) {
        let simulated = SimulatedProcess {
            person,
            usage,
            ..SimulatedProcess::default()
        };
        self.add_process(simulated);
    }

    /// Adds a process.
    pub(super) fn add_process(&mut self, simulated: SimulatedProcess<'_>) {
        let uid = self.uid(simulated.person);
        self.add_process_as(uid, simulated, Stdio::null());
    }

    /// Adds a process of this user with this standard input.
    pub(super) fn add_process_as(
        &mut self,
        uid: u32,
        simulated: SimulatedProcess<'_>,
        input: impl Into<Stdio>,
    ) {
        let mut command = Command::new(self.program(simulated.program));
        // `sleep` sleeps for the sum of its arguments.
        command.arg("1000").arg(simulated.argument);
        if self.is_real {
            command.uid(uid).gid(uid);
        }
        let process = TestProcess::spawn_with_input(&mut command, input);
        let read = |file: &str| {
            let file = format!("/proc/{}/{file}", process.pid());
            std::fs::read_to_string(file).unwrap()
        };
        let (status, stat) = (
            status_with_uid(&read("status"), uid),
            stat_of_orphan(&read("stat")),
        );
        let mut files = vec![("cgroup", Some(simulated.cgroup))];
        if !self.is_real && !simulated.unreadable_files.contains(&"status") {
            files.push(("status", Some(&status)));
        }
        if simulated.is_orphan {
            files.push(("stat", Some(&stat)));
        }
        files.extend(simulated.unreadable_files.iter().map(|file| (*file, None)));
        self.procfs.link_with_changed_files(process.pid(), &files);
        let name = simulated.name.unwrap_or(simulated.person).to_owned();
        self.names.push((process.pid(), name.clone()));
        self.processes.push(ScenarioProcess {
            name,
            child: process,
            usage: simulated.usage.to_vec(),
        });
    }

    /// The path of a program with this name that sleeps.
    fn program(&self, name: &str) -> std::path::PathBuf {
        let path = self.test_box.path(name);
        if name == "sleep" {
            return "sleep".into();
        }
        if !path.exists() {
            let sleep = ["/bin/sleep", "/usr/bin/sleep"]
                .into_iter()
                .find(|it| std::fs::exists(it).unwrap());
            copy_program(sleep.unwrap(), &path);
        }
        path
    }

    /// Changes the GPU usage of a process.
    pub(super) fn set_usage(&mut self, name: &str, usage: &[GpuUsage]) {
        let process = self.processes.iter_mut().find(|it| it.name == name);
        process.unwrap().usage = usage.to_vec();
    }

    /// Writes the current state for the simulated driver.
    pub(super) fn write_driver_state(&self) {
        let gpus = self.gpus.iter().enumerate().map(|(at, gpu)| {
            let processes = self.processes.iter().flat_map(|process| {
                let usage = process.usage.iter().filter(move |hold| hold.gpu == at);
                usage.map(|hold| {
                    let pid = process.child.pid();
                    json!({"pid": pid, "memory": hold.memory, "sm": hold.utilization})
                })
            });
            let mut gpu = gpu.clone();
            gpu["processes"] = processes.collect();
            gpu
        });
        self.test_box
            .set_driver_state(&json!({"gpus": gpus.collect::<Value>()}));
    }

    /// Ends a process.
    pub(super) fn end_process(&mut self, name: &str) {
        let at = self.processes.iter().position(|it| it.name == name);
        let process = self.processes.remove(at.unwrap());
        self.write_driver_state();
        self.procfs.remove_process(process.child.pid());
    }

    /// Writes the rules; `@alice` stands for the uid of alice.
    pub(super) fn rules(&mut self, text: &str) {
        let text = self.replace_persons(text);
        write_rules(&self.test_box, &text);
    }

    fn replace_persons(&mut self, text: &str) -> String {
        let mut parts = text.split('@');
        let mut written = parts.next().unwrap().to_owned();
        for part in parts {
            let is_of_name = |c: char| c.is_ascii_lowercase() || c == '_';
            let end = part.find(|c| !is_of_name(c)).unwrap_or(part.len());
            let (person, rest) = part.split_at(end);
            written.push_str(&format!("{}{rest}", self.uid(person)));
        }
        written
    }

    pub(super) fn start_daemon(&self) -> Daemon {
        self.write_driver_state();
        let mut daemon = self.test_box.daemon_command();
        daemon
            .env("GPUKILLD_BACKENDS_PROCFS_ROOT", self.procfs.root())
            .env("GPUKILLD_BACKENDS_HOST_ROOT", self.test_box.path("home"))
            // A reading that is later than half an interval is stale. Test machines are slow,
            // so the interval is longer here.
            .env("GPUKILLD_DAEMON_POLL_INTERVAL", "500ms");
        daemon.envs(self.settings.iter().map(|(key, value)| (key, value)));
        self.test_box.start_with(&mut daemon)
    }

    /// Replaces uids by the names of persons, and GPU ids by indices.
    pub(super) fn with_names(&self, text: &str) -> String {
        let users = (FIRST_UID..).map(|uid| uid.to_string());
        let people = users.zip(self.people.iter().cloned());
        // The ids that the stand-in NVML assigns.
        let id = |at| format!("GPU-00000000-0000-0000-0000-{at:012x}");
        let gpus = (0..self.gpus.len()).map(|at| (id(at), format!("gpu {at}")));
        let names = people.chain(gpus);
        names.fold(text.to_owned(), |text, (id, name)| text.replace(&id, &name))
    }

    /// The name of a process in the scenario.
    pub(super) fn process_name(&self, pid: &Value) -> String {
        let name = self.names.iter().find(|(known, _)| pid == known);
        name.map_or_else(|| pid.to_string(), |(_, name)| name.clone())
    }
}

/// Whether processes can run as other users and this process can inspect them: in some
/// containers root may not inspect processes of other users.
fn can_run_other_users() -> bool {
    can_run_as_other_users() && {
        let other = TestProcess::spawn(
            Command::new("sleep")
                .arg("1000")
                .uid(FIRST_UID)
                .gid(FIRST_UID),
        );
        let namespace = format!("/proc/{}/ns/user", other.pid());
        std::fs::read_link(namespace).is_ok()
    }
}

/// A process's `status` file with this uid.
fn status_with_uid(status: &str, uid: u32) -> String {
    let lines = status.lines().map(|line| match line.starts_with("Uid:") {
        true => format!("Uid:\t{uid}\t{uid}\t{uid}\t{uid}\n"),
        false => format!("{line}\n"),
    });
    lines.collect()
}

/// A process's `stat` file as if its parent had ended.
fn stat_of_orphan(stat: &str) -> String {
    let (name, rest) = stat.rsplit_once(") ").unwrap();
    let mut fields: Vec<&str> = rest.split(' ').collect();
    fields[1] = "1";
    format!("{name}) {}", fields.join(" "))
}
