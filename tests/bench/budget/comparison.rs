//! Compares counts with their budgets.

use std::collections::BTreeMap;

/// One measured count.
pub(crate) struct Count {
    /// The key in the file of budgets.
    pub(crate) key: String,
    /// `None` where this machine cannot measure it.
    pub(crate) value: Option<u64>,
}

impl Count {
    pub(crate) fn new(key: impl Into<String>, value: u64) -> Self {
        Self {
            key: key.into(),
            value: Some(value),
        }
    }

    pub(crate) fn skipped(key: impl Into<String>) -> Self {
        Self {
            key: key.into(),
            value: None,
        }
    }
}

/// The maximum of each count, by its key.
pub(crate) struct Budgets(BTreeMap<String, u64>);

/// Counts compared with their budgets.
pub(crate) struct Comparison {
    /// One line for each count.
    pub(crate) table: String,
    /// The failures: counts that exceed their budgets, counts without a budget, budgets without
    /// a count.
    pub(crate) failures: Vec<String>,
}

impl Budgets {
    /// Parses a file of budgets.
    ///
    /// # Errors
    /// When it is not TOML, or a value is not a whole number of at least zero.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let budgets = toml::from_str(text);
        budgets.map(Self).map_err(|error| error.to_string())
    }

    /// Compares all counts. Every budget must have a count, so that a misspelt key does not
    /// leave a count without a limit.
    pub(crate) fn compare(&self, counts: &[Count]) -> Comparison {
        let mut failures = Vec::new();
        let mut table = format!("{:<36} {:>14} {:>14}\n", "count", "measured", "budget");
        for Count { key, value } in counts {
            let budget = self.0.get(key).copied();
            let mut remark = "";
            match (*value, budget) {
                (_, None) => failures.push(format!("{key} has no budget")),
                (Some(value), Some(budget)) if value > budget => {
                    remark = "  beyond its budget";
                    failures.push(format!(
                        "{key} is {}, beyond its budget of {}",
                        format_grouped(value),
                        format_grouped(budget)
                    ));
                }
                (Some(_) | None, Some(_)) => {}
            }
            let measured = value.map_or_else(|| "skipped".to_owned(), format_grouped);
            let budget = budget.map_or_else(|| "none".to_owned(), format_grouped);
            table += &format!("{key:<36} {measured:>14} {budget:>14}{remark}\n");
        }
        let unknown = self.0.keys();
        let unknown = unknown.filter(|key| counts.iter().all(|count| count.key != **key));
        failures.extend(unknown.map(|key| format!("{key} has a budget, but nothing counts it")));
        Comparison { table, failures }
    }
}

/// Formats a number, such as `1,037,395`.
pub(crate) fn format_grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut grouped = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}
