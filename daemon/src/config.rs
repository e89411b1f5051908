//! The daemon's settings: one table of keys, with values from defaults, file and environment, in
//! this order. All mistakes are reported at once.

mod changed;
mod document;
mod foreign_pids;
mod keys;
mod trusted_file;

pub use foreign_pids::ForeignPids;
use gpukill_policy::alert::Thresholds;
use gpukill_proto::settings::{self, SettingMistake};
pub use keys::KEYS;
use std::fmt;
use std::fs::Metadata;
use std::io::Read as _;
use std::os::unix::fs::FileTypeExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;
pub(crate) use trusted_file::{
    OTHERS_WRITE, STICKY, foreign_writer_reason, open_trusted, parent_directory,
};

/// All settings.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Config {
    /// Polling and paths.
    pub daemon: DaemonSettings,
    /// Groups and visibility.
    pub access: AccessSettings,
    /// Sources of readings.
    pub backends: BackendSettings,
    /// The store.
    pub audit: AuditSettings,
    /// Resets of devices.
    pub reset: ResetSettings,
    /// The guard.
    pub guard: GuardSettings,
    /// The watch for rogue processes.
    pub rogue: RogueSettings,
    /// Thresholds of alerts.
    pub alerts: Thresholds,
    /// Protected processes.
    pub protect: ProtectSettings,
    /// The effect of [`DaemonSettings::foreign_pids`]. Not set by a key.
    pub foreign_pids: ForeignPids,
    /// Set by `--user`, not by a key: run for one person.
    pub personal: bool,
}

/// Polling and paths.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DaemonSettings {
    /// The socket that clients connect to.
    pub socket: PathBuf,
    /// The directory of the store.
    pub state_dir: PathBuf,
    /// The time between polls.
    pub poll_interval: Duration,
    /// Whether processes may be ended although their pids are not those of the host.
    pub foreign_pids: bool,
}

/// Groups and visibility.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AccessSettings {
    /// The group that may end processes of all users.
    pub operator_group: String,
    /// The group that may edit the rules.
    pub admin_group: String,
    /// Whether the command lines of others are hidden from plain users.
    pub hide_other_users: bool,
    /// The container label that names the owner; empty for none.
    pub owner_label: String,
}

/// Sources of readings.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BackendSettings {
    /// The enabled vendors, from [`keys::BACKENDS`].
    pub enabled: Vec<String>,
    /// A file name or an absolute path.
    pub nvidia_library: String,
    /// `/sys`, except in tests.
    pub sysfs_root: PathBuf,
    /// `/proc`, except in tests.
    pub procfs_root: PathBuf,
    /// `/`, unless the files of the host are mounted elsewhere.
    pub host_root: PathBuf,
}

/// The store.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AuditSettings {
    /// The time between samples.
    pub sample_interval: Duration,
    /// How long samples are kept.
    pub keep_samples: Duration,
    /// How long minutes are kept.
    pub keep_minutes: Duration,
    /// How long hours, and the processes that ran, are kept.
    pub keep_hours: Duration,
}

/// Processes that are never ended, in addition to those that the host itself needs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ProtectSettings {
    /// Full names of processes.
    pub names: Vec<String>,
    /// Names or uids of users.
    pub users: Vec<String>,
    /// Names of systemd units, with `*` and `?`.
    pub units: Vec<String>,
    /// Names or ids of containers.
    pub containers: Vec<String>,
}

/// The guard.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct GuardSettings {
    /// The file of rules.
    pub rules: PathBuf,
    /// The directory of the terminals on which users are warned; `None` to warn on none.
    pub terminals: Option<PathBuf>,
}

/// The watch for rogue processes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RogueSettings {
    /// The file of rules.
    pub rules: PathBuf,
}

/// Resets of devices.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ResetSettings {
    /// The socket of `gpukill-reset`.
    pub helper: PathBuf,
}

/// The prefix of environment variables that override a key.
pub const ENVIRONMENT_PREFIX: &str = "GPUKILLD_";

/// Settings that cannot be used, with all reasons.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct ConfigError {
    /// The file, if there is one.
    pub file: Option<PathBuf>,
    /// The mistakes in the file and in the environment.
    pub mistakes: Vec<SettingMistake>,
}

impl fmt::Display for ConfigError {
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

/// A settings file has a few hundred bytes.
const MAX_FILE_BYTES: u64 = 1 << 20;

/// The users that the daemon serves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DaemonScope {
    /// All users of the host.
    Host,
    /// The person who starts it.
    Personal,
}

