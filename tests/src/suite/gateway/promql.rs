//! The metrics and labels that a PromQL expression names. It refuses words that it does not know, so
//! that a mistyped function is no metric.

use std::collections::{BTreeMap, BTreeSet};

/// What an expression names.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct QueryNames {
    /// The labels that select series of each metric.
    pub(super) metrics: BTreeMap<String, BTreeSet<String>>,
    /// The labels of `by`, `on`, `group_left` and similar.
    pub(super) grouping: BTreeSet<String>,
}

/// Words before a list of labels.
const GROUPING: [&str; 6] = [
    "by",
    "without",
    "on",
    "ignoring",
    "group_left",
    "group_right",
];

/// Words between expressions.
const OPERATORS: [&str; 5] = ["and", "or", "unless", "offset", "bool"];

/// The functions in our queries; labels may stand between their name and their argument.
const FUNCTIONS: [&str; 14] = [
    "avg",
    "count",
    "histogram_quantile",
    "increase",
    "label_values",
    "max",
    "max_over_time",
    "min",
    "min_over_time",
    "rate",
    "sum",
    "time",
    "topk",
    "vector",
];

/// A part of an expression. Texts, numbers and ranges of time name nothing.
#[derive(Debug, PartialEq, Eq)]
enum Token {
    Word(String),
    Sign(char),
}

/// What this expression names.
///
/// # Panics
/// When it has an unknown word before a parenthesis.
pub(super) fn query_names(query: &str) -> QueryNames {
    let mut names = QueryNames::default();
    let mut tokens = tokens(query).into_iter().peekable();
    while let Some(token) = tokens.next() {
        let Token::Word(word) = token else { continue };
        let is_one_of = |words: &[&str]| words.contains(&word.as_str());
        if is_one_of(&FUNCTIONS) || is_one_of(&OPERATORS) {
            continue;
        }
        let next = tokens.peek();
        if is_one_of(&GROUPING) {
            if next == Some(&Token::Sign('(')) {
                names.grouping.extend(words_until(')', &mut tokens));
            }
            continue;
        }
        assert_ne!(next, Some(&Token::Sign('(')), "{word} in {query}");
        let has_matchers = next == Some(&Token::Sign('{'));
        let labels = names.metrics.entry(word).or_default();
        if has_matchers {
            labels.extend(words_until('}', &mut tokens));
        }
    }
    names
}

/// The words up to this sign.
fn words_until(end: char, tokens: &mut impl Iterator<Item = Token>) -> Vec<String> {
    let inside = tokens.take_while(|token| *token != Token::Sign(end));
    let words = inside.filter_map(|token| match token {
        Token::Word(word) => Some(word),
        Token::Sign(_) => None,
    });
    words.collect()
}

fn tokens(query: &str) -> Vec<Token> {
    let mut found = Vec::new();
    let mut chars = query.chars().peekable();
    let is_word = |c: &char| c.is_ascii_alphanumeric() || matches!(c, '_' | ':');
    while let Some(first) = chars.next() {
        match first {
            '"' => {
                while let Some(c) = chars.next().filter(|c| *c != '"') {
                    if c == '\\' {
                        chars.next();
                    }
                }
            }
            '[' => while chars.next().is_some_and(|c| c != ']') {},
            _ if first.is_ascii_digit() => {
                while chars.next_if(|c| is_word(c) || *c == '.').is_some() {}
            }
            _ if is_word(&first) => {
                let mut word = String::from(first);
                while let Some(c) = chars.next_if(is_word) {
                    word.push(c);
                }
                found.push(Token::Word(word));
            }
            _ if first.is_whitespace() => {}
            _ => found.push(Token::Sign(first)),
        }
    }
    found
}

#[test]
fn names_in_queries_are_found() {
    for (query, expected) in [
        ("a", "a{} by "),
        (
            "sum by (user, gpu) (rate(a_total{b=~\"x|y\", c!=\"\\\"}\"}[5m]))",
            "a_total{b,c} by gpu,user",
        ),
        (
            "x:y{i=\"1\"} * on (uuid) group_left (name) z > 2e9 and z offset 2h",
            "x:y{i} z{} by name,uuid",
        ),
        (
            "histogram_quantile(0.99, sum by (le) (b_bucket)) or vector(0)",
            "b_bucket{} by le",
        ),
    ] {
        let names = query_names(query);
        let list = |labels: &BTreeSet<String>| labels.iter().cloned().collect::<Vec<_>>().join(",");
        let metrics = names.metrics.iter();
        let metrics: Vec<String> = metrics
            .map(|(name, labels)| format!("{name}{{{}}}", list(labels)))
            .collect();
        let found = format!("{} by {}", metrics.join(" "), list(&names.grouping));
        assert_eq!(found, expected, "{query}");
    }
}
