//! The people on a box, and the real processes that they have on its GPUs.

use super::super::has_rules;
use super::part::{Hold, Part};
use gpukill_tests::harness::{Actor, Daemon, Procfs, Stage, can_act_as_others, copy_program, user};
use serde_json::{Value, json};
use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};

/// The first of the users that people are.
const FIRST: u32 = user(200);

/// A box and the people on it.
pub(super) struct Cast {
    pub(super) stage: Stage,
    procfs: Procfs,
    /// Whether processes are really run by whom they seem to be: only root can.
    is_real: bool,
    /// What the first user is called, what the next.
    people: Vec<String>,
    players: Vec<Player>,
    /// What each process is called here, also those that have ended.
    names: Vec<(u32, String)>,
    /// What each GPU is, besides the processes on it.
    gpus: Vec<Value>,
    /// Settings of the daemon, by their variables.
    pub(super) settings: Vec<(&'static str, String)>,
}

/// A process on GPUs.
struct Player {
    /// What it is called here.
    called: String,
    actor: Actor,
    holds: Vec<Hold>,
}

impl Cast {
    /// Nobody yet, on so many GPUs.
    pub(super) fn on(gpus: usize) -> Self {
        let stage = Stage::new();
        stage.open_to_all();
        let procfs = Procfs::at(stage.path("proc"));
        // Whoever starts them all: without it they were orphans.
        procfs.dress(std::process::id(), &[("cgroup", Some("0::/\n"))]);
        Self {
            procfs,
            stage,
            is_real: can_play_others(),
            people: Vec::new(),
            players: Vec::new(),
            names: Vec::new(),
            gpus: vec![json!({}); gpus],
            settings: Vec::new(),
        }
    }

    /// This GPU is so.
    pub(super) fn gpu(&mut self, at: usize, is: Value) {
        self.gpus[at] = is;
    }

    /// The user that a person is.
    pub(super) fn uid(&mut self, who: &str) -> u32 {
        let known = self.people.iter().position(|it| it == who);
        let at = known.unwrap_or_else(|| {
            self.people.push(who.to_owned());
            self.people.len() - 1
        });
        FIRST + u32::try_from(at).unwrap()
    }

    /// A person with one process.
    pub(super) fn person(&mut self, who: &str, holds: &[Hold]) {
        let part = Part {
            who,
            holds,
            ..Part::default()
        };
        self.plays(part);
    }

    /// One more process.
    pub(super) fn plays(&mut self, part: Part<'_>) {
        let uid = self.uid(part.who);
        self.plays_as(uid, part, Stdio::null());
    }

    /// One more process, by this user, with this for its input.
    pub(super) fn plays_as(&mut self, uid: u32, part: Part<'_>, input: impl Into<Stdio>) {
        let mut command = Command::new(self.program(part.program));
        // It sleeps for the sum of these.
        command.arg("1000").arg(part.argument);
        if self.is_real {
            command.uid(uid).gid(uid);
        }
        let actor = Actor::with(&mut command, input);
        let read = |file: &str| {
            let file = format!("/proc/{}/{file}", actor.pid());
            std::fs::read_to_string(file).unwrap()
        };
        let (status, stat) = (of_user(&read("status"), uid), orphaned(&read("stat")));
        let mut files = vec![("cgroup", Some(part.cgroup))];
        if !self.is_real && !part.hides.contains(&"status") {
            files.push(("status", Some(&status)));
        }
        if part.is_orphan {
            files.push(("stat", Some(&stat)));
        }
        let login = part.login.map(|uid| uid.to_string());
        if let Some(login) = &login {
            files.push(("loginuid", Some(login)));
        }
        files.extend(part.hides.iter().map(|file| (*file, None)));
        self.procfs.dress(actor.pid(), &files);
        let called = part.called.unwrap_or(part.who).to_owned();
        self.names.push((actor.pid(), called.clone()));
        self.players.push(Player {
            called,
            actor,
            holds: part.holds.to_vec(),
        });
    }

