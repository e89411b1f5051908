//! Line endings. A TOML document knows one kind only, so the original endings are
//! restored here: each old line keeps its ending, and a new line gets the most frequent
//! one.

const CRLF: &str = "\r\n";

/// Returns the lines of `after`, which end in a line feed only, with their endings from
/// `before`.
pub(super) fn restore_line_endings(before: &str, after: &str) -> String {
    let old: Vec<&str> = before.split_inclusive('\n').collect();
    let long = old.iter().filter(|line| line.ends_with(CRLF)).count();
    if long == 0 {
        return after.to_owned();
    }
    let usual = if long * 2 > old.len() { CRLF } else { "\n" };
    let new: Vec<&str> = after.split_inclusive('\n').collect();
    let is_same = |(old, new): &(&&str, &&str)| strip_line_ending(old) == strip_line_ending(new);
    let first = old.iter().zip(&new).take_while(is_same).count();
    let (old_rest, new_rest) = (&old[first..], &new[first..]);
    let pairs = old_rest.iter().rev().zip(new_rest.iter().rev());
    let last = pairs.take_while(is_same).count();
    let mut restored = String::with_capacity(after.len() + new.len());
    for (position, line) in new.iter().enumerate() {
        let from_end = new.len() - position;
        let same = match (position < first, from_end <= last) {
            (true, _) => Some(old[position]),
            (false, true) => Some(old[old.len() - from_end]),
            (false, false) => None,
        };
        let end = match same {
            Some(old) if old.ends_with(CRLF) => CRLF,
            Some(_) => "\n",
            None => usual,
        };
        restored.push_str(strip_line_ending(line));
        restored.push_str(if line.ends_with('\n') { end } else { "" });
    }
    restored
}

fn strip_line_ending(line: &str) -> &str {
    let line = line.strip_suffix('\n').unwrap_or(line);
    line.strip_suffix('\r').unwrap_or(line)
}
