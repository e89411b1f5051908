//! The difference between two texts of rules, shown to people before an edit is made.

use similar::algorithms::{Capture, Compact, Replace, myers};
use similar::udiff::UnifiedHunkHeader;
use similar::{DiffOp, DiffTag, DiffableStr as _, group_diff_ops};
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::fmt::Write as _;

/// Unchanged lines shown around each change.
const CONTEXT_LINES: usize = 3;

/// Comparing takes time proportional to the product of the lines that differ. Up to this
/// product it stays well below a second.
const MAX_COMPARISONS: usize = 10_000_000;

/// A unified diff in the format of diff(1) and git. Empty if the texts are equal. If too
/// much differs, it states only how much.
#[must_use]
pub fn unified_diff(before: (&str, &str), after: (&str, &str)) -> String {
    let ((before_name, before), (after_name, after)) = (before, after);
    if before == after {
        return String::new();
    }
    let (old, new) = count_differing_lines(before, after);
    if old.saturating_mul(new) > MAX_COMPARISONS {
        return format!(
            "--- {before_name}\n+++ {after_name}\n{old} lines are replaced by {new} others: too \
            many to show\n"
        );
    }
    // Not `TextDiff`, which links each of its six algorithms for each kind of input: half a
    // megabyte.
    let (before, after) = (before.tokenize_lines(), after.tokenize_lines());
    let Ok(changes) = diff_lines(&before, &after);
    let mut text = format!("--- {before_name}\n+++ {after_name}\n");
    for hunk in group_diff_ops(changes, CONTEXT_LINES) {
        // Writing to a `String` cannot fail.
        let _ = writeln!(text, "{}", UnifiedHunkHeader::new(&hunk));
        for (kind, gone, come) in hunk.iter().map(DiffOp::as_tag_tuple) {
            let gone = before.get(gone).unwrap_or_default();
            if kind == DiffTag::Equal {
                write_lines(&mut text, ' ', gone);
            } else {
                write_lines(&mut text, '-', gone);
                write_lines(&mut text, '+', after.get(come).unwrap_or_default());
            }
        }
    }
    text
}

/// The operations that turn the old lines into the new ones.
fn diff_lines(before: &[&str], after: &[&str]) -> Result<Vec<DiffOp>, Infallible> {
    // Numbers compare faster than lines.
    let mut numbers = BTreeMap::new();
    let mut number = |line| {
        let next = numbers.len();
        *numbers.entry(line).or_insert(next)
    };
    let before: Vec<usize> = before.iter().map(|line| number(*line)).collect();
    let after: Vec<usize> = after.iter().map(|line| number(*line)).collect();
    let mut found = Compact::new(Replace::new(Capture::new()), &before, &after);
    // Not `patience`, which links this algorithm for three more kinds of input: 40 KB.
    myers::diff(&mut found, &before, 0..before.len(), &after, 0..after.len())?;
    Ok(found.into_inner().into_inner().into_ops())
}

fn write_lines(text: &mut String, mark: char, lines: &[&str]) {
    for line in lines {
        text.push(mark);
        text.push_str(line);
        if !line.ends_with_newline() {
            text.push_str("\n\\ No newline at end of file\n");
        }
    }
}

/// The number of lines of each text without the common beginning and end.
fn count_differing_lines(before: &str, after: &str) -> (usize, usize) {
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
    use proptest::prelude::*;

    #[test]
    fn shows_changes_with_context() {
        let before = "a\nb\nc\nd\ne\nf\ng\nh\n";
        let after = "a\nb\nc\nd\nE\nf\ng\nh\n";
        assert_eq!(
            unified_diff(("guard.toml", before), ("guard.toml (new)", after)),
            "--- guard.toml\n+++ guard.toml (new)\n@@ -2,7 +2,7 @@\n b\n c\n d\n-e\n+E\n f\n g\n h\n"
        );
        assert_eq!(unified_diff(("a", before), ("b", before)), "");
        assert_eq!(
            unified_diff(("a", ""), ("b", "x\n")),
            "--- a\n+++ b\n@@ -0,0 +1 @@\n+x\n"
        );
    }

    /// Texts built from few different lines, so that much is equal and much moves.
    fn texts() -> impl Strategy<Value = (String, String)> {
        let line =
            prop::sample::select(vec!["a\n", "b\n", "c\n", "d\n", "\n", "e\r\n", "f\r", "x"]);
        let text = || prop::collection::vec(line.clone(), 0..60).prop_map(|lines| lines.concat());
        (text(), text())
    }

    proptest! {
        #[test]
        fn equals_text_diff((before, after) in texts()) {
            let expected = similar::TextDiff::configure()
                .algorithm(similar::Algorithm::Myers)
                .diff_lines(&*before, &*after)
                .unified_diff()
                .context_radius(CONTEXT_LINES)
                .header("a", "b")
                .to_string();
            prop_assert_eq!(unified_diff(("a", &before), ("b", &after)), expected);
        }
    }

    #[test]
    fn only_counts_large_differences() {
        let lines = |what: &str| {
            (0..20_000)
                .map(|n| format!("{what}{n}\n"))
                .collect::<String>()
        };
        assert_eq!(
            unified_diff(("a", &lines("x")), ("b", &lines("y"))),
            "--- a\n+++ b\n20000 lines are replaced by 20000 others: too many to show\n"
        );
        // One changed line among many is not too much.
        let many = lines("x");
        let one = many.replace("x777\n", "y\n");
        assert!(
            unified_diff(("a", &many), ("b", &one)).ends_with("-x777\n+y\n x778\n x779\n x780\n")
        );
    }
}
