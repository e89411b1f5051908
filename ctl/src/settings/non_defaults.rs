//! The client's settings that differ from the defaults, for a report.

use super::{Colors, Format, LogLevel, Settings};
use gpukill_proto::json::report::{SettingKey, SettingPart, SettingValueDocument};
use std::time::Duration;

impl Settings {
    /// The settings that differ from the defaults, whatever their source. For a path and for
    /// texts, only that they are set.
    pub(crate) fn non_defaults(&self) -> Vec<SettingPart> {
        // Destructured, so that no field is forgotten.
        let Self {
            log_level,
            output_format,
            colors,
            table_width,
            signal_timeout,
            timeout,
            max_processes,
            watch_interval,
            show_details,
            only_mine,
            list_sort,
            list_columns,
            details_columns,
            socket,
        } = self;
        let default = Self::default();
        let name = |name| Some(SettingValueDocument::Name(name));
        let all = [
            (
                "log_level",
                *log_level != default.log_level,
                name(log_level.name()),
            ),
            (
                "output_format",
                *output_format != default.output_format,
                name(output_format.name()),
            ),
            ("use_colors", *colors != default.colors, name(colors.name())),
            (
                "table_width",
                *table_width != default.table_width,
                table_width.and_then(number),
            ),
            (
                "default_timeout_secs",
                *signal_timeout != default.signal_timeout,
                seconds(*signal_timeout),
            ),
            (
                "request_timeout_secs",
                *timeout != default.timeout,
                seconds(*timeout),
            ),
            (
                "max_processes_summary",
                *max_processes != default.max_processes,
                number(*max_processes),
            ),
            (
                "watch_interval_secs",
                *watch_interval != default.watch_interval,
                seconds(*watch_interval),
            ),
            (
                "show_details",
                *show_details != default.show_details,
                Some(SettingValueDocument::Truth(*show_details)),
            ),
            (
                "only_mine",
                *only_mine != default.only_mine,
                Some(SettingValueDocument::Truth(*only_mine)),
            ),
            ("list_sort", *list_sort != default.list_sort, None),
            ("list_columns", *list_columns != default.list_columns, None),
            (
                "details_columns",
                *details_columns != default.details_columns,
                None,
            ),
            ("socket", *socket != default.socket, None),
        ];
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
