//! All keys of the daemon's settings: name, default, help, and validation.

use super::Config;
use gpukill_policy::select::Glob;
use gpukill_proto::setting_keys;
use gpukill_proto::settings::value;
use gpukill_proto::units::{Celsius, Percent};
use std::path::PathBuf;
use std::time::Duration;
use toml::Value;

/// The vendors that can be enabled.
pub(super) const BACKENDS: [&str; 5] = ["nvidia", "amd", "intel", "drm", "apple"];

const HOUR: Duration = Duration::from_secs(3_600);
const YEAR: Duration = Duration::from_secs(365 * 86_400);

setting_keys! {
    /// All keys, in the order of the printed file.
    pub const KEYS: Config;

    ["daemon"]
    socket GPUKILLD_DAEMON_SOCKET = "\"/run/gpukill/gpukilld.sock\"",
        "Where gpukillctl connects. Needs a restart.",
        |config, v| parse_absolute_path(v).map(|path| config.daemon.socket = path);
    state_dir GPUKILLD_DAEMON_STATE_DIR = "\"/var/lib/gpukill\"",
        "The directory of the samples and the action records. Needs a restart.",
        |config, v| parse_absolute_path(v).map(|path| config.daemon.state_dir = path);
    poll_interval GPUKILLD_DAEMON_POLL_INTERVAL = "\"2s\"",
        "How often GPUs and processes are read.",
        |config, v| value::duration(v, Duration::from_millis(100), HOUR)
            .map(|length| config.daemon.poll_interval = length);
    foreign_pids GPUKILLD_DAEMON_FOREIGN_PIDS = "false",
        "Allow kills although gpukilld is not in the host's PID namespace, where the PIDs that\n\
         drivers report may belong to other processes. Trusted only in a file that belongs to\n\
         root (with --user: to you) and that nobody else may write. Needs a restart.",
        |config, v| value::boolean(v).map(|allow| config.daemon.foreign_pids = allow);

    ["access"]
    operator_group GPUKILLD_ACCESS_OPERATOR_GROUP = "\"gpukill-operators\"",
        "Members may end GPU processes of all users and reset GPUs.",
        |config, v| value::text(v).map(|name| config.access.operator_group = name);
    admin_group GPUKILLD_ACCESS_ADMIN_GROUP = "\"gpukill-admin\"",
        "Members may edit the rules, and copy and prune the store.",
        |config, v| value::text(v).map(|name| config.access.admin_group = name);
    hide_other_users GPUKILLD_ACCESS_HIDE_OTHER_USERS = "false",
        "Hide other users' command lines from plain users.",
        |config, v| value::boolean(v).map(|hide| config.access.hide_other_users = hide);
    owner_label GPUKILLD_ACCESS_OWNER_LABEL = "\"\"",
        "The label of a Docker or CRI-O container that names its owner, such as\n\
         \"com.example.user\". Labels of the image count too: choose one that only your\n\
         launcher sets. The label attributes the container to a user and grants no rights;\n\
         rootless containers cannot set it. Empty for none. Needs a restart.",
        |config, v| parse_optional_text(v).map(|label| config.access.owner_label = label);

    ["backends"]
    enabled GPUKILLD_BACKENDS_ENABLED = "[\"nvidia\", \"amd\", \"intel\", \"drm\", \"apple\"]",
        "The vendors to read: drm stands for all kernel drivers except those of the other\n\
         vendors. Needs a restart.",
        |config, v| parse_backends(v).map(|names| config.backends.enabled = names);
    nvidia_library GPUKILLD_BACKENDS_NVIDIA_LIBRARY = "\"libnvidia-ml.so.1\"",
        "NVML: a file name that the dynamic linker finds, or an absolute path.\n\
         Needs a restart.",
        |config, v| parse_library(v).map(|library| config.backends.nvidia_library = library);
    sysfs_root GPUKILLD_BACKENDS_SYSFS_ROOT = "\"/sys\"",
        "Where devices are read. Another root is for tests. Needs a restart.",
        |config, v| parse_absolute_path(v).map(|path| config.backends.sysfs_root = path);
    procfs_root GPUKILLD_BACKENDS_PROCFS_ROOT = "\"/proc\"",
        "Where processes are read. Another root is for tests. Needs a restart.",
        |config, v| parse_absolute_path(v).map(|path| config.backends.procfs_root = path);
    host_root GPUKILLD_BACKENDS_HOST_ROOT = "\"/\"",
        "Where the files of the host are mounted: container runtimes keep names and images in\n\
         var/lib and run below it. Another root is for a gpukilld in a container.\n\
         Needs a restart.",
        |config, v| parse_absolute_path(v).map(|path| config.backends.host_root = path);

    ["audit"]
    sample_interval GPUKILLD_AUDIT_SAMPLE_INTERVAL = "\"10s\"",
        "How often a sample of all GPUs and their processes is stored.",
        |config, v| value::duration(v, Duration::from_secs(1), HOUR)
            .map(|length| config.audit.sample_interval = length);
    keep_samples GPUKILLD_AUDIT_KEEP_SAMPLES = "\"7d\"",
        "How long samples are kept.",
        |config, v| value::duration(v, HOUR, 10 * YEAR)
            .map(|length| config.audit.keep_samples = length);
    keep_minutes GPUKILLD_AUDIT_KEEP_MINUTES = "\"90d\"",
        "How long sums per minute are kept.",
        |config, v| value::duration(v, HOUR, 10 * YEAR)
            .map(|length| config.audit.keep_minutes = length);
    keep_hours GPUKILLD_AUDIT_KEEP_HOURS = "\"2y\"",
        "How long sums per hour, and the list of processes that ran, are kept.",
        |config, v| value::duration(v, HOUR, 10 * YEAR)
            .map(|length| config.audit.keep_hours = length);

    ["guard"]
    rules GPUKILLD_GUARD_RULES = "\"/etc/gpukill/rules/guard.toml\"",
        "The guard's rules, which gpukillctl guard edits. Without the file there are no\n\
         limits. Needs a restart.",
        |config, v| parse_absolute_path(v).map(|path| config.guard.rules = path);
    terminals GPUKILLD_GUARD_TERMINALS = "\"/dev\"",
        "The directory of the terminals on which users are warned. If empty, no terminal is\n\
         used, and only `gpukillctl list` and `status` show warnings. Needs a restart.",
        |config, v| parse_optional_path(v).map(|path| config.guard.terminals = path);

    ["rogue"]
    rules GPUKILLD_ROGUE_RULES = "\"/etc/gpukill/rules/rogue.toml\"",
        "The rogue rules, which gpukillctl rogue edits. Without the file the built-in rules\n\
         apply: gpukillctl rogue reference. Needs a restart.",
        |config, v| parse_absolute_path(v).map(|path| config.rogue.rules = path);

    ["alerts"]
    temp_threshold_celsius GPUKILLD_ALERTS_TEMP_THRESHOLD_CELSIUS = "",
        "A GPU at or above this temperature for two polls raises an alert, in the journal and\n\
         in status, until it is 3 °C below for two polls: 1 to 150, such as 85. If not set,\n\
         no temperature raises an alert.",
        |config, v| parse_threshold(v, 150)
            .map(|limit| config.alerts.temperature = Some(Celsius(limit.into())));
    memory_threshold_percent GPUKILLD_ALERTS_MEMORY_THRESHOLD_PERCENT = "",
        "The same for a GPU with at least this share of its memory in use, until it is 3\n\
         percentage points below: 1 to 100, such as 90. Not for GPUs that share the host's\n\
         memory.",
        |config, v| parse_threshold(v, 100)
            .map(|limit| config.alerts.memory = Some(Percent(limit.into())));

    ["protect"]
    names GPUKILLD_PROTECT_NAMES = "[]",
        "Names of processes that gpukilld never ends, in addition to those that the host itself\n\
         needs. Only processes of root and of system accounts (below UID_MIN of login.defs)\n\
         that execute the host's own file are protected by name, because any user can choose\n\
         the name of a program. A name matches programs in directories of the system (/usr,\n\
         /opt); write the full path for a program elsewhere. For processes of a person use\n\
         users, units or containers. Root may override all of [protect] with\n\
         gpukillctl kill --override-protected.",
        |config, v| parse_names(v).map(|names| config.protect.names = names);
    users GPUKILLD_PROTECT_USERS = "[]",
        "Users, by name or uid. Their processes are never ended.",
        |config, v| parse_names(v).map(|names| config.protect.users = names);
    units GPUKILLD_PROTECT_UNITS = "[]",
        "systemd services and scopes of the system, such as \"inference.service\" or\n\
         \"vllm@*.service\", with * and ?. Their processes are never ended. Units of a user's\n\
         systemd instance do not count, and a pattern matches no login session and no\n\
         user@UID.service: use users to protect the processes of a person.",
        |config, v| parse_units(v).map(|names| config.protect.units = names);
    containers GPUKILLD_PROTECT_CONTAINERS = "[]",
        "Containers, by name or id. Their processes are never ended.",
        |config, v| parse_names(v).map(|names| config.protect.containers = names);

    ["reset"]
    helper GPUKILLD_RESET_HELPER = "\"/run/gpukill-reset.sock\"",
        "The socket of gpukill-reset, which does the last step of a reset as root.",
        |config, v| parse_absolute_path(v).map(|path| config.reset.helper = path);
}

