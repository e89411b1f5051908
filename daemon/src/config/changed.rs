//! Lists the settings that differ from their defaults, without any text from them.

use super::{Config, KEYS};
use gpukill_proto::settings::{self, Key, value::parse_duration};
use gpukill_proto::status::{ChangedSetting, SettingValue};
use serde_json::Value;

impl Config {
    /// The settings that differ from the defaults of the host, in the order of the keys.
    pub(crate) fn changed_settings(&self) -> Vec<ChangedSetting> {
        let (defaults, _): (Self, _) = settings::defaults(KEYS);
        let changed = self.differing_keys(&defaults).into_iter();
        let changed = changed.map(|(key, value)| ChangedSetting {
            key: key.path(),
            value: setting_value(key, &value),
        });
        changed.collect()
    }

    /// The keys of settings that changed and that take effect only after a restart.
    pub(crate) fn restart_keys(&self, before: &Self) -> Vec<String> {
        let changed = self.differing_keys(before).into_iter().map(|(key, _)| key);
        let waiting = changed.filter(|key| key.help.ends_with(NEEDS_A_RESTART));
        waiting.map(Key::path).collect()
    }

    /// The settings that differ from another configuration, with their values here.
    fn differing_keys(&self, other: &Self) -> Vec<(&'static Key<Self>, Value)> {
        let (own_document, others) = (self.document(), other.document());
        let of = |document: &Value, key: &Key<Self>| document.pointer(&json_pointer(key)).cloned();
        let differs = KEYS.iter().filter_map(|key| {
            let value = of(&own_document, key)?;
            (Some(&value) != of(&others, key).as_ref()).then_some((key, value))
        });
        differs.collect()
    }
}

/// The end of the help of a key that takes effect only after a restart.
const NEEDS_A_RESTART: &str = "restart.";

fn json_pointer(key: &Key<Config>) -> String {
    format!("/{}/{}", key.section, key.name)
}

/// Text values are omitted, except durations: a key holds a duration if its default is one.
fn setting_value(key: &Key<Config>, value: &Value) -> SettingValue {
    let is_length = parse_duration(key.default.trim_matches('"')).is_some();
    let length = || parse_duration(value.as_str().filter(|_| is_length)?);
    if let Some(truth) = value.as_bool() {
        SettingValue::Bool(truth)
    } else if let Some(number) = value.as_i64() {
        SettingValue::Number(number)
    } else if let Some(length) = length() {
        SettingValue::Duration(u64::try_from(length.as_millis()).unwrap_or(u64::MAX))
    } else {
        SettingValue::Withheld
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_changed_settings_without_text() {
        let (mut config, _): (Config, _) = settings::defaults(KEYS);
        assert_eq!(config.changed_settings(), []);
        let text = "[daemon]\nsocket = \"/home/alice/s\"\npoll_interval = \"1s\"\n\
                    [access]\noperator_group = \"2h\"\nhide_other_users = true\n\
                    [audit]\nkeep_samples = \"7d\"\n\
                    [alerts]\ntemp_threshold_celsius = 85\n\
                    [protect]\nusers = [\"alice\"]\n";
        assert_eq!(settings::apply_file(KEYS, text, &mut config), []);
        let changed = |key: &str, value| ChangedSetting {
            key: key.into(),
            value,
        };
        assert_eq!(
            config.changed_settings(),
            [
                changed("daemon.socket", SettingValue::Withheld),
                changed("daemon.poll_interval", SettingValue::Duration(1_000)),
                changed("access.operator_group", SettingValue::Withheld),
                changed("access.hide_other_users", SettingValue::Bool(true)),
                changed("alerts.temp_threshold_celsius", SettingValue::Number(85)),
                changed("protect.users", SettingValue::Withheld),
            ]
        );
    }

    #[test]
    fn restart_keys_are_known() {
        let (before, _): (Config, _) = settings::defaults(KEYS);
        let mut new = before.clone();
        assert_eq!(new.restart_keys(&before), [""; 0]);
        let text = "[daemon]\npoll_interval = \"1s\"\nforeign_pids = true\n\
                    [access]\nowner_label = \"x\"\nhide_other_users = true\n\
                    [guard]\nterminals = \"\"\n";
        assert_eq!(settings::apply_file(KEYS, text, &mut new), []);
        let waiting = [
            "daemon.foreign_pids",
            "access.owner_label",
            "guard.terminals",
        ];
        assert_eq!(new.restart_keys(&before), waiting);
    }

    #[test]
    fn every_key_is_in_the_document() {
        let (config, _): (Config, _) = settings::defaults(KEYS);
        let document = config.document();
        for key in KEYS {
            assert!(
                document.pointer(&json_pointer(key)).is_some(),
                "{}",
                key.path()
            );
        }
    }
}
