//! Where settings come from: the file of this user and the environment.

use super::{Flags, KEYS, Settings, resolve};
use crate::args::Cli;
use crate::exit::Failure;
use gpukill_proto::settings::Mistake;
use std::ffi::OsString;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

/// The settings of this run.
pub(crate) fn load(cli: &Cli) -> Result<Settings, Failure> {
    let file = match &cli.globals.config {
        Some(named) => Some((named.clone(), read(named)?)),
        None => usual_file(|name| std::env::var_os(name))
            .map(|path| read_if_there(&path).map(|text| text.map(|text| (path, text))))
            .transpose()?
            .flatten(),
    };
    let text = file.as_ref().map(|(_, text)| text.as_str());
    let path = || file.as_ref().map(|(path, _)| path.clone());
    let environment = environment().map_err(|mistakes| Failure::Settings {
        file: path(),
        mistakes,
    })?;
    resolve(Flags::from(cli), environment, text).map_err(|mistakes| Failure::Settings {
        file: path(),
        mistakes,
    })
}

/// `$XDG_CONFIG_HOME/gpukill/config.toml`, else below `~/.config`.
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

/// A settings file is no longer than this: whatever else is named is not read into
/// memory.
const LONGEST: u64 = 1 << 20;

fn text_of(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    let file = std::fs::File::open(path)?;
    let length = file.take(LONGEST + 1).read_to_string(&mut text)?;
    if length as u64 > LONGEST {
        return Err(io::ErrorKind::FileTooLarge.into());
    }
    Ok(text)
}

fn read(path: &Path) -> Result<String, Failure> {
    text_of(path).map_err(|error| Failure::SettingsFile(path.to_owned(), error))
}

fn read_if_there(path: &Path) -> Result<Option<String>, Failure> {
    match text_of(path) {
        Ok(text) => Ok(Some(text)),
        Err(error)
            if matches!(
                error.kind(),
                io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
            ) =>
        {
            Ok(None)
        }
        Err(error) => Err(Failure::SettingsFile(path.to_owned(), error)),
    }
}

/// The variables that are settings. An empty one counts as not set.
fn environment() -> Result<Vec<(String, String)>, Vec<Mistake>> {
    let mut variables = Vec::new();
    let mut mistakes = Vec::new();
    for key in KEYS {
        match std::env::var_os(key.variable).map(OsString::into_string) {
            None => {}
            Some(Ok(text)) if text.is_empty() => {}
            Some(Ok(text)) => variables.push((key.variable.to_owned(), text)),
            Some(Err(_)) => mistakes.push(Mistake {
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
    fn the_file_lies_where_the_desktop_says_or_below_the_home() {
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
    fn what_is_no_settings_file_is_told_in_words_and_not_read_without_end() {
        let directory = tempfile::tempdir().expect("a directory");
        let binary = directory.path().join("binary");
        std::fs::write(&binary, b"\xff\xfe").expect("written");
        let said = |path: &Path| {
            let failure = read(path).expect_err("it is no settings file");
            let said = failure.to_string();
            let begin = format!("cannot read the settings {}: ", path.display());
            said.strip_prefix(&begin).map(str::to_owned)
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
            assert_eq!(said(path).as_deref(), Some(expected), "{path:?}");
        }
    }

    #[test]
    fn a_usual_file_that_is_missing_is_none_and_a_named_one_must_be_there() {
        let directory = tempfile::tempdir().expect("a directory");
        let missing = directory.path().join("none/config.toml");
        assert!(matches!(read_if_there(&missing), Ok(None)));
        assert!(matches!(read(&missing), Err(Failure::SettingsFile(..))));
        assert!(matches!(
            read_if_there(directory.path()),
            Err(Failure::SettingsFile(..))
        ));
    }
}