/// The maximum number of names in one list.
const MAX_NAMES: usize = 256;

/// The maximum length of a name, in bytes, which is that of a unit name (`UNIT_NAME_MAX` in
/// systemd's `src/basic/unit-name.h`).
const MAX_NAME_BYTES: usize = 255;

/// Parses a list of names, each of which has to match in full.
fn parse_names(v: &Value) -> Result<Vec<String>, String> {
    let names = parse_patterns(v)?;
    match names.iter().find(|name| name.contains(['*', '?'])) {
        // It would protect nothing, although it looks as if it did.
        Some(name) => Err(format!(
            "\"{name}\" has a wildcard: write the full name; only units accept * and ?"
        )),
        None => Ok(names),
    }
}

/// Parses a list of names or patterns.
fn parse_patterns(v: &Value) -> Result<Vec<String>, String> {
    let list = v
        .as_array()
        .ok_or_else(|| format!("{v} is not a list of names"))?;
    if list.len() > MAX_NAMES {
        return Err(format!("has {} names, more than {MAX_NAMES}", list.len()));
    }
    let mut names = Vec::new();
    for item in list {
        let name = value::text(item)?;
        // It would protect nothing, although it looks as if it did.
        if name.trim() != name || name.chars().any(char::is_control) {
            return Err(format!(
                "{item} is not a name: it has spaces around it, or control characters"
            ));
        }
        if name.len() > MAX_NAME_BYTES {
            return Err(format!("{item} is longer than {MAX_NAME_BYTES} bytes"));
        }
        if !names.contains(&name) {
            names.push(name);
        }
    }
    Ok(names)
}

