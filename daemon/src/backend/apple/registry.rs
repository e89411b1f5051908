//! What `ioreg` prints: entries, each with its properties, one on a line.
//!
//! ```text
//! +-o AGXAcceleratorG13X  <class AGXAcceleratorG13X, id 0x10000087c, …>
//!     {
//!       "model" = "Apple M1 Pro"
//!       "PerformanceStatistics" = {"Device Utilization %"=2,"recoveryCount"=0}
//!     }
//! ```
//!
//! Properties are sorted, so that what names an entry may come after what it
//! holds: an entry is whole before anything of it is looked at. Numbers are not
//! signed. Its other form (`-a`, a property list) would need a parser of XML.

use std::collections::BTreeMap;

/// Values are nested no deeper: the driver writes lists of dictionaries.
const DEEPEST: usize = 8;

/// One entry.
#[derive(Debug, Default)]
pub(super) struct Entry<'a> {
    pub(super) name: &'a str,
    /// The number of it since the boot: `0x10000087c`.
    pub(super) id: Option<&'a str>,
    properties: BTreeMap<&'a str, &'a str>,
}

/// The value of a property.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Value<'a> {
    Number(u64),
    Text(&'a str),
    List(Vec<Value<'a>>),
    Dictionary(BTreeMap<&'a str, Value<'a>>),
    /// Bytes, `Yes` and `No`, numbers of more than 64 bits.
    Other,
}

/// The entries of a text, in its order, whatever tree they are drawn as.
pub(super) fn entries(text: &str) -> impl Iterator<Item = Entry<'_>> {
    let mut lines = text.lines().map(|line| line.trim_start_matches([' ', '|']));
    let mut header = lines.by_ref().find_map(|line| line.strip_prefix("+-o "));
    std::iter::from_fn(move || {
        let mut entry = Entry::headed(header.take()?);
        for line in lines.by_ref() {
            if let Some(next) = line.strip_prefix("+-o ") {
                header = Some(next);
                break;
            }
            entry.learn(line);
        }
        Some(entry)
    })
}

impl<'a> Entry<'a> {
    /// `Name@10  <class Name, id 0x1, registered, …>`
    fn headed(header: &'a str) -> Self {
        let (name, about) = header.split_once('<').unwrap_or((header, ""));
        let name = name.trim_end();
        let id = about
            .split([',', '>'])
            .find_map(|part| part.trim().strip_prefix("id "));
        Self {
            name: name.split_once('@').map_or(name, |(name, _)| name),
            id,
            properties: BTreeMap::new(),
        }
    }

    /// `"key" = value`. The first of a key counts: a process chooses its name, which
    /// may have lines in it that look like more properties.
    fn learn(&mut self, line: &'a str) {
        let property = line
            .strip_prefix('"')
            .and_then(|rest| rest.split_once("\" = "));
        if let Some((key, value)) = property {
            self.properties.entry(key).or_insert(value.trim_end());
        }
    }

    pub(super) fn has(&self, key: &str) -> bool {
        self.properties.contains_key(key)
    }

    /// A property as it is printed.
    pub(super) fn raw(&self, key: &str) -> Option<&'a str> {
        self.properties.get(key).copied()
    }

    /// A property that is text: `"Apple M1"`, or `<"Apple M1">` where its maker
    /// stored it as bytes. Quotes within it are not escaped.
    pub(super) fn text(&self, key: &str) -> Option<&'a str> {
        let value = self.raw(key)?;
        let bytes = value.strip_prefix('<').and_then(|it| it.strip_suffix('>'));
        bytes
            .unwrap_or(value)
            .strip_prefix('"')
            .and_then(|it| it.strip_suffix('"'))
    }

    /// A property that is understood whole.
    pub(super) fn value(&self, key: &str) -> Option<Value<'a>> {
        let mut rest = self.raw(key)?;
        let value = value(&mut rest, DEEPEST)?;
        rest.is_empty().then_some(value)
    }
}

impl Value<'_> {
    /// A number of a dictionary.
    pub(super) fn number(&self, key: &str) -> Option<u64> {
        let Self::Dictionary(entries) = self else {
            return None;
        };
        match entries.get(key)? {
            Self::Number(number) => Some(*number),
            Self::Text(_) | Self::List(_) | Self::Dictionary(_) | Self::Other => None,
        }
    }
}

