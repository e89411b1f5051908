//! What each key means, and the mistakes of wrong texts.

mod fields;
mod mistakes;
mod values;

use super::*;
use crate::guard::rules::GpuSelector;

fn texts(names: &[&str]) -> Vec<String> {
    names.iter().map(ToString::to_string).collect()
}

fn gpus(names: &[&str]) -> Vec<GpuSelector> {
    texts(names).into_iter().map(GpuSelector).collect()
}

fn parse_valid(text: &str) -> RuleSet {
    let rules =
        parse(text).unwrap_or_else(|mistakes| panic!("{}", mistake_texts(&mistakes).join("\n")));
    RuleSet {
        positions: BTreeMap::new(),
        ..rules
    }
}

fn mistake_texts(mistakes: &[RuleMistake]) -> Vec<String> {
    mistakes.iter().map(ToString::to_string).collect()
}

fn mistakes_in(text: &str) -> Vec<String> {
    match parse(text) {
        Ok(rules) => panic!("nothing is wrong with {rules:#?}"),
        Err(mistakes) => mistake_texts(&mistakes),
    }
}
