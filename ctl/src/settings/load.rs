//! Loads the settings from the user's file and the environment.

use super::{KEYS, Settings, resolve};
use crate::args::Cli;
use crate::exit::Error;
use gpukill_proto::settings::SettingMistake;
use std::ffi::OsString;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

pub(crate) fn load(cli: &Cli) -> Result<Settings, Error> {
    let file = match &cli.globals.config {
        Some(named) => Some((named.clone(), read(named)?)),
        None => usual_file(|name| std::env::var_os(name))
            .map(|path| read_if_exists(&path).map(|text| text.map(|text| (path, text))))
            .transpose()?
            .flatten(),
    };
    let text = file.as_ref().map(|(_, text)| text.as_str());
    let path = || file.as_ref().map(|(path, _)| path.clone());
    let environment = environment().map_err(|mistakes| Error::Settings {
        file: path(),
        mistakes,
    })?;
    resolve(cli, environment, text).map_err(|mistakes| Error::Settings {
        file: path(),
        mistakes,
    })
}

/// The usual file: `$XDG_CONFIG_HOME/gpukill/config.toml`, else below `~/.config`.
fn usual_file(variable: impl Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    let directory = |name: &str| {
        variable(name)
            .map(PathBuf::from)
            .filter(|path| path.is_absolute())
    };
    let config = directory("XDG_CONFIG_HOME")
        .or_else(|| directory("HOME").map(|home| home.join(".config")))?;
    Some(config.join("gpukill/config.toml"))
}

/// Maximum length of a settings file, so that another file named by mistake is not read into
/// memory.
const MAX_FILE_BYTES: u64 = 1 << 20;

fn read_limited(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    let file = std::fs::File::open(path)?;
    let length = file.take(MAX_FILE_BYTES + 1).read_to_string(&mut text)?;
    if length as u64 > MAX_FILE_BYTES {
        return Err(io::ErrorKind::FileTooLarge.into());
    }
    Ok(text)
}

fn read(path: &Path) -> Result<String, Error> {
    read_limited(path).map_err(|error| Error::SettingsFile(path.to_owned(), error))
}

fn read_if_exists(path: &Path) -> Result<Option<String>, Error> {
    match read_limited(path) {
        Ok(text) => Ok(Some(text)),
        Err(error)
            if matches!(
                error.kind(),
                io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
            ) =>
        {
            Ok(None)
        }
        Err(error) => Err(Error::SettingsFile(path.to_owned(), error)),
    }
}

/// The environment variables that are settings. An empty variable counts as not set.
fn environment() -> Result<Vec<(String, String)>, Vec<SettingMistake>> {
    let mut variables = Vec::new();
    let mut mistakes = Vec::new();
    for key in KEYS {
        match std::env::var_os(key.variable).map(OsString::into_string) {
            None => {}
            Some(Ok(text)) if text.is_empty() => {}
            Some(Ok(text)) => variables.push((key.variable.to_owned(), text)),
            Some(Err(_)) => mistakes.push(SettingMistake {
                line: None,
                what: format!("{}: is not UTF-8", key.variable),
            }),
        }
    }
    if mistakes.is_empty() {
        Ok(variables)
    } else {
        Err(mistakes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn usual_file_is_in_xdg_config_or_home() {
        let found = |xdg: &str, home: &str| {
            usual_file(|name| match name {
                "XDG_CONFIG_HOME" => Some(xdg.into()),
                "HOME" => Some(home.into()),
                other => panic!("{other}"),
            })
        };
        let cases = [
            ("/x", "/home/a", Some("/x/gpukill/config.toml")),
            ("", "/home/a", Some("/home/a/.config/gpukill/config.toml")),
            ("relative", "/h", Some("/h/.config/gpukill/config.toml")),
            ("", "", None),
        ];
        for (xdg, home, expected) in cases {
            assert_eq!(
                found(xdg, home),
                expected.map(PathBuf::from),
                "{xdg} {home}"
            );
        }
    }

    #[test]
    fn unreadable_file_is_reported_in_words() {
        let directory = tempfile::tempdir().expect("a directory");
        let binary = directory.path().join("binary");
        std::fs::write(&binary, b"\xff\xfe").expect("written");
        let message = |path: &Path| {
            let failure = read(path).expect_err("it is no settings file");
            let message = failure.to_string();
            let begin = format!("cannot read the settings {}: ", path.display());
            message.strip_prefix(&begin).map(str::to_owned)
        };
        for (path, expected) in [
            (
                Path::new("/dev/zero"),
                "it is longer than a settings file can be",
            ),
            (&binary, "it is not UTF-8"),
            (directory.path(), "it is a directory"),
            (&directory.path().join("none"), "there is no such file"),
        ] {
            assert_eq!(message(path).as_deref(), Some(expected), "{path:?}");
        }
    }

    #[test]
    fn only_a_named_file_must_exist() {
        let directory = tempfile::tempdir().expect("a directory");
        let missing = directory.path().join("none/config.toml");
        assert!(matches!(read_if_exists(&missing), Ok(None)));
        assert!(matches!(read(&missing), Err(Error::SettingsFile(..))));
        assert!(matches!(
            read_if_exists(directory.path()),
            Err(Error::SettingsFile(..))
        ));
    }
}
