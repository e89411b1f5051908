//! All keys of the daemon's settings: name, default, help, and validation.

use super::Config;
use gpukill_policy::select::Glob;
use gpukill_proto::settings::{Key, value};
use gpukill_proto::units::{Celsius, Percent};
use std::path::PathBuf;
use std::time::Duration;
use toml::Value;

/// The vendors that can be enabled.
pub(super) const BACKENDS: [&str; 5] = ["nvidia", "amd", "intel", "drm", "apple"];

const HOUR: Duration = Duration::from_secs(3_600);
const YEAR: Duration = Duration::from_secs(365 * 86_400);

/// All keys, in the order of the printed file.
pub const KEYS: &[Key<Config>] = &[
    Key {
        section: "daemon",
        name: "socket",
        variable: "GPUKILLD_DAEMON_SOCKET",
        default: "\"/run/gpukill/gpukilld.sock\"",
        help: "Where gpukillctl connects. Needs a restart.",
        set: |config, v| parse_absolute_path(v).map(|path| config.daemon.socket = path),
    },
    Key {
        section: "daemon",
        name: "state_dir",
        variable: "GPUKILLD_DAEMON_STATE_DIR",
        default: "\"/var/lib/gpukill\"",
        help: "The directory of the samples and the action records. Needs a restart.",
        set: |config, v| parse_absolute_path(v).map(|path| config.daemon.state_dir = path),
    },
    Key {
        section: "daemon",
        name: "poll_interval",
        variable: "GPUKILLD_DAEMON_POLL_INTERVAL",
        default: "\"2s\"",
        help: "How often GPUs and processes are read.",
        set: |config, v| {
            value::duration(v, Duration::from_millis(100), HOUR)
                .map(|length| config.daemon.poll_interval = length)
        },
    },
    Key {
        section: "daemon",
        name: "foreign_pids",
        variable: "GPUKILLD_DAEMON_FOREIGN_PIDS",
        default: "false",
        help: "\
            Allow kills although gpukilld is not in the host's PID namespace, where the PIDs that\n\
            drivers report may belong to other processes. Trusted only in a file that belongs to\n\
            root (with --user: to you) and that nobody else may write. Needs a restart.",
        set: |config, v| value::boolean(v).map(|allow| config.daemon.foreign_pids = allow),
    },
    Key {
        section: "access",
        name: "operator_group",
        variable: "GPUKILLD_ACCESS_OPERATOR_GROUP",
        default: "\"gpukill-operators\"",
        help: "Members may end GPU processes of all users and reset GPUs.",
        set: |config, v| value::text(v).map(|name| config.access.operator_group = name),
    },
    Key {
        section: "access",
        name: "admin_group",
        variable: "GPUKILLD_ACCESS_ADMIN_GROUP",
        default: "\"gpukill-admin\"",
        help: "Members may edit the rules, and copy and prune the store.",
        set: |config, v| value::text(v).map(|name| config.access.admin_group = name),
    },
    Key {
        section: "access",
        name: "hide_other_users",
        variable: "GPUKILLD_ACCESS_HIDE_OTHER_USERS",
        default: "false",
        help: "Hide other users' command lines from plain users.",
        set: |config, v| value::boolean(v).map(|hide| config.access.hide_other_users = hide),
    },
    Key {
        section: "access",
        name: "owner_label",
        variable: "GPUKILLD_ACCESS_OWNER_LABEL",
        default: "\"\"",
        help: "\
            The label of a Docker or CRI-O container that names its owner, such as\n\
            \"com.example.user\". Labels of the image count too: choose one that only your\n\
            launcher sets. The label attributes the container to a user and grants no rights;\n\
            rootless containers cannot set it. Empty for none. Needs a restart.",
        set: |config, v| parse_optional_text(v).map(|label| config.access.owner_label = label),
    },
    Key {
        section: "backends",
        name: "enabled",
        variable: "GPUKILLD_BACKENDS_ENABLED",
        default: "[\"nvidia\", \"amd\", \"intel\", \"drm\", \"apple\"]",
        help: "\
            The vendors to read: drm stands for all kernel drivers except those of the other\n\
            vendors. Needs a restart.",
        set: |config, v| parse_backends(v).map(|names| config.backends.enabled = names),
    },
    Key {
        section: "backends",
        name: "nvidia_library",
        variable: "GPUKILLD_BACKENDS_NVIDIA_LIBRARY",
        default: "\"libnvidia-ml.so.1\"",
        help: "\
            NVML: a file name that the dynamic linker finds, or an absolute path.\n\
            Needs a restart.",
        set: |config, v| parse_library(v).map(|library| config.backends.nvidia_library = library),
    },
    Key {
        section: "backends",
        name: "sysfs_root",
        variable: "GPUKILLD_BACKENDS_SYSFS_ROOT",
        default: "\"/sys\"",
        help: "Where devices are read. Another root is for tests. Needs a restart.",
        set: |config, v| parse_absolute_path(v).map(|path| config.backends.sysfs_root = path),
    },
    Key {
        section: "backends",
        name: "procfs_root",
        variable: "GPUKILLD_BACKENDS_PROCFS_ROOT",
        default: "\"/proc\"",
        help: "Where processes are read. Another root is for tests. Needs a restart.",
        set: |config, v| parse_absolute_path(v).map(|path| config.backends.procfs_root = path),
    },
    Key {
        section: "backends",
        name: "host_root",
        variable: "GPUKILLD_BACKENDS_HOST_ROOT",
        default: "\"/\"",
        help: "\
            Where the files of the host are mounted: container runtimes keep names and images in\n\
            var/lib and run below it. Another root is for a gpukilld in a container.\n\
            Needs a restart.",
        set: |config, v| parse_absolute_path(v).map(|path| config.backends.host_root = path),
    },
    Key {
        section: "audit",
        name: "sample_interval",
        variable: "GPUKILLD_AUDIT_SAMPLE_INTERVAL",
        default: "\"10s\"",
        help: "How often a sample of all GPUs and their processes is stored.",
        set: |config, v| {
            value::duration(v, Duration::from_secs(1), HOUR)
                .map(|length| config.audit.sample_interval = length)
        },
    },
    Key {
        section: "audit",
        name: "keep_samples",
        variable: "GPUKILLD_AUDIT_KEEP_SAMPLES",
        default: "\"7d\"",
        help: "How long samples are kept.",
        set: |config, v| {
            value::duration(v, HOUR, 10 * YEAR).map(|length| config.audit.keep_samples = length)
        },
    },
    Key {
        section: "audit",
        name: "keep_minutes",
        variable: "GPUKILLD_AUDIT_KEEP_MINUTES",
        default: "\"90d\"",
        help: "How long sums per minute are kept.",
        set: |config, v| {
            value::duration(v, HOUR, 10 * YEAR).map(|length| config.audit.keep_minutes = length)
        },
    },
    Key {
        section: "audit",
        name: "keep_hours",
        variable: "GPUKILLD_AUDIT_KEEP_HOURS",
        default: "\"2y\"",
        help: "How long sums per hour, and the list of processes that ran, are kept.",
        set: |config, v| {
            value::duration(v, HOUR, 10 * YEAR).map(|length| config.audit.keep_hours = length)
        },
    },
    Key {
        section: "guard",
        name: "rules",
        variable: "GPUKILLD_GUARD_RULES",
        default: "\"/etc/gpukill/rules/guard.toml\"",
        help: "\
            The guard's rules, which gpukillctl guard edits. Without the file there are no\n\
            limits. Needs a restart.",
        set: |config, v| parse_absolute_path(v).map(|path| config.guard.rules = path),
    },
    Key {
        section: "guard",
        name: "terminals",
        variable: "GPUKILLD_GUARD_TERMINALS",
        default: "\"/dev\"",
        help: "\
            The directory of the terminals on which users are warned. If empty, no terminal is\n\
            used, and only `gpukillctl list` and `status` show warnings. Needs a restart.",
        set: |config, v| parse_optional_path(v).map(|path| config.guard.terminals = path),
    },
    Key {
        section: "rogue",
        name: "rules",
        variable: "GPUKILLD_ROGUE_RULES",
        default: "\"/etc/gpukill/rules/rogue.toml\"",
        help: "\
            The rogue rules, which gpukillctl rogue edits. Without the file the built-in rules\n\
            apply: gpukillctl rogue reference. Needs a restart.",
        set: |config, v| parse_absolute_path(v).map(|path| config.rogue.rules = path),
    },
    Key {
        section: "alerts",
        name: "temp_threshold_celsius",
        variable: "GPUKILLD_ALERTS_TEMP_THRESHOLD_CELSIUS",
        default: "",
        help: "\
            A GPU at or above this temperature for two polls raises an alert, in the journal and\n\
            in status, until it is 3 °C below for two polls: 1 to 150, such as 85. If not set,\n\
            no temperature raises an alert.",
        set: |config, v| {
            parse_threshold(v, 150)
                .map(|limit| config.alerts.temperature = Some(Celsius(limit.into())))
        },
    },
    Key {
        section: "alerts",
        name: "memory_threshold_percent",
        variable: "GPUKILLD_ALERTS_MEMORY_THRESHOLD_PERCENT",
        default: "",
        help: "\
            The same for a GPU with at least this share of its memory in use, until it is 3\n\
            percentage points below: 1 to 100, such as 90. Not for GPUs that share the host's\n\
            memory.",
        set: |config, v| {
            parse_threshold(v, 100).map(|limit| config.alerts.memory = Some(Percent(limit.into())))
        },
    },
    Key {
        section: "protect",
        name: "names",
        variable: "GPUKILLD_PROTECT_NAMES",
        default: "[]",
        help: "\
        Names of processes that gpukilld never ends, in addition to those that the host itself\n\
        needs. Only processes of root and of system accounts (below UID_MIN of login.defs)\n\
        that execute the host's own file are protected by name, because any user can choose\n\
        the name of a program. A name matches programs in directories of the system (/usr,\n\
        /opt); write the full path for a program elsewhere. For processes of a person use\n\
        users, units or containers. Root may override all of [protect] with\n\
        gpukillctl kill --override-protected.",
        set: |config, v| parse_names(v).map(|names| config.protect.names = names),
    },
    Key {
        section: "protect",
        name: "users",
        variable: "GPUKILLD_PROTECT_USERS",
        default: "[]",
        help: "Users, by name or uid. Their processes are never ended.",
        set: |config, v| parse_names(v).map(|names| config.protect.users = names),
    },
    Key {
        section: "protect",
        name: "units",
        variable: "GPUKILLD_PROTECT_UNITS",
        default: "[]",
        help: "\
            systemd services and scopes of the system, such as \"inference.service\" or\n\
            \"vllm@*.service\", with * and ?. Their processes are never ended. Units of a user's\n\
            systemd instance do not count, and a pattern matches no login session and no\n\
            user@UID.service: use users to protect the processes of a person.",
        set: |config, v| parse_units(v).map(|names| config.protect.units = names),
    },
    Key {
        section: "protect",
        name: "containers",
        variable: "GPUKILLD_PROTECT_CONTAINERS",
        default: "[]",
        help: "Containers, by name or id. Their processes are never ended.",
        set: |config, v| parse_names(v).map(|names| config.protect.containers = names),
    },
    Key {
        section: "reset",
        name: "helper",
        variable: "GPUKILLD_RESET_HELPER",
        default: "\"/run/gpukill-reset.sock\"",
        help: "The socket of gpukill-reset, which does the last step of a reset as root.",
        set: |config, v| parse_absolute_path(v).map(|path| config.reset.helper = path),
    },
];

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
