//! The daemon's settings: one table of keys, from defaults, file and
//! environment, in this order. Every mistake is told at once.

mod changed;

mod document;

mod foreign_pids;

mod keys;

mod trusted_file;

pub use foreign_pids::ForeignPids;
use gpukill_policy::alert::Thresholds;
use gpukill_proto::settings::{self, Mistake};
pub use keys::KEYS;
use std::fmt;
use std::fs::Metadata;
use std::io::Read as _;
use std::os::unix::fs::FileTypeExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;
pub(crate) use trusted_file::{OTHERS_WRITE, STICKY, is_others, open, parent};

/// Everything that can be set.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Config {
    /// Polling and places.
    pub daemon: Daemon,
    /// Who may what.
    pub access: Access,
    /// What is read.
    pub backends: Backends,
    /// What is kept.
    pub audit: Audit,
    /// How devices are reset.
    pub reset: Reset,
    /// What is judged.
    pub guard: Guard,
    /// What is taken for a rogue.
    pub rogue: Rogue,
    /// What of a device is told when it is high.
    pub alerts: Thresholds,
    /// What nobody ends.
    pub protect: Protect,
    /// What [`Daemon::foreign_pids`] comes to. Not set by a key.
    pub foreign_pids: ForeignPids,
    /// Set by `--user`, not by a key: run for one person.
    pub personal: bool,
}

/// Polling and places.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Daemon {
    /// Where clients connect.
    pub socket: PathBuf,
    /// Where the store lies.
    pub state_dir: PathBuf,
    /// The time from one poll to the next.
    pub poll_interval: Duration,
    /// Whether processes may be ended although these are not the host's pids.
    pub foreign_pids: bool,
}

/// Who may what.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Access {
    /// The group that may end anybody's processes.
    pub operator_group: String,
    /// The group that may edit the rules.
    pub admin_group: String,
    /// Whether plain users may not see others' command lines.
    pub hide_other_users: bool,
    /// The label of a container that names whose it is; empty for none.
    pub owner_label: String,
}

/// What is read.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Backends {
    /// Which vendors, out of [`keys::BACKENDS`].
    pub enabled: Vec<String>,
    /// A bare name or an absolute path.
    pub nvidia_library: String,
    /// `/sys`, but in tests.
    pub sysfs_root: PathBuf,
    /// `/proc`, but in tests.
    pub procfs_root: PathBuf,
    /// `/`, but where the host's files are seen elsewhere.
    pub host_root: PathBuf,
}

/// What is kept.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Audit {
    /// The time from one sample to the next.
    pub sample_interval: Duration,
    /// How long samples are kept.
    pub keep_samples: Duration,
    /// How long minutes are kept.
    pub keep_minutes: Duration,
    /// How long hours are kept, and with them which processes ran.
    pub keep_hours: Duration,
}

/// What nobody ends, whoever asks, besides what the box itself needs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Protect {
    /// Names of processes, whole.
    pub names: Vec<String>,
    /// Names or numbers of users.
    pub users: Vec<String>,
    /// Names of systemd units, with `*` and `?`.
    pub units: Vec<String>,
    /// Names or ids of containers.
    pub containers: Vec<String>,
}

/// What is judged.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Guard {
    /// The file of rules.
    pub rules: PathBuf,
    /// Where the terminals lie on which people are warned; `None` where they are on none.
    pub terminals: Option<PathBuf>,
}

/// What is taken for a rogue.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Rogue {
    /// The file of rules.
    pub rules: PathBuf,
}

/// How devices are reset.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Reset {
    /// The socket of `gpukill-reset`.
    pub helper: PathBuf,
}

/// With this begins every variable that overrides a key.
pub const PREFIX: &str = "GPUKILLD_";

/// Settings that cannot be used, with every reason.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Invalid {
    /// The file, where there is one.
    pub file: Option<PathBuf>,
    /// What is wrong with it or with the environment.
    pub mistakes: Vec<Mistake>,
}

