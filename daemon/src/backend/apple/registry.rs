//! Parses the output of `ioreg`: entries, each with its properties, one property a line.
//!
//! ```text
//! +-o AGXAcceleratorG13X  <class AGXAcceleratorG13X, id 0x10000087c, …>
//!     {
//!       "model" = "Apple M1 Pro"
//!       "PerformanceStatistics" = {"Device Utilization %"=2,"recoveryCount"=0}
//!     }
//! ```
//!
//! Properties are sorted, so the property that identifies an entry may follow the others: an entry
//! is read whole before its properties are used. Numbers are unsigned. The other output form (`-a`,
//! a property list) would need an XML parser.

use std::collections::BTreeMap;

/// Values are not nested deeper: the driver writes lists of dictionaries.
const MAX_DEPTH: usize = 8;

#[derive(Debug, Default)]
pub(super) struct RegistryEntry<'a> {
    pub(super) name: &'a str,
    /// The entry's number since the boot, such as `0x10000087c`.
    pub(super) id: Option<&'a str>,
    properties: BTreeMap<&'a str, &'a str>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum RegistryValue<'a> {
    Number(u64),
    Text(&'a str),
    List(Vec<RegistryValue<'a>>),
    Dictionary(BTreeMap<&'a str, RegistryValue<'a>>),
    /// Bytes, `Yes` and `No`, and numbers of more than 64 bits.
    Other,
}

/// The entries of a text in its order, without their tree.
pub(super) fn parse_entries(text: &str) -> impl Iterator<Item = RegistryEntry<'_>> {
    let mut lines = text.lines().map(|line| line.trim_start_matches([' ', '|']));
    let mut header = lines.by_ref().find_map(|line| line.strip_prefix("+-o "));
    std::iter::from_fn(move || {
        let mut entry = RegistryEntry::from_header(header.take()?);
        for line in lines.by_ref() {
            if let Some(next) = line.strip_prefix("+-o ") {
                header = Some(next);
                break;
            }
            entry.add_property(line);
        }
        Some(entry)
    })
}

impl<'a> RegistryEntry<'a> {
    /// Parses `Name@10  <class Name, id 0x1, registered, …>`.
    fn from_header(header: &'a str) -> Self {
        let (name, attributes) = header.split_once('<').unwrap_or((header, ""));
        let name = name.trim_end();
        let id = attributes
            .split([',', '>'])
            .find_map(|part| part.trim().strip_prefix("id "));
        Self {
            name: name.split_once('@').map_or(name, |(name, _)| name),
            id,
            properties: BTreeMap::new(),
        }
    }

    /// Parses `"key" = value`. The first value of a key counts: a process chooses its own name,
    /// which may contain lines that look like more properties.
    fn add_property(&mut self, line: &'a str) {
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

    /// A property as printed.
    pub(super) fn raw(&self, key: &str) -> Option<&'a str> {
        self.properties.get(key).copied()
    }

    /// A property that is text: `"Apple M1"`, or `<"Apple M1">` where the driver stored it as
    /// bytes. Quotes within it are not escaped.
    pub(super) fn text(&self, key: &str) -> Option<&'a str> {
        let value = self.raw(key)?;
        let bytes = value.strip_prefix('<').and_then(|it| it.strip_suffix('>'));
        bytes
            .unwrap_or(value)
            .strip_prefix('"')
            .and_then(|it| it.strip_suffix('"'))
    }

    /// A property, if its whole value can be parsed.
    pub(super) fn value(&self, key: &str) -> Option<RegistryValue<'a>> {
        let mut rest = self.raw(key)?;
        let value = take_value(&mut rest, MAX_DEPTH)?;
        rest.is_empty().then_some(value)
    }
}

