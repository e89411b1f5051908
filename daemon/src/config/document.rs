//! The settings in force as JSON for the store, with the names of their keys.

use super::{
    AccessSettings, AuditSettings, BackendSettings, Config, DaemonSettings, ForeignPids,
    GuardSettings, ProtectSettings, ResetSettings, RogueSettings,
};
use gpukill_policy::alert::Thresholds;
use serde_json::{Value, json};
use std::time::Duration;

impl Config {
    /// All settings as JSON.
    #[must_use]
    pub fn document(&self) -> Value {
        // Destructured, so that no setting is forgotten.
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
            "daemon": daemon_document(daemon, foreign_pids),
            "access": access_document(access),
            "backends": backends_document(backends),
            "audit": audit_document(audit),
            "guard": guard_document(guard),
            "rogue": rogue_document(rogue),
            "alerts": alerts_document(alerts),
            "reset": reset_document(reset),
            "protect": protect_document(protect),
            "personal": personal,
        })
    }
}

fn daemon_document(daemon: &DaemonSettings, effect: &ForeignPids) -> Value {
    let DaemonSettings {
        socket,
        state_dir,
        poll_interval,
        foreign_pids,
    } = daemon;
    json!({
        "socket": socket.display().to_string(),
        "state_dir": state_dir.display().to_string(),
        "poll_interval": duration_text(*poll_interval),
        "foreign_pids": foreign_pids,
        "foreign_pids_allowed": *effect == ForeignPids::Allow,
    })
}

fn access_document(access: &AccessSettings) -> Value {
    let AccessSettings {
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

fn backends_document(backends: &BackendSettings) -> Value {
    let BackendSettings {
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

fn audit_document(audit: &AuditSettings) -> Value {
    let AuditSettings {
        sample_interval,
        keep_samples,
        keep_minutes,
        keep_hours,
    } = audit;
    json!({
        "sample_interval": duration_text(*sample_interval),
        "keep_samples": duration_text(*keep_samples),
        "keep_minutes": duration_text(*keep_minutes),
        "keep_hours": duration_text(*keep_hours),
    })
}

fn guard_document(GuardSettings { rules, terminals }: &GuardSettings) -> Value {
    let terminals = terminals.as_ref();
    json!({
        "rules": rules.display().to_string(),
        "terminals": terminals.map_or_else(String::new, |it| it.display().to_string()),
    })
}

fn rogue_document(RogueSettings { rules }: &RogueSettings) -> Value {
    json!({"rules": rules.display().to_string()})
}

/// A threshold that is not set is null.
fn alerts_document(alerts: &Thresholds) -> Value {
    let Thresholds {
        temperature,
        memory,
    } = alerts;
    json!({
        "temp_threshold_celsius": temperature.map(|limit| limit.0),
        "memory_threshold_percent": memory.map(|limit| limit.0),
    })
}

fn reset_document(ResetSettings { helper }: &ResetSettings) -> Value {
    json!({"helper": helper.display().to_string()})
}

fn protect_document(protect: &ProtectSettings) -> Value {
    let ProtectSettings {
        names,
        users,
        units,
        containers,
    } = protect;
    json!({"names": names, "users": users, "units": units, "containers": containers})
}

/// In the form of the settings file.
fn duration_text(duration: Duration) -> String {
    format!("{}ms", duration.as_millis())
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
