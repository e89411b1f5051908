//! What an interpreter runs, by its arguments: Python's and Node's.

/// Options that are words, and take the next argument.
const WITH_ARGUMENT: &[&str] = &[
    "check-hash-based-pycs",
    "conditions",
    "env-file",
    "experimental-loader",
    "import",
    "loader",
    "require",
    "title",
];

/// What an interpreter runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ran<'a> {
    /// The module of `-m`.
    Module(&'a str),
    /// The first argument that is no option.
    Script(&'a str),
}

/// The name of the module or script. `None` where the code is among the arguments
/// itself, or comes from elsewhere.
pub(super) fn script(arguments: &[String]) -> Option<&str> {
    match ran(arguments.iter().map(String::as_str).skip(1))? {
        Ran::Module(name) | Ran::Script(name) => Some(name),
    }
}

/// What an interpreter with these arguments runs.
pub(crate) fn ran<'a>(mut words: impl Iterator<Item = &'a str>) -> Option<Ran<'a>> {
    loop {
        let word = words.next()?;
        let Some(option) = word.strip_prefix('-') else {
            return Some(Ran::Script(word));
        };
        match option.strip_prefix('-') {
            Some("") => return words.next().map(Ran::Script),
            Some(long) => {
                if WITH_ARGUMENT.contains(&long) {
                    words.next();
                }
            }
            None if option.is_empty() => return None,
            None => match letters(option) {
                Letters::Flags => {}
                Letters::TakesNext => {
                    words.next();
                }
                Letters::Module("") => return words.next().map(Ran::Module),
                Letters::Module(name) => return Some(Ran::Module(name)),
                Letters::Code => return None,
            },
        }
    }
}

/// What options of one letter say, of which several may be joined: `-Im`.
enum Letters<'a> {
    Flags,
    TakesNext,
    /// The module, where it is joined too.
    Module(&'a str),
    Code,
}

fn letters(option: &str) -> Letters<'_> {
    for (at, letter) in option.char_indices() {
        let rest = &option[at + letter.len_utf8()..];
        match letter {
            'm' => return Letters::Module(rest),
            // Python's `-c`, and Node's to evaluate and to print.
            'c' | 'e' | 'p' => return Letters::Code,
            // Python's `-W` and `-X`, Node's `-r` and `-C`.
            'W' | 'X' | 'r' | 'C' if rest.is_empty() => return Letters::TakesNext,
            'W' | 'X' | 'r' | 'C' => return Letters::Flags,
            _ => {}
        }
    }
    Letters::Flags
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_an_interpreter_runs_is_found_behind_its_options() {
        let cases: [(&[&str], Option<&str>); 17] = [
            (&["train.py", "-m", "x"], Some("train.py")),
            (&["-m", "jupyterlab", "--port"], Some("jupyterlab")),
            (&["-W", "ignore", "-m", "jupyterlab"], Some("jupyterlab")),
            (&["-Wignore", "-m", "jupyterlab"], Some("jupyterlab")),
            (&["-X", "dev", "-u", "a.py"], Some("a.py")),
            (&["-Xdev", "a.py"], Some("a.py")),
            (&["-Im", "jupyterlab"], Some("jupyterlab")),
            (&["-mjupyterlab"], Some("jupyterlab")),
            (&["-c", "print()", "jupyter-lab"], None),
            (&["-Bc", "print()", "jupyter-lab"], None),
            (&["-", "jupyter-lab"], None),
            (&["/a b/jupyter-lab"], Some("/a b/jupyter-lab")),
            (&["--check-hash-based-pycs", "always", "a.py"], Some("a.py")),
            (&["--max-old-space-size=1", "a.js"], Some("a.js")),
            (&["-r", "x.js", "a.js"], Some("a.js")),
            (&["--", "a.js"], Some("a.js")),
            (&["-m"], None),
        ];
        for (words, expected) in cases {
            let arguments: Vec<String> = ["python"]
                .iter()
                .chain(words)
                .map(|word| (*word).to_owned())
                .collect();
            assert_eq!(script(&arguments), expected, "{words:?}");
        }
    }

    proptest! {
        #[test]
        fn no_arguments_can_panic_it(
            arguments in proptest::collection::vec("-{0,2}[mcWXé=]{0,3}", 0..6),
        ) {
            let _ = script(&arguments);
        }
    }
}
