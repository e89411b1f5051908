//! The choice of columns, as `--columns` and the settings write it.

use crate::output::style::OutputStyle;
use crate::output::table::Table;
use crate::output::text::{Line, Tone, wrapped_lines};
use gpukill_proto::settings::value::choice_error;

/// A column that can be requested by name.
pub(crate) trait NamedColumn: Sized + 'static {
    /// All columns, in their order.
    const ALL: &'static [Self];
    /// The columns of a table without a request.
    const DEFAULT: &'static [Self];

    /// The name: lower case, with underscores.
    fn name(&self) -> &'static str;
}

/// The requested columns of a table.
#[derive(Debug, Clone)]
pub(crate) enum ColumnChoice<C: 'static> {
    /// The default columns that have content, then these.
    DefaultAnd(Vec<&'static C>),
    /// These only.
    Only(Vec<&'static C>),
}

impl<C: NamedColumn> Default for ColumnChoice<C> {
    fn default() -> Self {
        Self::DefaultAnd(Vec::new())
    }
}

impl<C: NamedColumn> ColumnChoice<C> {
    /// The columns that a table shows. `is_needed` reports whether a default column with this
    /// name has content.
    pub(crate) fn shown(&self, is_needed: impl Fn(&'static str) -> bool) -> Vec<&'static C> {
        let usual = match self {
            Self::DefaultAnd(_) => C::DEFAULT,
            Self::Only(_) => &[],
        };
        let (Self::DefaultAnd(requested) | Self::Only(requested)) = self;
        let has = |columns: &[&C], name| columns.iter().any(|it| it.name() == name);
        let usual = usual.iter().filter(|column| {
            let name = column.name();
            is_needed(name) || has(requested, name)
        });
        let mut shown: Vec<&C> = usual.collect();
        for column in requested {
            if !has(&shown, column.name()) {
                shown.push(column);
            }
        }
        shown
    }

    fn requested(&self) -> &[&'static C] {
        let (Self::DefaultAnd(requested) | Self::Only(requested)) = self;
        requested
    }

    pub(crate) fn has_requested(&self, name: &str) -> bool {
        self.requested().iter().any(|column| column.name() == name)
    }

    /// Lines that name the requested columns for which `table` has no room. `shown` are the
    /// columns of the table.
    pub(crate) fn dropped_lines(
        &self,
        table: &Table,
        shown: &[&'static C],
        style: &OutputStyle,
    ) -> Vec<Line> {
        if !self.is_request() {
            return Vec::new();
        }
        let dropped = table.dropped_columns(style).into_iter();
        let names = dropped.filter_map(|at| Some(shown.get(at)?.name()));
        let names: Vec<&str> = names.filter(|name| self.has_requested(name)).collect();
        if names.is_empty() {
            return Vec::new();
        }
        let text = format!(
            "no room for {}: add --width {}, or request fewer columns",
            names.join(", "),
            table.full_width()
        );
        let lines = wrapped_lines(&text, Tone::Doubtful, style);
        std::iter::once(Line::default()).chain(lines).collect()
    }

    pub(crate) fn is_request(&self) -> bool {
        !matches!(self, Self::DefaultAnd(more) if more.is_empty())
    }
}

/// Parses the requested columns: `gpu,name,fan`, or `+fan,pstate` to add to the default ones.
///
/// # Errors
/// The name that no column has, and the names that there are.
pub(crate) fn parse_columns<C: NamedColumn>(text: &str) -> Result<ColumnChoice<C>, String> {
    let (added, names) = match text.strip_prefix('+') {
        Some(added) => (true, added),
        None => (false, text),
    };
    let mut chosen: Vec<&C> = Vec::new();
    for name in names.split(',').map(str::trim) {
        let Some(column) = C::ALL.iter().find(|column| column.name() == name) else {
            let names: Vec<&str> = C::ALL.iter().map(C::name).collect();
            return Err(choice_error(&format!("column {name:?}"), &names));
        };
        if !chosen.iter().any(|it| it.name() == name) {
            chosen.push(column);
        }
    }
    Ok(match added {
        true => ColumnChoice::DefaultAnd(chosen),
        false => ColumnChoice::Only(chosen),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::list::gpus::columns::GpuColumn;

    fn names(text: &str) -> Vec<&'static str> {
        let choice: ColumnChoice<GpuColumn> = parse_columns(text).expect("the columns exist");
        let shown = choice.shown(|name| !matches!(name, "age" | "containers"));
        shown.iter().map(|column| column.name()).collect()
    }

    #[test]
    fn requested_columns_follow_the_default_ones_or_replace_them() {
        let usual = [
            "gpu", "name", "bar", "memory", "util", "temp", "power", "ecc", "procs", "top",
        ];
        assert_eq!(names("fan,gpu,fan"), ["fan", "gpu"]);
        assert_eq!(names("+fan, gpu"), [&usual[..], &["fan"]].concat());
        // A default column without content, in its place.
        assert_eq!(names("+containers")[8..], ["procs", "containers", "top"]);
    }
}
