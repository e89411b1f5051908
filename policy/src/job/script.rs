//! Reads the script or module that Python or Node runs from the arguments.

/// Long options that take the next argument.
#[rustfmt::skip]
const OPTIONS_WITH_ARGUMENT: &[&str] = &[
    "check-hash-based-pycs", "conditions", "env-file", "experimental-loader", "import", "loader",
    "require", "title",
];

/// The program that an interpreter runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum InterpreterTarget<'a> {
    /// The module of `-m`.
    Module(&'a str),
    /// The first argument that is not an option.
    Script(&'a str),
}

/// Returns the name of the module or script; `None` where the code is in the arguments
/// or comes from elsewhere.
pub(super) fn target_name(arguments: &[String]) -> Option<&str> {
    match interpreter_target(arguments.iter().map(String::as_str).skip(1))? {
        InterpreterTarget::Module(name) | InterpreterTarget::Script(name) => Some(name),
    }
}

/// Whether an interpreter with these arguments runs a kernel of Jupyter. What a process says
/// of itself here only makes its own ports less of a service.
#[must_use]
pub fn runs_notebook_kernel(arguments: &[String]) -> bool {
    let name = target_name(arguments).unwrap_or_default();
    let name = name.rsplit('/').next().unwrap_or_default();
    matches!(
        name,
        "ipykernel" | "ipykernel_launcher" | "ipykernel_launcher.py"
    )
}

/// Returns the program that an interpreter with these arguments runs.
pub(crate) fn interpreter_target<'a>(
    mut words: impl Iterator<Item = &'a str>,
) -> Option<InterpreterTarget<'a>> {
    loop {
        let word = words.next()?;
        let Some(option) = word.strip_prefix('-') else {
            return Some(InterpreterTarget::Script(word));
        };
        match option.strip_prefix('-') {
            Some("") => return words.next().map(InterpreterTarget::Script),
            Some(long) => {
                if OPTIONS_WITH_ARGUMENT.contains(&long) {
                    words.next();
                }
            }
            None if option.is_empty() => return None,
            None => match parse_short_options(option) {
                ShortOptions::Flags => {}
                ShortOptions::TakesNext => {
                    words.next();
                }
                ShortOptions::Module("") => return words.next().map(InterpreterTarget::Module),
                ShortOptions::Module(name) => return Some(InterpreterTarget::Module(name)),
                ShortOptions::Code => return None,
            },
        }
    }
}

/// The meaning of short options, of which several may be joined: `-Im`.
enum ShortOptions<'a> {
    Flags,
    TakesNext,
    /// The module, where it is joined too.
    Module(&'a str),
    Code,
}

fn parse_short_options(option: &str) -> ShortOptions<'_> {
    for (at, letter) in option.char_indices() {
        let rest = &option[at + letter.len_utf8()..];
        match letter {
            'm' => return ShortOptions::Module(rest),
            // Python's `-c`, and Node's options to evaluate and to print.
            'c' | 'e' | 'p' => return ShortOptions::Code,
            // Python's `-W` and `-X`, Node's `-r` and `-C`.
            'W' | 'X' | 'r' | 'C' if rest.is_empty() => return ShortOptions::TakesNext,
            'W' | 'X' | 'r' | 'C' => return ShortOptions::Flags,
            _ => {}
        }
    }
    ShortOptions::Flags
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn target_follows_the_options() {
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
            assert_eq!(target_name(&arguments), expected, "{words:?}");
        }
    }

    #[test]
    fn notebook_kernels_are_recognized() {
        for (words, expected) in [
            ("python3 -m ipykernel_launcher -f kernel.json", true),
            ("python3 -Xfrozen_modules=off -m ipykernel -f x", true),
            ("python3 /usr/lib/python3/ipykernel_launcher.py -f x", true),
            ("python3 -m jupyterlab ipykernel_launcher", false),
            ("python3 serve.py -m ipykernel_launcher", false),
            ("python3 -c ipykernel_launcher", false),
            ("python3", false),
        ] {
            let arguments: Vec<String> = words.split(' ').map(str::to_owned).collect();
            assert_eq!(runs_notebook_kernel(&arguments), expected, "{words}");
        }
        assert!(!runs_notebook_kernel(&[]));
    }

    proptest! {
        #[test]
        fn arbitrary_arguments_do_not_panic(
            arguments in proptest::collection::vec("-{0,2}[mcWXé=]{0,3}", 0..6),
        ) {
            let _ = target_name(&arguments);
        }
    }
}