    /// A program of this name that sleeps.
    fn program(&self, name: &str) -> std::path::PathBuf {
        let path = self.stage.path(name);
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

    /// Changes what somebody does.
    pub(super) fn turns(&mut self, called: &str, holds: &[Hold]) {
        let player = self.players.iter_mut().find(|it| it.called == called);
        player.unwrap().holds = holds.to_vec();
    }

    /// Lets the driver tell what all do now.
    pub(super) fn show(&self) {
        let gpus = self.gpus.iter().enumerate().map(|(at, gpu)| {
            let processes = self.players.iter().flat_map(|player| {
                let holds = player.holds.iter().filter(move |hold| hold.gpu == at);
                holds.map(
                    |hold| json!({"pid": player.actor.pid(), "memory": hold.memory, "sm": hold.works}),
                )
            });
            let mut gpu = gpu.clone();
            gpu["processes"] = processes.collect();
            gpu
        });
        self.stage.play(&json!({"gpus": gpus.collect::<Value>()}));
    }

    /// Somebody ends.
    pub(super) fn ends(&mut self, called: &str) {
        let at = self.players.iter().position(|it| it.called == called);
        let player = self.players.remove(at.unwrap());
        self.show();
        self.procfs.forget(player.actor.pid());
    }

    /// These rules hold, in which `@alice` is the user that alice is.
    pub(super) fn rules(&mut self, text: &str) {
        let text = self.written(text);
        has_rules(&self.stage, &text);
    }

    fn written(&mut self, text: &str) -> String {
        let mut parts = text.split('@');
        let mut written = parts.next().unwrap().to_owned();
        for part in parts {
            let is_of_name = |c: char| c.is_ascii_lowercase() || c == '_';
            let end = part.find(|c| !is_of_name(c)).unwrap_or(part.len());
            let (who, rest) = part.split_at(end);
            written.push_str(&format!("{}{rest}", self.uid(who)));
        }
        written
    }

    /// Starts the daemon.
    pub(super) fn start(&self) -> Daemon {
        self.show();
        let mut daemon = self.stage.daemon();
        daemon
            .env("GPUKILLD_BACKENDS_PROCFS_ROOT", self.procfs.root())
            .env("GPUKILLD_BACKENDS_HOST_ROOT", self.stage.path("home"))
            // A reading that comes later than half of this is old, and old is not
            // known: test machines are slow.
            .env("GPUKILLD_DAEMON_POLL_INTERVAL", "500ms");
        daemon.envs(self.settings.iter().map(|(key, value)| (key, value)));
        self.stage.start_with(&mut daemon)
    }

    /// A text with people for users, and numbers for GPUs.
    pub(super) fn named(&self, text: &str) -> String {
        let users = (FIRST..).map(|uid| uid.to_string());
        let people = users.zip(self.people.iter().cloned());
        // As the stand-in calls them.
        let id = |at| format!("GPU-00000000-0000-0000-0000-{at:012x}");
        let gpus = (0..self.gpus.len()).map(|at| (id(at), format!("gpu {at}")));
        let names = people.chain(gpus);
        names.fold(text.to_owned(), |text, (id, name)| text.replace(&id, &name))
    }

    /// What this process is called here.
    pub(super) fn called(&self, pid: &Value) -> String {
        let name = self.names.iter().find(|(known, _)| pid == known);
        name.map_or_else(|| pid.to_string(), |(_, called)| called.clone())
    }
}

/// Whether processes can be run by other users, and be seen by whoever runs this: in
/// some containers root may not look at those of others.
fn can_play_others() -> bool {
    can_act_as_others() && {
        let other = Actor::of(Command::new("sleep").arg("1000").uid(FIRST).gid(FIRST));
        let namespace = format!("/proc/{}/ns/user", other.pid());
        std::fs::read_link(namespace).is_ok()
    }
}

/// What the kernel tells of a process, had it this user.
fn of_user(status: &str, uid: u32) -> String {
    let lines = status.lines().map(|line| match line.starts_with("Uid:") {
        true => format!("Uid:\t{uid}\t{uid}\t{uid}\t{uid}\n"),
        false => format!("{line}\n"),
    });
    lines.collect()
}

/// What the kernel tells of a process, had its parent ended.
fn orphaned(stat: &str) -> String {
    let (name, rest) = stat.rsplit_once(") ").unwrap();
    let mut fields: Vec<&str> = rest.split(' ').collect();
    fields[1] = "1";
    format!("{name}) {}", fields.join(" "))
}
