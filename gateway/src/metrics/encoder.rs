//! The list of metrics, written in one of two text formats, Prometheus 0.0.4 and OpenMetrics 1.0.0,
//! or collected for another encoding.

use gpukill_proto::text::sanitize;
use std::fmt::Write as _;

/// The longest value of a label in bytes.
pub(super) const MAX_LABEL: usize = 128;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TextFormat {
    /// Prometheus 0.0.4.
    Prometheus,
    /// OpenMetrics 1.0.0.
    OpenMetrics,
}

impl TextFormat {
    pub(crate) const fn media_type(self) -> &'static str {
        match self {
            Self::Prometheus => "text/plain; version=0.0.4; charset=utf-8",
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A value that goes up and down.
    Gauge,
    /// A value that only grows; its name ends with `_total`.
    Counter,
    /// Counts of observations in buckets.
    Histogram,
}

impl Kind {
    const fn name(self) -> &'static str {
        match self {
            Self::Gauge => "gauge",
            Self::Counter => "counter",
            Self::Histogram => "histogram",
        }
    }
}

/// One value of a metric.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Sample {
    /// What follows the name of the metric: `_bucket` of a histogram, else nothing.
    suffix: &'static str,
    /// Names and values of the labels.
    pub(crate) labels: Vec<(&'static str, String)>,
    pub(crate) value: f64,
}

impl Sample {
    /// A value without labels.
    pub(crate) fn plain(value: f64) -> Self {
        Self::new(Vec::new(), value)
    }

    /// A value with labels. The value of a label may be any text.
    pub(crate) fn new(labels: Vec<(&'static str, String)>, value: f64) -> Self {
        Self {
            suffix: "",
            labels,
            value,
        }
    }

    /// The same value with a suffix of the name.
    pub(crate) fn with_suffix(mut self, suffix: &'static str) -> Self {
        self.suffix = suffix;
        self
    }

    /// The same value with the values of its labels as they are written.
    fn with_short_labels(mut self) -> Self {
        for (_, value) in &mut self.labels {
            *value = sanitize(value.as_bytes(), MAX_LABEL);
        }
        self
    }
}

/// A metric with all its values.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Family {
    /// The name that Prometheus knows.
    pub(crate) name: String,
    pub(crate) kind: Kind,
    pub(crate) help: String,
    /// The values, at least one.
    pub(crate) samples: Vec<Sample>,
}

/// A text, or a list, that metrics are added to.
#[derive(Debug)]
pub(crate) struct Encoder {
    format: TextFormat,
    text: String,
    /// Takes the metrics in place of the text.
    families: Option<Vec<Family>>,
}

impl Encoder {
    /// An empty text.
    pub(crate) fn new(format: TextFormat) -> Self {
        Self {
            format,
            text: String::new(),
            families: None,
        }
    }

    /// The metrics that `add` adds, not encoded.
    pub(crate) fn collect(add: impl FnOnce(&mut Self)) -> Vec<Family> {
        let mut encoder = Self::new(TextFormat::Prometheus);
        encoder.families = Some(Vec::new());
        add(&mut encoder);
        encoder.families.unwrap_or_default()
    }

    /// Adds a metric with its values; nothing if there are none. `help` has neither line breaks nor
    /// backslashes.
    pub(crate) fn family(
        &mut self,
        name: &str,
        kind: Kind,
        help: &str,
        samples: impl IntoIterator<Item = Sample>,
    ) {
        let mut samples = samples.into_iter().peekable();
        if samples.peek().is_none() {
            return;
        }
        if let Some(families) = &mut self.families {
            families.push(Family {
                name: name.to_owned(),
                kind,
                help: help.to_owned(),
                samples: samples.map(Sample::with_short_labels).collect(),
            });
            return;
        }
        let family = match self.format {
            TextFormat::OpenMetrics => name.strip_suffix("_total").unwrap_or(name),
            TextFormat::Prometheus => name,
        };
        let text = &mut self.text;
        // Writing to memory does not fail.
        let _ = writeln!(text, "# HELP {family} {help}");
        let _ = writeln!(text, "# TYPE {family} {}", kind.name());
        for sample in samples {
            let _ = write!(text, "{name}{}", sample.suffix);
            for (at, (label, value)) in sample.labels.iter().enumerate() {
                let before = if at == 0 { '{' } else { ',' };
                let _ = write!(text, "{before}{label}=\"");
                push_label(text, value);
                text.push('"');
            }
            if !sample.labels.is_empty() {
                text.push('}');
            }
            let _ = writeln!(text, " {}", sample.value);
        }
    }

    pub(crate) fn finish(mut self) -> String {
        if self.format == TextFormat::OpenMetrics {
            self.text.push_str("# EOF\n");
        }
        self.text
    }
}

/// Adds the value of a label: shortened, with visible control characters, escaped.
fn push_label(text: &mut String, value: &str) {
    for c in sanitize(value.as_bytes(), MAX_LABEL).chars() {
        match c {
            '\\' => text.push_str("\\\\"),
            '"' => text.push_str("\\\""),
            '\n' => text.push_str("\\n"),
            other => text.push(other),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn encoded(format: TextFormat) -> String {
        let mut encoder = Encoder::new(format);
        encoder.family(
            "x_polls_total",
            Kind::Counter,
            "Polls.",
            [Sample::plain(7.0)],
        );
        encoder.family("x_none", Kind::Gauge, "Nothing.", []);
        let labels = vec![
            ("gpu", "0".to_owned()),
            ("name", "a\"b\\c\nd\u{1b}é".to_owned()),
        ];
        encoder.family(
            "x_ratio",
            Kind::Gauge,
            "A share.",
            [Sample::new(labels, 0.25)],
        );
        encoder.finish()
    }

    #[test]
    fn formats_differ_in_counters_and_end() {
        let ratio = "# HELP x_ratio A share.\n# TYPE x_ratio gauge\n\
                     x_ratio{gpu=\"0\",name=\"a\\\"b\\\\c\\\\x0ad\\\\x1bé\"} 0.25\n";
        assert_eq!(
            encoded(TextFormat::Prometheus),
            format!(
                "# HELP x_polls_total Polls.\n# TYPE x_polls_total counter\nx_polls_total 7\n{ratio}"
            )
        );
        assert_eq!(
            encoded(TextFormat::OpenMetrics),
            format!(
                "# HELP x_polls Polls.\n# TYPE x_polls counter\nx_polls_total 7\n{ratio}# EOF\n"
            )
        );
    }

    #[test]
    fn collected_metrics_have_the_labels_of_the_text() {
        let families = Encoder::collect(|encoder| {
            encoder.family("x_none", Kind::Gauge, "Nothing.", []);
            let labels = vec![("name", format!("a\n{}", "x".repeat(1_000)))];
            let sample = Sample::new(labels, 0.25);
            encoder.family("x_ratio", Kind::Gauge, "A share.", [sample]);
        });
        assert_eq!(families.len(), 1);
        assert_eq!(
            (families[0].name.as_str(), families[0].kind),
            ("x_ratio", Kind::Gauge)
        );
        let [sample] = &families[0].samples[..] else {
            panic!("{families:?}");
        };
        let (name, value) = &sample.labels[0];
        assert_eq!((*name, sample.value), ("name", 0.25));
        assert!(
            value.starts_with("a\\x0axx") && value.len() <= MAX_LABEL,
            "{value}"
        );
    }

    #[test]
    fn long_labels_are_cut() {
        let mut text = String::new();
        push_label(&mut text, &"x".repeat(1_000));
        assert!(text.len() <= MAX_LABEL && text.ends_with('…'), "{text}");
    }
}
