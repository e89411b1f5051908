//! The settings in force, as the record has them: with the names of their keys.

use super::{Access, Audit, Backends, Config, Daemon, ForeignPids, Guard, Protect, Reset, Rogue};
use gpukill_policy::alert::Thresholds;
use serde_json::{Value, json};
use std::time::Duration;

impl Config {
    /// All of them, as JSON.
    #[must_use]
    pub fn document(&self) -> Value {
        // Taken apart, so that none is forgotten.
        let Self {
            daemon,
            access,
            backends,
            audit,
            guard,
            rogue,
            alerts,
            reset,
            protect,
            foreign_pids,
            personal,
        } = self;
        json!({
            "daemon": of_daemon(daemon, foreign_pids),
            "access": of_access(access),
            "backends": of_backends(backends),
            "audit": of_audit(audit),
            "guard": of_guard(guard),
            "rogue": of_rogue(rogue),
            "alerts": of_alerts(alerts),
            "reset": of_reset(reset),
            "protect": of_protect(protect),
            "personal": personal,
        })
    }
}

fn of_daemon(daemon: &Daemon, comes_to: &ForeignPids) -> Value {
    let Daemon {
        socket,
        state_dir,
        poll_interval,
        foreign_pids,
    } = daemon;
    json!({
        "socket": socket.display().to_string(),
        "state_dir": state_dir.display().to_string(),
        "poll_interval": length(*poll_interval),
        "foreign_pids": foreign_pids,
        "foreign_pids_believed": *comes_to == ForeignPids::Act,
    })
}

fn of_access(access: &Access) -> Value {
    let Access {
        operator_group,
        admin_group,
        hide_other_users,
        owner_label,
    } = access;
    json!({
        "operator_group": operator_group,
        "admin_group": admin_group,
        "hide_other_users": hide_other_users,
        "owner_label": owner_label,
    })
}

fn of_backends(backends: &Backends) -> Value {
    let Backends {
        enabled,
        nvidia_library,
        sysfs_root,
        procfs_root,
        host_root,
    } = backends;
    json!({
        "enabled": enabled,
        "nvidia_library": nvidia_library,
        "sysfs_root": sysfs_root.display().to_string(),
        "procfs_root": procfs_root.display().to_string(),
        "host_root": host_root.display().to_string(),
    })
}

fn of_audit(audit: &Audit) -> Value {
    let Audit {
        sample_interval,
        keep_samples,
        keep_minutes,
        keep_hours,
    } = audit;
    json!({
        "sample_interval": length(*sample_interval),
        "keep_samples": length(*keep_samples),
        "keep_minutes": length(*keep_minutes),
        "keep_hours": length(*keep_hours),
    })
}

fn of_guard(Guard { rules, terminals }: &Guard) -> Value {
    let terminals = terminals.as_ref();
    json!({
        "rules": rules.display().to_string(),
        "terminals": terminals.map_or_else(String::new, |it| it.display().to_string()),
    })
}

fn of_rogue(Rogue { rules }: &Rogue) -> Value {
    json!({"rules": rules.display().to_string()})
}

/// What is not set is null.
fn of_alerts(alerts: &Thresholds) -> Value {
    let Thresholds {
        temperature,
        memory,
    } = alerts;
    json!({
        "temp_threshold_celsius": temperature.map(|limit| limit.0),
        "memory_threshold_percent": memory.map(|limit| limit.0),
    })
}

fn of_reset(Reset { helper }: &Reset) -> Value {
    json!({"helper": helper.display().to_string()})
}

fn of_protect(protect: &Protect) -> Value {
    let Protect {
        names,
        users,
        units,
        containers,
    } = protect;
    json!({"names": names, "users": users, "units": units, "containers": containers})
}

/// As it may be written in a file.
fn length(duration: Duration) -> String {
    format!("{}ms", duration.as_millis())
}

#[cfg(test)]
mod tests {
    use super::super::keys::KEYS;
    use super::*;
    use gpukill_proto::settings;

    #[test]
    fn every_key_is_told_and_can_be_read_again() {
        let (mut config, mistakes): (Config, _) = settings::defaults(KEYS);
        assert_eq!(mistakes, []);
        let unset = json!({"temp_threshold_celsius": null, "memory_threshold_percent": null});
        assert_eq!(config.document()["alerts"], unset);
        // What has no default is told where it is set.
        let set = "[alerts]\ntemp_threshold_celsius = 85\nmemory_threshold_percent = 90\n";
        assert_eq!(settings::apply_file(KEYS, set, &mut config), []);
        let document = config.document();
        let mut again = Config::default();
        for key in KEYS {
            let told = &document[key.section][key.name];
            assert!(!told.is_null(), "{}.{}", key.section, key.name);
            let value = toml::Value::try_from(told).unwrap();
            (key.set)(&mut again, &value).unwrap();
        }
        assert_eq!(again, config);
    }
}