impl RegistryValue<'_> {
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
fn take_value<'a>(rest: &mut &'a str, depth: usize) -> Option<RegistryValue<'a>> {
    let depth = depth.checked_sub(1)?;
    if let Some(text) = take_quoted(rest) {
        return Some(RegistryValue::Text(text));
    }
    if take_char(rest, '{') {
        let mut all = BTreeMap::new();
        while !take_char(rest, '}') {
            let key = take_quoted(rest)?;
            if !take_char(rest, '=') {
                return None;
            }
            all.insert(key, take_value(rest, depth)?);
            take_separator(rest, '}')?;
        }
        return Some(RegistryValue::Dictionary(all));
    }
    if take_char(rest, '(') {
        let mut all = Vec::new();
        while !take_char(rest, ')') {
            all.push(take_value(rest, depth)?);
            take_separator(rest, ')')?;
        }
        return Some(RegistryValue::List(all));
    }
    if take_char(rest, '<') {
        let (_, after) = rest.split_once('>')?;
        *rest = after;
        return Some(RegistryValue::Other);
    }
    let end = rest.find([',', '}', ')']).unwrap_or(rest.len());
    let (word, after) = rest.split_at(end);
    *rest = after;
    if word.is_empty() {
        return None;
    }
    Some(
        word.parse()
            .map_or(RegistryValue::Other, RegistryValue::Number),
    )
}

/// Takes a comma, or checks that the end comes next.
fn take_separator(rest: &mut &str, end: char) -> Option<()> {
    (take_char(rest, ',') || rest.starts_with(end)).then_some(())
}

fn take_quoted<'a>(rest: &mut &'a str) -> Option<&'a str> {
    let (text, after) = rest.strip_prefix('"')?.split_once('"')?;
    *rest = after;
    Some(text)
}

fn take_char(rest: &mut &str, expected: char) -> bool {
    let after = rest.strip_prefix(expected);
    *rest = after.unwrap_or(rest);
    after.is_some()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn parse_property(text: &str) -> Option<RegistryValue<'_>> {
        let line = format!("\"key\" = {text}");
        let line: &str = Box::leak(line.into_boxed_str());
        let mut entry = RegistryEntry::default();
        entry.add_property(line);
        entry.value("key")
    }

    #[test]
    fn values_parse_whole_or_not_at_all() {
        let number = RegistryValue::Number;
        for (text, expected) in [
            ("0", Some(number(0))),
            ("18446744073709551615", Some(number(u64::MAX))),
            ("18446744073709551616", Some(RegistryValue::Other)),
            ("Yes", Some(RegistryValue::Other)),
            ("<6b100000>", Some(RegistryValue::Other)),
            ("\"a, b\"", Some(RegistryValue::Text("a, b"))),
            ("()", Some(RegistryValue::List(vec![]))),
            ("{}", Some(RegistryValue::Dictionary(BTreeMap::new()))),
            (
                "(1,(2))",
                Some(RegistryValue::List(vec![
                    number(1),
                    RegistryValue::List(vec![number(2)]),
                ])),
            ),
            (
                "{\"a,b\"=1,\"c\"={\"d\"=\"e\"}}",
                Some(RegistryValue::Dictionary(BTreeMap::from([
                    ("a,b", number(1)),
                    (
                        "c",
                        RegistryValue::Dictionary(BTreeMap::from([(
                            "d",
                            RegistryValue::Text("e"),
                        )])),
                    ),
                ]))),
            ),
            ("", None),
            ("{\"a\"=1", None),
            ("{\"a\"=1}x", None),
            ("{\"a\"}", None),
            ("(1,2", None),
            (
                "(1 2)",
                Some(RegistryValue::List(vec![RegistryValue::Other])),
            ),
            ("((((((((((1))))))))))", None),
        ] {
            assert_eq!(parse_property(text), expected, "{text}");
        }
    }

    #[test]
    fn entries_keep_their_own_properties() {
        let text = "noise\n\
            +-o One@0  <class One, id 0x1a, registered, busy 0 (17 ms)>\n  | {\n  |   \"b\" = 1\n  | }\n  | \n\
            \x20 +-o Two  <class Two>\n  |   {\n  |     \"b\" = 2\n  |     \"b\" = 3\n";
        let found: Vec<_> = parse_entries(text)
            .map(|entry| (entry.name, entry.id, entry.raw("b")))
            .collect();
        assert_eq!(
            found,
            [("One", Some("0x1a"), Some("1")), ("Two", None, Some("2"))]
        );
    }

    #[test]
    fn text_is_read_from_strings_and_bytes() {
        let entry = parse_entries(
            "+-o X\n\"a\" = \"Apple M1\"\n\"b\" = <\"Apple M2\">\n\"c\" = <41>\n\"d\" = 1",
        )
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
        fn any_text_parses_without_panic(text in "[-+o|{}()<>\"=,a1\n ]{0,200}") {
            for entry in parse_entries(&text) {
                for key in ["", "a", "1"] {
                    let _ = (entry.text(key), entry.value(key));
                }
            }
        }
    }
}