impl fmt::Display for Invalid {
    /// One mistake on each line.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (position, mistake) in self.mistakes.iter().enumerate() {
            if position > 0 {
                writeln!(f)?;
            }
            match (&self.file, mistake.line) {
                (Some(file), Some(line)) => {
                    write!(f, "{}:{line}: {}", file.display(), mistake.what)?
                }
                (Some(_), None) | (None, _) => write!(f, "{mistake}")?,
            }
        }
        Ok(())
    }
}

/// A settings file is a few hundred bytes.
const LONGEST_FILE: u64 = 1 << 20;

/// For whom the daemon runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// For everybody on the box.
    Box,
    /// For the one person who starts it.
    Personal,
}

/// Reads the settings. `named` is the file of `--config`, which must exist; the
/// usual one need not.
///
/// # Errors
/// Every mistake in the file and in the environment.
pub fn load(
    named: Option<&Path>,
    scope: Scope,
    environment: &[(String, String)],
) -> Result<Config, Invalid> {
    let (mut config, mut mistakes) = defaults(scope, environment);
    let file = named.map_or_else(|| usual_file(scope, environment), Path::to_path_buf);
    match read(&file, scope) {
        Ok((text, metadata)) => {
            if let Some(why) = distrusted(&metadata, scope) {
                let what = format!("{}: {why}", file.display());
                mistakes.push(Mistake { line: None, what });
            }
            mistakes.extend(settings::apply_file(KEYS, &text, &mut config));
            if config.daemon.foreign_pids {
                config.foreign_pids = ForeignPids::said_by(&file, &metadata, scope);
            }
        }
        // A link that leads nowhere, as far as the daemon sees, was meant to say something.
        Err(error)
            if error.kind() == std::io::ErrorKind::NotFound
                && named.is_none()
                && file.symlink_metadata().is_err() => {}
        Err(error) => {
            let what = format!("cannot read {}: {error}", file.display());
            mistakes.push(Mistake { line: None, what });
        }
    }
    mistakes.extend(settings::apply_environment(
        KEYS,
        Some(PREFIX),
        environment.to_vec(),
        &mut config,
    ));
    config.foreign_pids = config
        .foreign_pids
        .and_environment(config.daemon.foreign_pids);
    if mistakes.is_empty() {
        Ok(config)
    } else {
        Err(Invalid {
            file: Some(file),
            mistakes,
        })
    }
}

/// The text of a settings file, and its metadata. A FIFO is never waited for.
fn read(path: &Path, scope: Scope) -> std::io::Result<(String, Metadata)> {
    let owner = match scope {
        Scope::Box => 0,
        Scope::Personal => rustix::process::geteuid().as_raw(),
    };
    let file = trusted_file::open_settings(path, owner)?;
    let metadata = file.metadata()?;
    let kind = metadata.file_type();
    if !kind.is_file() && !kind.is_char_device() {
        return Err(std::io::Error::other("it is no file"));
    }
    let mut text = String::new();
    file.take(LONGEST_FILE + 1).read_to_string(&mut text)?;
    if text.len() as u64 > LONGEST_FILE {
        return Err(std::io::Error::other("it is longer than 1 MiB"));
    }
    Ok((text, metadata))
}

/// Why somebody else may have written it. What is no file, such as `/dev/null`, says
/// nothing of anybody.
fn distrusted(metadata: &Metadata, scope: Scope) -> Option<String> {
    let open = match scope {
        Scope::Box => OTHERS_WRITE,
        // A person's own group may be of nobody else, and its members write by default.
        Scope::Personal => 0o002,
    };
    metadata.is_file().then(|| is_others(metadata, open))?
}

fn usual_file(scope: Scope, environment: &[(String, String)]) -> PathBuf {
    match scope {
        Scope::Box => PathBuf::from("/etc/gpukill/gpukilld.toml"),
        Scope::Personal => {
            base(environment, "XDG_CONFIG_HOME", ".config").join("gpukill/gpukilld.toml")
        }
    }
}