/// Loads the settings. `named` is the file of `--config`, which must exist; the default file need
/// not.
///
/// # Errors
/// All mistakes in the file and in the environment.
pub fn load(
    named: Option<&Path>,
    scope: DaemonScope,
    environment: &[(String, String)],
) -> Result<Config, ConfigError> {
    let (mut config, mut mistakes) = defaults(scope, environment);
    let file = named.map_or_else(|| default_file(scope, environment), Path::to_path_buf);
    match read(&file, scope) {
        Ok((text, metadata)) => {
            if let Some(why) = distrust_reason(&metadata, scope) {
                let what = format!("{}: {why}", file.display());
                mistakes.push(SettingMistake { line: None, what });
            }
            mistakes.extend(settings::apply_file(KEYS, &text, &mut config));
            if config.daemon.foreign_pids {
                config.foreign_pids = ForeignPids::from_file(&file, &metadata, scope);
            }
        }
        // A link to a file that the daemon cannot see was meant to provide settings.
        Err(error)
            if error.kind() == std::io::ErrorKind::NotFound
                && named.is_none()
                && file.symlink_metadata().is_err() => {}
        Err(error) => {
            let what = format!("cannot read {}: {error}", file.display());
            mistakes.push(SettingMistake { line: None, what });
        }
    }
    mistakes.extend(settings::apply_environment(
        KEYS,
        Some(ENVIRONMENT_PREFIX),
        environment.to_vec(),
        &mut config,
    ));
    config.foreign_pids = config
        .foreign_pids
        .with_environment(config.daemon.foreign_pids);
    if mistakes.is_empty() {
        Ok(config)
    } else {
        Err(ConfigError {
            file: Some(file),
            mistakes,
        })
    }
}

/// Reads the text of a settings file and its metadata. Never waits for a FIFO.
fn read(path: &Path, scope: DaemonScope) -> std::io::Result<(String, Metadata)> {
    let owner = match scope {
        DaemonScope::Host => 0,
        DaemonScope::Personal => rustix::process::geteuid().as_raw(),
    };
    let file = trusted_file::open_settings(path, owner)?;
    let metadata = file.metadata()?;
    let kind = metadata.file_type();
    if !kind.is_file() && !kind.is_char_device() {
        return Err(std::io::Error::other("it is not a file"));
    }
    let mut text = String::new();
    file.take(MAX_FILE_BYTES + 1).read_to_string(&mut text)?;
    if text.len() as u64 > MAX_FILE_BYTES {
        return Err(std::io::Error::other("it is longer than 1 MiB"));
    }
    Ok((text, metadata))
}

/// Why another user may have written the file. A file that is not regular, such as `/dev/null`,
/// contains nothing of anybody.
fn distrust_reason(metadata: &Metadata, scope: DaemonScope) -> Option<String> {
    let open = match scope {
        DaemonScope::Host => OTHERS_WRITE,
        // A person's own group may have no other member, and its members write by default.
        DaemonScope::Personal => 0o002,
    };
    metadata
        .is_file()
        .then(|| foreign_writer_reason(metadata, open))?
}

fn default_file(scope: DaemonScope, environment: &[(String, String)]) -> PathBuf {
    match scope {
        DaemonScope::Host => PathBuf::from("/etc/gpukill/gpukilld.toml"),
        DaemonScope::Personal => {
            xdg_directory(environment, "XDG_CONFIG_HOME", ".config").join("gpukill/gpukilld.toml")
        }
    }
}

fn defaults(scope: DaemonScope, environment: &[(String, String)]) -> (Config, Vec<SettingMistake>) {
    let (mut config, mistakes): (Config, _) = settings::defaults(KEYS);
    match scope {
        DaemonScope::Host => {}
        DaemonScope::Personal => {
            config.personal = true;
            config.daemon.socket = personal_socket(environment);
            config.daemon.state_dir =
                xdg_directory(environment, "XDG_STATE_HOME", ".local/state").join("gpukill");
            let settings = xdg_directory(environment, "XDG_CONFIG_HOME", ".config").join("gpukill");
            config.guard.rules = settings.join("guard.toml");
            config.rogue.rules = settings.join("rogue.toml");
        }
    }
    (config, mistakes)
}

