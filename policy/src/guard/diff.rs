//! The difference of two texts of rules, for people to read before it is made.

use similar::{Algorithm, TextDiff};

/// Lines around each change.
const AROUND: usize = 3;

/// Comparing takes time with the product of the lines that differ. Up to this it is
/// well below a second.
const MOST_COMPARED: usize = 10_000_000;

/// A unified difference, as diff(1) and git have it. Empty where the texts are the
/// same; where very much differs, it says only how much.
#[must_use]
pub fn unified(before: (&str, &str), after: (&str, &str)) -> String {
    let ((before_name, before), (after_name, after)) = (before, after);
    if before == after {
        return String::new();
    }
    let (old, new) = between(before, after);
    if old.saturating_mul(new) > MOST_COMPARED {
        return format!(
            "--- {before_name}\n+++ {after_name}\n{old} lines become {new} others: too many to show\n"
        );
    }
    TextDiff::configure()
        .algorithm(Algorithm::Patience)
        .diff_lines(before, after)
        .unified_diff()
        .context_radius(AROUND)
        .header(before_name, after_name)
        .to_string()
}

/// How many lines of each are neither at the beginning nor at the end of the other.
fn between(before: &str, after: &str) -> (usize, usize) {
    let (before, after): (Vec<&str>, Vec<&str>) =
        (before.lines().collect(), after.lines().collect());
    let pairs = before.iter().zip(&after);
    let first = pairs.take_while(|(a, b)| a == b).count();
    let (before, after) = (&before[first..], &after[first..]);
    let pairs = before.iter().rev().zip(after.iter().rev());
    let last = pairs.take_while(|(a, b)| a == b).count();
    (before.len() - last, after.len() - last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_difference_shows_what_changes_and_a_little_around_it() {
        let before = "a\nb\nc\nd\ne\nf\ng\nh\n";
        let after = "a\nb\nc\nd\nE\nf\ng\nh\n";
        assert_eq!(
            unified(("guard.toml", before), ("guard.toml (new)", after)),
            "--- guard.toml\n+++ guard.toml (new)\n@@ -2,7 +2,7 @@\n b\n c\n d\n-e\n+E\n f\n g\n h\n"
        );
        assert_eq!(unified(("a", before), ("b", before)), "");
        assert_eq!(
            unified(("a", ""), ("b", "x\n")),
            "--- a\n+++ b\n@@ -0,0 +1 @@\n+x\n"
        );
    }

    #[test]
    fn what_is_too_much_to_compare_is_counted() {
        let lines = |what: &str| {
            (0..20_000)
                .map(|n| format!("{what}{n}\n"))
                .collect::<String>()
        };
        assert_eq!(
            unified(("a", &lines("x")), ("b", &lines("y"))),
            "--- a\n+++ b\n20000 lines become 20000 others: too many to show\n"
        );
        // One line of many is not much.
        let many = lines("x");
        let one = many.replace("x777\n", "y\n");
        assert!(unified(("a", &many), ("b", &one)).ends_with("-x777\n+y\n x778\n x779\n x780\n"));
    }
}