fn defaults(scope: Scope, environment: &[(String, String)]) -> (Config, Vec<Mistake>) {
    let (mut config, mistakes): (Config, _) = settings::defaults(KEYS);
    match scope {
        Scope::Box => {}
        Scope::Personal => {
            config.personal = true;
            config.daemon.socket = personal_socket(environment);
            config.daemon.state_dir =
                base(environment, "XDG_STATE_HOME", ".local/state").join("gpukill");
            let settings = base(environment, "XDG_CONFIG_HOME", ".config").join("gpukill");
            config.guard.rules = settings.join("guard.toml");
            config.rogue.rules = settings.join("rogue.toml");
        }
    }
    (config, mistakes)
}

/// Where the daemon of one person listens: the same place where `gpukillctl`
/// looks after the box's own.
fn personal_socket(environment: &[(String, String)]) -> PathBuf {
    let uid = rustix::process::getuid().as_raw();
    let runtime =
        variable(environment, "XDG_RUNTIME_DIR").map(|base| Path::new(base).join("gpukill"));
    runtime
        .unwrap_or_else(|| PathBuf::from(format!("/tmp/gpukill-{uid}")))
        .join("gpukilld.sock")
}

fn base(environment: &[(String, String)], name: &str, below_home: &str) -> PathBuf {
    variable(environment, name).map_or_else(
        || Path::new(variable(environment, "HOME").unwrap_or("/")).join(below_home),
        PathBuf::from,
    )
}

/// The XDG rules: a relative path is as good as none.
fn variable<'a>(environment: &'a [(String, String)], name: &str) -> Option<&'a str> {
    let found = environment
        .iter()
        .find(|(key, _)| key == name)
        .map(|(_, value)| value.as_str());
    found.filter(|value| value.starts_with('/'))
}