/// Takes a value off the front of `rest`.
fn value<'a>(rest: &mut &'a str, depth: usize) -> Option<Value<'a>> {
    let depth = depth.checked_sub(1)?;
    if let Some(text) = quoted(rest) {
        return Some(Value::Text(text));
    }
    if take(rest, '{') {
        let mut all = BTreeMap::new();
        while !take(rest, '}') {
            let key = quoted(rest)?;
            if !take(rest, '=') {
                return None;
            }
            all.insert(key, value(rest, depth)?);
            separate(rest, '}')?;
        }
        return Some(Value::Dictionary(all));
    }
    if take(rest, '(') {
        let mut all = Vec::new();
        while !take(rest, ')') {
            all.push(value(rest, depth)?);
            separate(rest, ')')?;
        }
        return Some(Value::List(all));
    }
    if take(rest, '<') {
        let (_, after) = rest.split_once('>')?;
        *rest = after;
        return Some(Value::Other);
    }
    let end = rest.find([',', '}', ')']).unwrap_or(rest.len());
    let (word, after) = rest.split_at(end);
    *rest = after;
    if word.is_empty() {
        return None;
    }
    Some(word.parse().map_or(Value::Other, Value::Number))
}

/// A comma, or the end that comes next.
fn separate(rest: &mut &str, end: char) -> Option<()> {
    (take(rest, ',') || rest.starts_with(end)).then_some(())
}

fn quoted<'a>(rest: &mut &'a str) -> Option<&'a str> {
    let (text, after) = rest.strip_prefix('"')?.split_once('"')?;
    *rest = after;
    Some(text)
}

fn take(rest: &mut &str, expected: char) -> bool {
    let after = rest.strip_prefix(expected);
    *rest = after.unwrap_or(rest);
    after.is_some()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn parsed(text: &str) -> Option<Value<'_>> {
        let line = format!("\"key\" = {text}");
        let line: &str = Box::leak(line.into_boxed_str());
        let mut entry = Entry::default();
        entry.learn(line);
        entry.value("key")
    }

    #[test]
    fn a_value_is_understood_whole_or_not_at_all() {
        let number = Value::Number;
        for (text, expected) in [
            ("0", Some(number(0))),
            ("18446744073709551615", Some(number(u64::MAX))),
            ("18446744073709551616", Some(Value::Other)),
            ("Yes", Some(Value::Other)),
            ("<6b100000>", Some(Value::Other)),
            ("\"a, b\"", Some(Value::Text("a, b"))),
            ("()", Some(Value::List(vec![]))),
            ("{}", Some(Value::Dictionary(BTreeMap::new()))),
            (
                "(1,(2))",
                Some(Value::List(vec![number(1), Value::List(vec![number(2)])])),
            ),
            (
                "{\"a,b\"=1,\"c\"={\"d\"=\"e\"}}",
                Some(Value::Dictionary(BTreeMap::from([
                    ("a,b", number(1)),
                    (
                        "c",
                        Value::Dictionary(BTreeMap::from([("d", Value::Text("e"))])),
                    ),
                ]))),
            ),
            ("", None),
            ("{\"a\"=1", None),
            ("{\"a\"=1}x", None),
            ("{\"a\"}", None),
            ("(1,2", None),
            ("(1 2)", Some(Value::List(vec![Value::Other]))),
            ("((((((((((1))))))))))", None),
        ] {
            assert_eq!(parsed(text), expected, "{text}");
        }
    }

    #[test]
    fn entries_are_found_in_any_tree_and_keep_their_own_properties() {
        let text = "noise\n\
            +-o One@0  <class One, id 0x1a, registered, busy 0 (17 ms)>\n  | {\n  |   \"b\" = 1\n  | }\n  | \n\
            \x20 +-o Two  <class Two>\n  |   {\n  |     \"b\" = 2\n  |     \"b\" = 3\n";
        let found: Vec<_> = entries(text)
            .map(|entry| (entry.name, entry.id, entry.raw("b")))
            .collect();
        assert_eq!(
            found,
            [("One", Some("0x1a"), Some("1")), ("Two", None, Some("2"))]
        );
    }

    #[test]
    fn text_is_text_however_it_is_stored() {
        let entry =
            entries("+-o X\n\"a\" = \"Apple M1\"\n\"b\" = <\"Apple M2\">\n\"c\" = <41>\n\"d\" = 1")
                .next()
                .unwrap();
        let texts = ["a", "b", "c", "d", "e"].map(|key| entry.text(key));
        assert_eq!(
            texts,
            [Some("Apple M1"), Some("Apple M2"), None, None, None]
        );
    }

    proptest! {
        #[test]
        fn no_text_can_panic_it(text in "[-+o|{}()<>\"=,a1\n ]{0,200}") {
            for entry in entries(&text) {
                for key in ["", "a", "1"] {
                    let _ = (entry.text(key), entry.value(key));
                }
            }
        }
    }
}