/// Parses names of services and scopes: no other unit has processes.
fn parse_units(v: &Value) -> Result<Vec<String>, String> {
    let names = parse_patterns(v)?;
    let ends_as_one = |name: &&String| {
        [".service", ".scope", "*"]
            .iter()
            .any(|end| name.ends_with(end))
    };
    if let Some(name) = names.iter().find(|name| !ends_as_one(name)) {
        return Err(format!(
            "\"{name}\" is neither a .service nor a .scope, nor a pattern that ends with *"
        ));
    }
    match names.iter().find(|name| Glob::parse(name).is_none()) {
        Some(name) => Err(format!("\"{name}\" is too large a pattern")),
        None => Ok(names),
    }
}

/// Parses a whole number, at least 1, that may be written with a decimal point: `85.0`.
fn parse_threshold(v: &Value, max: u8) -> Result<u8, String> {
    let equals_value = |whole: &u8| match v.as_float() {
        Some(number) => f64::from(*whole).total_cmp(&number).is_eq(),
        None => v.as_integer() == Some(i64::from(*whole)),
    };
    let number = (1..=max).find(equals_value);
    number.ok_or_else(|| format!("{v} is not a whole number from 1 to {max}"))
}

/// Parses a text that may be empty.
fn parse_optional_text(v: &Value) -> Result<String, String> {
    match v.as_str() {
        Some("") => Ok(String::new()),
        Some(_) | None => value::text(v),
    }
}

fn parse_absolute_path(v: &Value) -> Result<PathBuf, String> {
    let path = PathBuf::from(value::text(v)?);
    if path.is_absolute() {
        Ok(path)
    } else {
        Err(format!("{v} is not an absolute path"))
    }
}

/// Parses a path, or an empty text.
fn parse_optional_path(v: &Value) -> Result<Option<PathBuf>, String> {
    match v.as_str() {
        Some("") => Ok(None),
        Some(_) | None => parse_absolute_path(v).map(Some),
    }
}

/// Accepts the names for which dlopen does not depend on the current directory.
fn parse_library(v: &Value) -> Result<String, String> {
    let text = value::text(v)?;
    let fine = text.starts_with('/') || !text.contains('/');
    if fine {
        Ok(text)
    } else {
        Err(format!(
            "{v} is neither a bare file name nor an absolute path"
        ))
    }
}

fn parse_backends(v: &Value) -> Result<Vec<String>, String> {
    let list = v
        .as_array()
        .ok_or_else(|| format!("{v} is not a list of names"))?;
    let mut names = Vec::new();
    for item in list {
        let name = value::text(item)?;
        if !BACKENDS.contains(&name.as_str()) {
            return Err(value::choice_error(item, &BACKENDS));
        }
        if !names.contains(&name) {
            names.push(name);
        }
    }
    Ok(names)
}