/// The commented file of `--print-default-config`.
#[must_use]
pub fn print_default() -> String {
    format!(
        "# gpukilld's settings and their defaults.\n\n{}",
        settings::print_defaults(KEYS)
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpukill_proto::DEFAULT_SOCKET;
    use gpukill_proto::units::{Celsius, Percent};

    fn environment(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
        pairs
            .iter()
            .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
            .collect()
    }

    fn loaded(text: &str, variables: &[(&str, &str)]) -> Result<Config, String> {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("gpukilld.toml");
        std::fs::write(&file, text).unwrap();
        let result = load(Some(&file), Scope::Box, &environment(variables));
        result.map_err(|invalid| {
            invalid
                .to_string()
                .replace(&format!("{}:", file.display()), "")
        })
    }

    #[test]
    fn a_link_to_nothing_is_not_no_settings() {
        let home = tempfile::tempdir().unwrap();
        let variables = environment(&[("XDG_CONFIG_HOME", home.path().to_str().unwrap())]);
        let load = || load(None, Scope::Personal, &variables);
        assert!(load().is_ok());
        std::fs::create_dir(home.path().join("gpukill")).unwrap();
        let link = home.path().join("gpukill/gpukilld.toml");
        std::os::unix::fs::symlink("/nowhere", link).unwrap();
        assert!(load().unwrap_err().to_string().contains("cannot read"));
    }

    #[test]
    fn settings_that_somebody_else_may_have_written_are_not_taken() {
        use std::os::unix::fs::PermissionsExt as _;
        let file = tempfile::NamedTempFile::new().unwrap();
        let told = |mode, scope| {
            let mode = std::fs::Permissions::from_mode(mode);
            std::fs::set_permissions(&file, mode).unwrap();
            let (_, metadata) = read(file.path(), scope).unwrap();
            distrusted(&metadata, scope)
        };
        let open = "others than its owner may write it: chmod go-w it";
        for (mode, for_all, for_one) in [
            (0o644, None, None),
            (0o664, Some(open), None),
            (0o646, Some(open), Some(open)),
        ] {
            assert_eq!(told(mode, Scope::Box).as_deref(), for_all, "{mode:o}");
            assert_eq!(told(mode, Scope::Personal).as_deref(), for_one, "{mode:o}");
        }
        let (_, of_nobody) = read(Path::new("/dev/null"), Scope::Box).unwrap();
        assert_eq!(distrusted(&of_nobody, Scope::Box), None);
        if rustix::process::geteuid().is_root() {
            std::os::unix::fs::chown(file.path(), Some(65_534), None).unwrap();
            let why = told(0o644, Scope::Box);
            assert_eq!(
                why.as_deref(),
                Some("it belongs to uid 65534: chown root it")
            );
        }
    }

    #[test]
    fn the_printed_defaults_are_the_defaults() {
        let defaults = loaded("", &[]).unwrap();
        assert_eq!(loaded(&print_default(), &[]), Ok(defaults.clone()));
        let expected = Config {
            daemon: Daemon {
                socket: DEFAULT_SOCKET.into(),
                state_dir: "/var/lib/gpukill".into(),
                poll_interval: Duration::from_secs(2),
                foreign_pids: false,
            },
            access: Access {
                operator_group: "gpukill-operators".into(),
                admin_group: "gpukill-admin".into(),
                hide_other_users: false,
                owner_label: String::new(),
            },
            backends: Backends {
                enabled: ["nvidia", "amd", "intel", "drm", "apple"]
                    .map(str::to_owned)
                    .to_vec(),
                nvidia_library: "libnvidia-ml.so.1".into(),
                sysfs_root: "/sys".into(),
                procfs_root: "/proc".into(),
                host_root: "/".into(),
            },
            audit: Audit {
                sample_interval: Duration::from_secs(10),
                keep_samples: Duration::from_secs(7 * 86_400),
                keep_minutes: Duration::from_secs(90 * 86_400),
                keep_hours: Duration::from_secs(2 * 365 * 86_400),
            },
            guard: Guard {
                rules: "/etc/gpukill/rules/guard.toml".into(),
                terminals: Some("/dev".into()),
            },
            rogue: Rogue {
                rules: "/etc/gpukill/rules/rogue.toml".into(),
            },
            reset: Reset {
                helper: "/run/gpukill-reset.sock".into(),
            },
            alerts: Thresholds::default(),
            protect: Protect::default(),
            foreign_pids: ForeignPids::Refuse,
            personal: false,
        };
        assert_eq!(defaults, expected);
    }

    #[test]
    fn every_mistake_is_told_at_once_with_its_line() {
        let text = "[daemon]\npoll_interval = \"2\"\nsocket = \"relative\"\n[acess]\n[backends]\nenabled = [\"nvidea\"]\nnvidia_library = \"../evil.so\"\n[audit]\nkeep_samples = 7\n";
        assert_eq!(
            loaded(
                text,
                &[
                    ("GPUKILLD_ACCESS_HIDE_OTHER_USERS", "maybe"),
                    ("GPUKILLD_NONSENSE", "1")
                ]
            )
            .unwrap_err(),
            "2: daemon.poll_interval: \"2\" is not a duration from \"100ms\" to \"1h\", like \"2s\" or \"7d\"\n\
             3: daemon.socket: \"relative\" is not an absolute path\n\
             4: unknown key acess\n\
             6: backends.enabled: \"nvidea\" is none of nvidia, amd, intel, drm, apple\n\
             7: backends.nvidia_library: \"../evil.so\" is neither a bare file name nor an absolute path\n\
             9: audit.keep_samples: 7 is not a duration from \"1h\" to \"10y\", like \"2s\" or \"7d\"\n\
             GPUKILLD_ACCESS_HIDE_OTHER_USERS: \"maybe\" is neither true nor false\n\
             GPUKILLD_NONSENSE overrides no setting"
        );
    }

    #[test]
    fn what_is_protected_is_named_whole() {
        let text = "[protect]\nnames = [\"ollama\", \"ollama\", \"vllm serve\"]\nunits = [\"train@1.service\", \"vllm@*.service\"]\n";
        let expected = Protect {
            names: vec!["ollama".into(), "vllm serve".into()],
            units: vec!["train@1.service".into(), "vllm@*.service".into()],
            ..Protect::default()
        };
        assert_eq!(loaded(text, &[]).unwrap().protect, expected);
        let long = "x".repeat(256);
        let text = format!(
            "[protect]\nnames = [\"python*\"]\nusers = \"prod\"\nunits = [\"inference\"]\ncontainers = [\"{long}\"]\nprocesses = []\n"
        );
        assert_eq!(
            loaded(&text, &[]).unwrap_err(),
            format!(
                "2: protect.names: \"python*\" has a wildcard: write the whole name; only units take * and ?\n\
                 3: protect.users: \"prod\" is not a list of names\n\
                 4: protect.units: \"inference\" is neither a .service nor a .scope, nor a pattern that ends with *\n\
                 5: protect.containers: \"{long}\" is longer than 255 bytes\n\
                 6: unknown key protect.processes"
            )
        );
        let many: Vec<String> = (0..257).map(|n| format!("\"{n}\"")).collect();
        let text = format!("[protect]\nusers = [{}]\n", many.join(","));
        let why = "2: protect.users: has 257 names, more than 256";
        assert_eq!(loaded(&text, &[]).unwrap_err(), why);
    }

    #[test]
    fn thresholds_of_alerts_are_whole_and_none_is_set_that_is_not_written() {
        let text = "[alerts]\ntemp_threshold_celsius = 85.0\nmemory_threshold_percent = 90.0\n";
        let whole = text.replace(".0", "");
        let expected = Thresholds {
            temperature: Some(Celsius(85)),
            memory: Some(Percent(90)),
        };
        for text in [text, &whole] {
            assert_eq!(loaded(text, &[]).unwrap().alerts, expected);
        }
        let text = "[alerts]\nmemory_threshold_percent = 100\n";
        let hottest = ("GPUKILLD_ALERTS_TEMP_THRESHOLD_CELSIUS", "150");
        let expected = Thresholds {
            temperature: Some(Celsius(150)),
            memory: Some(Percent(100)),
        };
        assert_eq!(loaded(text, &[hottest]).unwrap().alerts, expected);
        assert_eq!(
            loaded("[alerts]\n", &[]).unwrap().alerts,
            Thresholds::default()
        );
        let told = |value: &str| {
            let text = format!(
                "[alerts]\ntemp_threshold_celsius = {value}\nmemory_threshold_percent = {value}\n"
            );
            loaded(&text, &[]).unwrap_err()
        };
        for value in ["0", "151", "85.5", "nan", "-1", "1e300", "\"85\"", "true"] {
            let shown = value.parse::<toml::Value>().unwrap();
            assert_eq!(
                told(value),
                format!(
                    "2: alerts.temp_threshold_celsius: {shown} is not a whole number from 1 to 150\n\
                     3: alerts.memory_threshold_percent: {shown} is not a whole number from 1 to 100"
                )
            );
        }
        let variable = ("GPUKILLD_ALERTS_MEMORY_THRESHOLD_PERCENT", "101");
        assert_eq!(
            loaded("[alerts]\ntemp_treshold_celsius = 85\n", &[variable]).unwrap_err(),
            "2: unknown key alerts.temp_treshold_celsius; did you mean alerts.temp_threshold_celsius?\n\
             GPUKILLD_ALERTS_MEMORY_THRESHOLD_PERCENT: \"101\" is not a whole number from 1 to 100"
        );
    }

    #[test]
    fn the_thresholds_of_alerts_are_printed_as_comments() {
        let printed = print_default();
        let (_, section) = printed.split_once("\n[alerts]\n").unwrap();
        let (section, _) = section.split_once("\n[").unwrap();
        let keys = section.lines().filter(|line| line.ends_with('='));
        assert_eq!(
            keys.collect::<Vec<_>>(),
            ["# temp_threshold_celsius =", "# memory_threshold_percent ="]
        );
        let is_comment = |line: &str| line.is_empty() || line.starts_with("# ");
        assert!(section.lines().all(is_comment), "{section}");
    }

    #[test]
    fn foreign_pids_are_believed_of_ones_own_file_and_not_of_the_environment() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("gpukilld.toml");
        let set = ("GPUKILLD_DAEMON_FOREIGN_PIDS", "true");
        let unset = ("GPUKILLD_DAEMON_FOREIGN_PIDS", "false");
        let loaded = |text: &str, variables: &[(&str, &str)]| {
            std::fs::write(&file, text).unwrap();
            let allowed = std::os::unix::fs::PermissionsExt::from_mode(0o600);
            std::fs::set_permissions(&file, allowed).unwrap();
            let config = load(Some(&file), Scope::Personal, &environment(variables));
            config.unwrap().foreign_pids
        };
        let by_file = "[daemon]\nforeign_pids = true\n";
        assert_eq!(loaded(by_file, &[]), ForeignPids::Act);
        assert_eq!(loaded(by_file, &[set]), ForeignPids::Act);
        assert_eq!(loaded(by_file, &[unset]), ForeignPids::Refuse);
        assert_eq!(loaded("", &[]), ForeignPids::Refuse);
        let alone = ForeignPids::NotBelieved("no file says so".into());
        assert_eq!(loaded("", &[set]), alone);
    }

    #[test]
    fn the_environment_wins_over_the_file_for_every_key() {
        type Case = (&'static str, &'static str, fn(&Config) -> String);
        let cases: &[Case] = &[
            ("GPUKILLD_DAEMON_SOCKET", "/x/s", |c| {
                c.daemon.socket.display().to_string()
            }),
            ("GPUKILLD_DAEMON_STATE_DIR", "/x/d", |c| {
                c.daemon.state_dir.display().to_string()
            }),
            ("GPUKILLD_DAEMON_POLL_INTERVAL", "7s", |c| {
                format!("{}s", c.daemon.poll_interval.as_secs())
            }),
            ("GPUKILLD_ACCESS_OPERATOR_GROUP", "ops", |c| {
                c.access.operator_group.clone()
            }),
            ("GPUKILLD_ACCESS_ADMIN_GROUP", "adm", |c| {
                c.access.admin_group.clone()
            }),
            ("GPUKILLD_ACCESS_HIDE_OTHER_USERS", "true", |c| {
                c.access.hide_other_users.to_string()
            }),
            ("GPUKILLD_ACCESS_OWNER_LABEL", "com.example.owner", |c| {
                c.access.owner_label.clone()
            }),
            ("GPUKILLD_BACKENDS_ENABLED", "nvidia,drm", |c| {
                c.backends.enabled.join(",")
            }),
            ("GPUKILLD_BACKENDS_NVIDIA_LIBRARY", "/x/lib.so", |c| {
                c.backends.nvidia_library.clone()
            }),
            ("GPUKILLD_BACKENDS_SYSFS_ROOT", "/x/sys", |c| {
                c.backends.sysfs_root.display().to_string()
            }),
            ("GPUKILLD_BACKENDS_PROCFS_ROOT", "/x/proc", |c| {
                c.backends.procfs_root.display().to_string()
            }),
            ("GPUKILLD_BACKENDS_HOST_ROOT", "/x/host", |c| {
                c.backends.host_root.display().to_string()
            }),
            ("GPUKILLD_AUDIT_SAMPLE_INTERVAL", "77s", |c| {
                format!("{}s", c.audit.sample_interval.as_secs())
            }),
            ("GPUKILLD_AUDIT_KEEP_SAMPLES", "7200s", |c| {
                format!("{}s", c.audit.keep_samples.as_secs())
            }),
            ("GPUKILLD_AUDIT_KEEP_MINUTES", "7201s", |c| {
                format!("{}s", c.audit.keep_minutes.as_secs())
            }),
            ("GPUKILLD_AUDIT_KEEP_HOURS", "7202s", |c| {
                format!("{}s", c.audit.keep_hours.as_secs())
            }),
            ("GPUKILLD_DAEMON_FOREIGN_PIDS", "true", |c| {
                c.daemon.foreign_pids.to_string()
            }),
            ("GPUKILLD_PROTECT_NAMES", "ollama,vllm serve", |c| {
                c.protect.names.join(",")
            }),
            ("GPUKILLD_PROTECT_USERS", "prod,1007", |c| {
                c.protect.users.join(",")
            }),
            ("GPUKILLD_PROTECT_UNITS", "inference.service", |c| {
                c.protect.units.join(",")
            }),
            ("GPUKILLD_PROTECT_CONTAINERS", "triton,0123456789ab", |c| {
                c.protect.containers.join(",")
            }),
            ("GPUKILLD_GUARD_RULES", "/x/guard.toml", |c| {
                c.guard.rules.display().to_string()
            }),
            ("GPUKILLD_GUARD_TERMINALS", "/x/dev", |c| {
                let terminals = c.guard.terminals.as_ref();
                terminals.map_or_else(String::new, |it| it.display().to_string())
            }),
            ("GPUKILLD_ROGUE_RULES", "/x/rogue.toml", |c| {
                c.rogue.rules.display().to_string()
            }),
            ("GPUKILLD_RESET_HELPER", "/x/reset.sock", |c| {
                c.reset.helper.display().to_string()
            }),
            ("GPUKILLD_ALERTS_TEMP_THRESHOLD_CELSIUS", "83", |c| {
                c.alerts.temperature.unwrap().0.to_string()
            }),
            ("GPUKILLD_ALERTS_MEMORY_THRESHOLD_PERCENT", "97", |c| {
                c.alerts.memory.unwrap().0.to_string()
            }),
        ];
        assert_eq!(cases.len(), KEYS.len());
        for (name, value, read) in cases {
            let config = loaded(&print_default(), &[(name, value)]).unwrap();
            assert_eq!(read(&config), *value, "{name}");
        }
    }

    #[test]
    fn a_file_that_was_named_must_exist_and_the_usual_one_need_not() {
        let missing = load(Some(Path::new("/nonexistent/x.toml")), Scope::Box, &[]);
        assert_eq!(
            missing.unwrap_err().to_string(),
            "cannot read /nonexistent/x.toml: No such file or directory (os error 2)"
        );
        let endless = load(Some(Path::new("/dev/zero")), Scope::Box, &[]);
        assert_eq!(
            endless.unwrap_err().to_string(),
            "cannot read /dev/zero: it is longer than 1 MiB"
        );
        let nowhere = environment(&[
            ("XDG_CONFIG_HOME", "/nonexistent"),
            ("HOME", "/nonexistent"),
        ]);
        assert!(load(None, Scope::Personal, &nowhere).is_ok());
    }

    #[test]
    fn a_personal_daemon_lives_in_its_owners_directories() {
        let variables = environment(&[("XDG_RUNTIME_DIR", "/run/user/7"), ("HOME", "/home/ann")]);
        let config = load(None, Scope::Personal, &variables).unwrap();
        assert_eq!(
            config.daemon.socket,
            Path::new("/run/user/7/gpukill/gpukilld.sock")
        );
        assert_eq!(
            config.daemon.state_dir,
            Path::new("/home/ann/.local/state/gpukill")
        );
        assert_eq!(
            (config.guard.rules, config.rogue.rules),
            (
                "/home/ann/.config/gpukill/guard.toml".into(),
                "/home/ann/.config/gpukill/rogue.toml".into()
            )
        );
        let without = load(
            None,
            Scope::Personal,
            &environment(&[("HOME", "/home/ann")]),
        )
        .unwrap();
        assert!(without.daemon.socket.starts_with("/tmp"));
    }
}
