//! What rules say, field by field, and what is wrong with them.

mod fields;

mod values;

mod mistakes;

use super::*;
use crate::guard::rules::GpuSelector;

fn texts(names: &[&str]) -> Vec<String> {
    names.iter().map(ToString::to_string).collect()
}

fn gpus(names: &[&str]) -> Vec<GpuSelector> {
    texts(names).into_iter().map(GpuSelector).collect()
}

fn read_well(text: &str) -> Rules {
    let rules = read(text).unwrap_or_else(|mistakes| panic!("{}", told(&mistakes).join("\n")));
    Rules {
        places: BTreeMap::new(),
        ..rules
    }
}

fn told(mistakes: &[Mistake]) -> Vec<String> {
    mistakes.iter().map(ToString::to_string).collect()
}

/// What is wrong with a text.
fn wrong(text: &str) -> Vec<String> {
    match read(text) {
        Ok(rules) => panic!("nothing is wrong with {rules:#?}"),
        Err(mistakes) => told(&mistakes),
    }
}
