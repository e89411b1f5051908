//! The client's settings that differ from the defaults, for a report.

use super::{Colors, Format, LogLevel, Settings};
use gpukill_proto::json::report::{SettingKey, SettingPart, SettingValueDocument};
use std::time::Duration;

/// Each field with its key, whether it differs from the default, and its value. A forgotten field
/// does not compile.
macro_rules! parts {
    ($settings:ident, $($key:literal $field:ident: $value:expr,)*) => {{
        let Self { $($field),* } = $settings;
        let default = Self::default();
        [$(($key, *$field != default.$field, $value)),*]
    }};
}

impl Settings {
    /// The settings that differ from the defaults, whatever their source. For a path and for
    /// texts, only that they are set.
    pub(crate) fn non_defaults(&self) -> Vec<SettingPart> {
        let name = |name| Some(SettingValueDocument::Name(name));
        let truth = |truth| Some(SettingValueDocument::Truth(truth));
        let all = parts! {
            self,
            "log_level" log_level: name(log_level.name()),
            "output_format" output_format: name(output_format.name()),
            "use_colors" colors: name(colors.name()),
            "table_width" table_width: table_width.and_then(number),
            "default_timeout_secs" signal_timeout: seconds(*signal_timeout),
            "request_timeout_secs" timeout: seconds(*timeout),
            "max_processes_summary" max_processes: number(*max_processes),
            "watch_interval_secs" watch_interval: seconds(*watch_interval),
            "show_details" show_details: truth(*show_details),
            "only_mine" only_mine: truth(*only_mine),
            "list_sort" list_sort: None,
            "list_columns" list_columns: None,
            "details_columns" details_columns: None,
            "socket" socket: None,
        };
        let changed = all.into_iter().filter(|(_, is_changed, _)| *is_changed);
        let part = |(key, _, value)| SettingPart {
            key: SettingKey::parse(key),
            value,
        };
        changed.map(part).collect()
    }
}

fn number(number: usize) -> Option<SettingValueDocument> {
    i64::try_from(number).ok().map(SettingValueDocument::Number)
}

fn seconds(length: Duration) -> Option<SettingValueDocument> {
    let seconds = i64::try_from(length.as_secs()).ok();
    seconds.map(SettingValueDocument::Number)
}

impl LogLevel {
    const fn name(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Warn => "warn",
            Self::Info => "info",
            Self::Debug => "debug",
            Self::Trace => "trace",
        }
    }
}

impl Format {
    const fn name(self) -> &'static str {
        match self {
            Self::Table => "table",
            Self::Json => "json",
            Self::Ndjson => "ndjson",
            Self::Csv => "csv",
        }
    }
}

impl Colors {
    const fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Always => "always",
            Self::Never => "never",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changed_settings_are_listed_without_paths() {
        assert_eq!(Settings::default().non_defaults(), []);
        let settings = Settings {
            colors: Colors::Never,
            signal_timeout: Duration::from_secs(20),
            timeout: Duration::from_secs(30),
            show_details: true,
            socket: Some("/home/alice/s".into()),
            ..Settings::default()
        };
        let part = |key, value| SettingPart {
            key: SettingKey::parse(key),
            value,
        };
        assert_eq!(
            settings.non_defaults(),
            [
                part("use_colors", Some(SettingValueDocument::Name("never"))),
                part(
                    "default_timeout_secs",
                    Some(SettingValueDocument::Number(20))
                ),
                part(
                    "request_timeout_secs",
                    Some(SettingValueDocument::Number(30))
                ),
                part("show_details", Some(SettingValueDocument::Truth(true))),
                part("socket", None),
            ]
        );
    }
}
