//! Rules that cost whoever reads them as much as rules can.

/// So many rules with a pattern each that takes about as much memory as one may.
pub(crate) fn large_patterns(rules: usize) -> String {
    let one = |nth| {
        format!(
            "[[rules]]\nname = \"r{nth}\"\naction = \"warn\"\nduration_limit_hours = 9\n\
             command = 'x{nth}[a-z0-9]{{900}}'\n"
        )
    };
    (0..rules).map(one).collect()
}

/// Files of rules that take much to read, or have nothing but mistakes.
pub(crate) fn hostile_files() -> [String; 3] {
    let mistakes = "user_policies = 7 [\n".repeat(50_000);
    let tables = "[a.a.a.a.a.a.a.a]\n".repeat(50_000);
    [large_patterns(1_000), mistakes, tables]
}
