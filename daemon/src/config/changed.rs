//! Which settings are not what they are by default, told without any text of theirs.

use super::{Config, KEYS};
use gpukill_proto::settings::{self, Key, value::parse_duration};
use gpukill_proto::status::{ChangedSetting, SettingValue};
use serde_json::Value;

impl Config {
    /// The settings that are not the box's defaults, in the order of the keys.
    pub(crate) fn changed(&self) -> Vec<ChangedSetting> {
        let (defaults, _): (Self, _) = settings::defaults(KEYS);
        let changed = self.differs(&defaults).into_iter();
        let changed = changed.map(|(key, told)| ChangedSetting {
            key: key.path(),
            value: value(key, &told),
        });
        changed.collect()
    }

    /// The keys of the settings that are not what they were, and hold after a restart
    /// only.
    pub(crate) fn waiting(&self, before: &Self) -> Vec<String> {
        let changed = self.differs(before).into_iter().map(|(key, _)| key);
        let waiting = changed.filter(|key| key.help.ends_with(NEEDS_A_RESTART));
        waiting.map(Key::path).collect()
    }

    /// The settings that are not as in another, and what they are here.
    fn differs(&self, other: &Self) -> Vec<(&'static Key<Self>, Value)> {
        let (here, there) = (self.document(), other.document());
        let of = |document: &Value, key: &Key<Self>| document.pointer(&pointer(key)).cloned();
        let differs = KEYS.iter().filter_map(|key| {
            let told = of(&here, key)?;
            (Some(&told) != of(&there, key).as_ref()).then_some((key, told))
        });
        differs.collect()
    }
}

/// How the help of a key ends that holds after a restart only.
const NEEDS_A_RESTART: &str = "restart.";

fn pointer(key: &Key<Config>) -> String {
    format!("/{}/{}", key.section, key.name)
}

/// No text is told, but for one that is a length of time by the key's own default.
fn value(key: &Key<Config>, told: &Value) -> SettingValue {
    let is_length = parse_duration(key.default.trim_matches('"')).is_some();
    let length = || parse_duration(told.as_str().filter(|_| is_length)?);
    if let Some(truth) = told.as_bool() {
        SettingValue::Truth(truth)
    } else if let Some(number) = told.as_i64() {
        SettingValue::Number(number)
    } else if let Some(length) = length() {
        SettingValue::Length(u64::try_from(length.as_millis()).unwrap_or(u64::MAX))
    } else {
        SettingValue::NotTold
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_the_default_is_told_and_no_text_of_it() {
        let (mut config, _): (Config, _) = settings::defaults(KEYS);
        assert_eq!(config.changed(), []);
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
            config.changed(),
            [
                changed("daemon.socket", SettingValue::NotTold),
                changed("daemon.poll_interval", SettingValue::Length(1_000)),
                changed("access.operator_group", SettingValue::NotTold),
                changed("access.hide_other_users", SettingValue::Truth(true)),
                changed("alerts.temp_threshold_celsius", SettingValue::Number(85)),
                changed("protect.users", SettingValue::NotTold),
            ]
        );
    }

    #[test]
    fn what_holds_after_a_restart_only_is_known() {
        let (before, _): (Config, _) = settings::defaults(KEYS);
        let mut new = before.clone();
        assert_eq!(new.waiting(&before), [""; 0]);
        let text = "[daemon]\npoll_interval = \"1s\"\nforeign_pids = true\n\
                    [access]\nowner_label = \"x\"\nhide_other_users = true\n\
                    [guard]\nterminals = \"\"\n";
        assert_eq!(settings::apply_file(KEYS, text, &mut new), []);
        let waiting = [
            "daemon.foreign_pids",
            "access.owner_label",
            "guard.terminals",
        ];
        assert_eq!(new.waiting(&before), waiting);
    }

    #[test]
    fn every_key_has_its_place_in_the_document() {
        let (config, _): (Config, _) = settings::defaults(KEYS);
        let document = config.document();
        for key in KEYS {
            assert!(document.pointer(&pointer(key)).is_some(), "{}", key.path());
        }
    }
}
