//! The settings in force as JSON for the store, with the names of their keys.

use super::{Config, ForeignPids};
use serde_json::{Value, json};
use std::path::Path;
use std::time::Duration;

impl Config {
    /// All settings as JSON, in the form of the settings file. A threshold that is not set is null.
    #[must_use]
    pub fn document(&self) -> Value {
        let (daemon, backends, audit) = (&self.daemon, &self.backends, &self.audit);
        let path = |path: &Path| path.display().to_string();
        let milliseconds = |length: Duration| format!("{}ms", length.as_millis());
        json!({
            "daemon": {
                "socket": path(&daemon.socket),
                "state_dir": path(&daemon.state_dir),
                "poll_interval": milliseconds(daemon.poll_interval),
                "foreign_pids": daemon.foreign_pids,
                "foreign_pids_allowed": self.foreign_pids == ForeignPids::Allow,
            },
            "access": {
                "operator_group": self.access.operator_group,
                "admin_group": self.access.admin_group,
                "hide_other_users": self.access.hide_other_users,
                "owner_label": self.access.owner_label,
            },
            "backends": {
                "enabled": backends.enabled,
                "nvidia_library": backends.nvidia_library,
                "sysfs_root": path(&backends.sysfs_root),
                "procfs_root": path(&backends.procfs_root),
                "host_root": path(&backends.host_root),
            },
            "audit": {
                "sample_interval": milliseconds(audit.sample_interval),
                "keep_samples": milliseconds(audit.keep_samples),
                "keep_minutes": milliseconds(audit.keep_minutes),
                "keep_hours": milliseconds(audit.keep_hours),
            },
            "guard": {
                "rules": path(&self.guard.rules),
                "terminals": self.guard.terminals.as_deref().map_or_else(String::new, path),
            },
            "rogue": {"rules": path(&self.rogue.rules)},
            "alerts": {
                "temp_threshold_celsius": self.alerts.temperature.map(|limit| limit.0),
                "memory_threshold_percent": self.alerts.memory.map(|limit| limit.0),
            },
            "reset": {"helper": path(&self.reset.helper)},
            "protect": {
                "names": self.protect.names,
                "users": self.protect.users,
                "units": self.protect.units,
                "containers": self.protect.containers,
            },
            "personal": self.personal,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::keys::KEYS;
    use super::*;
    use gpukill_proto::settings;

    #[test]
    fn every_key_is_written_and_readable() {
        let (mut config, mistakes): (Config, _) = settings::defaults(KEYS);
        assert_eq!(mistakes, []);
        let unset = json!({"temp_threshold_celsius": null, "memory_threshold_percent": null});
        assert_eq!(config.document()["alerts"], unset);
        // A key without a default is written where it is set.
        let set = "[alerts]\ntemp_threshold_celsius = 85\nmemory_threshold_percent = 90\n";
        assert_eq!(settings::apply_file(KEYS, set, &mut config), []);
        let document = config.document();
        let mut again = Config::default();
        for key in KEYS {
            let entry = &document[key.section][key.name];
            assert!(!entry.is_null(), "{}.{}", key.section, key.name);
            let value = toml::Value::try_from(entry).unwrap();
            (key.set)(&mut again, &value).unwrap();
        }
        assert_eq!(again, config);
    }
}