/// The socket of the daemon of one person: the path that `gpukillctl` tries after the one of the
/// host.
fn personal_socket(environment: &[(String, String)]) -> PathBuf {
    let uid = rustix::process::getuid().as_raw();
    let runtime = absolute_variable(environment, "XDG_RUNTIME_DIR")
        .map(|base| Path::new(base).join("gpukill"));
    runtime
        .unwrap_or_else(|| PathBuf::from(format!("/tmp/gpukill-{uid}")))
        .join("gpukilld.sock")
}

fn xdg_directory(environment: &[(String, String)], name: &str, below_home: &str) -> PathBuf {
    absolute_variable(environment, name).map_or_else(
        || Path::new(absolute_variable(environment, "HOME").unwrap_or("/")).join(below_home),
        PathBuf::from,
    )
}

/// XDG rules: a relative path is ignored.
fn absolute_variable<'a>(environment: &'a [(String, String)], name: &str) -> Option<&'a str> {
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

    fn load_text(text: &str, variables: &[(&str, &str)]) -> Result<Config, String> {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("gpukilld.toml");
        std::fs::write(&file, text).unwrap();
        let result = load(Some(&file), DaemonScope::Host, &environment(variables));
        result.map_err(|invalid| {
            invalid
                .to_string()
                .replace(&format!("{}:", file.display()), "")
        })
    }

    #[test]
    fn dangling_link_is_an_error() {
        let home = tempfile::tempdir().unwrap();
        let variables = environment(&[("XDG_CONFIG_HOME", home.path().to_str().unwrap())]);
        let load = || load(None, DaemonScope::Personal, &variables);
        assert!(load().is_ok());
        std::fs::create_dir(home.path().join("gpukill")).unwrap();
        let link = home.path().join("gpukill/gpukilld.toml");
        std::os::unix::fs::symlink("/nowhere", link).unwrap();
        assert!(load().unwrap_err().to_string().contains("cannot read"));
    }

    #[test]
    fn file_of_another_user_is_refused() {
        use std::os::unix::fs::PermissionsExt as _;
        let file = tempfile::NamedTempFile::new().unwrap();
        let reason = |mode, scope| {
            let mode = std::fs::Permissions::from_mode(mode);
            std::fs::set_permissions(&file, mode).unwrap();
            let (_, metadata) = read(file.path(), scope).unwrap();
            distrust_reason(&metadata, scope)
        };
        let open = "users other than its owner may write it: chmod go-w FILE";
        for (mode, for_all, for_one) in [
            (0o644, None, None),
            (0o664, Some(open), None),
            (0o646, Some(open), Some(open)),
        ] {
            assert_eq!(
                reason(mode, DaemonScope::Host).as_deref(),
                for_all,
                "{mode:o}"
            );
            assert_eq!(
                reason(mode, DaemonScope::Personal).as_deref(),
                for_one,
                "{mode:o}"
            );
        }
        let (_, of_nobody) = read(Path::new("/dev/null"), DaemonScope::Host).unwrap();
        assert_eq!(distrust_reason(&of_nobody, DaemonScope::Host), None);
        if rustix::process::geteuid().is_root() {
            std::os::unix::fs::chown(file.path(), Some(65_534), None).unwrap();
            let why = reason(0o644, DaemonScope::Host);
            assert_eq!(
                why.as_deref(),
                Some("it belongs to uid 65534: change its owner to root")
            );
        }
    }

    #[test]
    fn printed_defaults_are_the_defaults() {
        let defaults = load_text("", &[]).unwrap();
        assert_eq!(load_text(&print_default(), &[]), Ok(defaults.clone()));
        let expected = Config {
            daemon: DaemonSettings {
                socket: DEFAULT_SOCKET.into(),
                state_dir: "/var/lib/gpukill".into(),
                poll_interval: Duration::from_secs(2),
                foreign_pids: false,
            },
            access: AccessSettings {
                operator_group: "gpukill-operators".into(),
                admin_group: "gpukill-admin".into(),
                hide_other_users: false,
                owner_label: String::new(),
            },
            backends: BackendSettings {
                enabled: ["nvidia", "amd", "intel", "drm", "apple"]
                    .map(str::to_owned)
                    .to_vec(),
                nvidia_library: "libnvidia-ml.so.1".into(),
                sysfs_root: "/sys".into(),
                procfs_root: "/proc".into(),
                host_root: "/".into(),
            },
            audit: AuditSettings {
                sample_interval: Duration::from_secs(10),
                keep_samples: Duration::from_secs(7 * 86_400),
                keep_minutes: Duration::from_secs(90 * 86_400),
                keep_hours: Duration::from_secs(2 * 365 * 86_400),
            },
            guard: GuardSettings {
                rules: "/etc/gpukill/rules/guard.toml".into(),
                terminals: Some("/dev".into()),
            },
            rogue: RogueSettings {
                rules: "/etc/gpukill/rules/rogue.toml".into(),
            },
            reset: ResetSettings {
                helper: "/run/gpukill-reset.sock".into(),
            },
            alerts: Thresholds::default(),
            protect: ProtectSettings::default(),
            foreign_pids: ForeignPids::Refuse,
            personal: false,
        };
        assert_eq!(defaults, expected);
    }

    #[test]
    fn reports_all_mistakes_with_lines() {
        let text = "[daemon]\n\
                    poll_interval = \"2\"\n\
                    socket = \"relative\"\n\
                    [acess]\n\
                    [backends]\n\
                    enabled = [\"nvidea\"]\n\
                    nvidia_library = \"../evil.so\"\n\
                    [audit]\n\
                    keep_samples = 7\n";
        assert_eq!(
            load_text(
                text,
                &[
                    ("GPUKILLD_ACCESS_HIDE_OTHER_USERS", "maybe"),
                    ("GPUKILLD_NONSENSE", "1")
                ]
            )
            .unwrap_err(),
            "2: daemon.poll_interval: \"2\" is not a duration from \"100ms\" to \"1h\", like \"2s\" \
             or \"7d\"\n\
             3: daemon.socket: \"relative\" is not an absolute path\n\
             4: unknown key acess; did you mean [access]?\n\
             6: backends.enabled: \"nvidea\" is not valid: write nvidia, amd, intel, drm or apple\n\
             7: backends.nvidia_library: \"../evil.so\" is neither a bare file name nor an absolute \
             path\n\
             9: audit.keep_samples: 7 is not a duration from \"1h\" to \"10y\", like \"2s\" or \
             \"7d\"\n\
             GPUKILLD_ACCESS_HIDE_OTHER_USERS: \"maybe\" is not valid: write true or false\n\
             GPUKILLD_NONSENSE overrides no setting"
        );
    }

    #[test]
    fn protected_names_are_exact() {
        let text = "[protect]\n\
                    names = [\"ollama\", \"ollama\", \"vllm serve\"]\n\
                    units = [\"train@1.service\", \"vllm@*.service\"]\n";
        let expected = ProtectSettings {
            names: vec!["ollama".into(), "vllm serve".into()],
            units: vec!["train@1.service".into(), "vllm@*.service".into()],
            ..ProtectSettings::default()
        };
        assert_eq!(load_text(text, &[]).unwrap().protect, expected);
        let long = "x".repeat(256);
        let text = format!(
            "[protect]\n\
             names = [\"python*\"]\n\
             users = \"prod\"\n\
             units = [\"inference\"]\n\
             containers = [\"{long}\"]\n\
             processes = []\n"
        );
        assert_eq!(
            load_text(&text, &[]).unwrap_err(),
            format!(
                "2: protect.names: \"python*\" has a wildcard: write the full name; only units \
                 accept * and ?\n\
                 3: protect.users: \"prod\" is not a list of names\n\
                 4: protect.units: \"inference\" is neither a .service nor a .scope, nor a pattern \
                 that ends with *\n\
                 5: protect.containers: \"{long}\" is longer than 255 bytes\n\
                 6: unknown key protect.processes"
            )
        );
        let many: Vec<String> = (0..257).map(|n| format!("\"{n}\"")).collect();
        let text = format!("[protect]\nusers = [{}]\n", many.join(","));
        let why = "2: protect.users: has 257 names, more than 256";
        assert_eq!(load_text(&text, &[]).unwrap_err(), why);
    }

    #[test]
    fn alert_thresholds_are_whole_and_optional() {
        let text = "[alerts]\ntemp_threshold_celsius = 85.0\nmemory_threshold_percent = 90.0\n";
        let whole = text.replace(".0", "");
        let expected = Thresholds {
            temperature: Some(Celsius(85)),
            memory: Some(Percent(90)),
        };
        for text in [text, &whole] {
            assert_eq!(load_text(text, &[]).unwrap().alerts, expected);
        }
        let text = "[alerts]\nmemory_threshold_percent = 100\n";
        let hottest = ("GPUKILLD_ALERTS_TEMP_THRESHOLD_CELSIUS", "150");
        let expected = Thresholds {
            temperature: Some(Celsius(150)),
            memory: Some(Percent(100)),
        };
        assert_eq!(load_text(text, &[hottest]).unwrap().alerts, expected);
        assert_eq!(
            load_text("[alerts]\n", &[]).unwrap().alerts,
            Thresholds::default()
        );
        let error = |value: &str| {
            let text = format!(
                "[alerts]\ntemp_threshold_celsius = {value}\nmemory_threshold_percent = {value}\n"
            );
            load_text(&text, &[]).unwrap_err()
        };
        for value in ["0", "151", "85.5", "nan", "-1", "1e300", "\"85\"", "true"] {
            let shown = value.parse::<toml::Value>().unwrap();
            assert_eq!(
                error(value),
                format!(
                    "2: alerts.temp_threshold_celsius: {shown} is not a whole number from 1 to \
                     150\n\
                     3: alerts.memory_threshold_percent: {shown} is not a whole number from 1 to \
                     100"
                )
            );
        }
        let variable = ("GPUKILLD_ALERTS_MEMORY_THRESHOLD_PERCENT", "101");
        assert_eq!(
            load_text("[alerts]\ntemp_treshold_celsius = 85\n", &[variable]).unwrap_err(),
            "2: unknown key alerts.temp_treshold_celsius; did you mean \
             alerts.temp_threshold_celsius?\n\
             GPUKILLD_ALERTS_MEMORY_THRESHOLD_PERCENT: \"101\" is not a whole number from 1 to 100"
        );
    }

    #[test]
    fn alert_thresholds_are_printed_as_comments() {
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
    fn foreign_pids_are_trusted_only_from_file() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("gpukilld.toml");
        let set = ("GPUKILLD_DAEMON_FOREIGN_PIDS", "true");
        let unset = ("GPUKILLD_DAEMON_FOREIGN_PIDS", "false");
        let loaded = |text: &str, variables: &[(&str, &str)]| {
            std::fs::write(&file, text).unwrap();
            let allowed = std::os::unix::fs::PermissionsExt::from_mode(0o600);
            std::fs::set_permissions(&file, allowed).unwrap();
            let config = load(Some(&file), DaemonScope::Personal, &environment(variables));
            config.unwrap().foreign_pids
        };
        let by_file = "[daemon]\nforeign_pids = true\n";
        assert_eq!(loaded(by_file, &[]), ForeignPids::Allow);
        assert_eq!(loaded(by_file, &[set]), ForeignPids::Allow);
        assert_eq!(loaded(by_file, &[unset]), ForeignPids::Refuse);
        assert_eq!(loaded("", &[]), ForeignPids::Refuse);
        let alone = ForeignPids::NotTrusted("no file sets it".into());
        assert_eq!(loaded("", &[set]), alone);
    }

    #[test]
    fn environment_overrides_file_for_every_key() {
        type EnvironmentCase = (&'static str, &'static str, fn(&Config) -> String);
        let cases: &[EnvironmentCase] = &[
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
            let config = load_text(&print_default(), &[(name, value)]).unwrap();
            assert_eq!(read(&config), *value, "{name}");
        }
    }

    #[test]
    fn named_file_must_exist() {
        let missing = load(
            Some(Path::new("/nonexistent/x.toml")),
            DaemonScope::Host,
            &[],
        );
        assert_eq!(
            missing.unwrap_err().to_string(),
            "cannot read /nonexistent/x.toml: No such file or directory (os error 2)"
        );
        let endless = load(Some(Path::new("/dev/zero")), DaemonScope::Host, &[]);
        assert_eq!(
            endless.unwrap_err().to_string(),
            "cannot read /dev/zero: it is longer than 1 MiB"
        );
        let nowhere = environment(&[
            ("XDG_CONFIG_HOME", "/nonexistent"),
            ("HOME", "/nonexistent"),
        ]);
        assert!(load(None, DaemonScope::Personal, &nowhere).is_ok());
    }

    #[test]
    fn personal_daemon_uses_xdg_directories() {
        let variables = environment(&[("XDG_RUNTIME_DIR", "/run/user/7"), ("HOME", "/home/ann")]);
        let config = load(None, DaemonScope::Personal, &variables).unwrap();
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
            DaemonScope::Personal,
            &environment(&[("HOME", "/home/ann")]),
        )
        .unwrap();
        assert!(without.daemon.socket.starts_with("/tmp"));
    }
}
