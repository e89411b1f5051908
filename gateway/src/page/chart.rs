//! Charts as SVG: axes with units, a mean with its range or a stack, gaps as gaps, marks on the axis of
//! time. The data is beside them for the read-out and the copies of the script.

use super::gpus::pattern;
use chrono::{Local, TimeZone as _};
use maud::{Markup, html};
use serde_json::{Value, json};

/// The place of the plot within a chart, in pixels: above it is a label, below it the axis of time.
const TOP: f64 = 12.0;
const HEIGHT: f64 = 130.0;

/// The most labels on the axis of time.
const MAX_TICKS: i64 = 7;

/// The distances of labels on the axis of time, in minutes.
const TICKS: [i64; 12] = [5, 10, 15, 30, 60, 120, 180, 360, 720, 1_440, 2_880, 7_200];

/// The buckets of time of all charts of a section.
#[derive(Debug, Clone)]
pub(super) struct Buckets {
    /// The start of the first in milliseconds since 1970.
    pub(super) from: i64,
    /// The length of each in milliseconds.
    pub(super) step: i64,
    /// Whether each has samples.
    pub(super) known: Vec<bool>,
}

/// One line, or a layer of a stack.
#[derive(Debug, Clone, Default)]
pub(super) struct Line {
    /// A name, where there are several.
    pub(super) name: Option<String>,
    /// The number of the colour of a layer.
    pub(super) colour: usize,
    pub(super) mean: Vec<Option<f64>>,
    /// The lowest and the highest values, where they are known.
    pub(super) range: Option<[Vec<Option<f64>>; 2]>,
}

/// Something that happened.
#[derive(Debug, Clone)]
pub(super) struct Mark {
    /// Milliseconds since 1970.
    pub(super) at: i64,
    pub(super) is_bad: bool,
    pub(super) text: String,
}

/// A chart.
pub(super) struct Chart<'a> {
    pub(super) title: &'a str,
    pub(super) unit: &'a str,
    /// The top of the axis if it is fixed, as 100 %.
    pub(super) top: Option<f64>,
    pub(super) buckets: &'a Buckets,
    pub(super) lines: Vec<Line>,
    pub(super) is_stack: bool,
    pub(super) marks: &'a [Mark],
    /// What the colours of a stack mean.
    pub(super) legend: Markup,
}

impl Chart<'_> {
    /// The chart with its title and its tools.
    pub(super) fn figure(&self) -> Markup {
        let top = self.top.unwrap_or_else(|| nice(self.highest()));
        let summary = self.summary();
        html! {
            figure.chart.panel data-chart=(self.data()) {
                figcaption {
                    h3 { (self.title) }
                    small { (summary) }
                    span.tools {
                        button.quiet type="button" data-copy="svg" { "Copy SVG" }
                        button.quiet type="button" data-copy="csv" { "Copy CSV" }
                    }
                }
                svg.plot role="img" tabindex="0" aria-label={ (self.title) ": " (summary) ". Arrow keys read the values." } {
                    (self.scale(top))
                    (self.gaps())
                    svg x="0" y=(TOP) width="100%" height=(HEIGHT) viewBox={ "0 0 " (self.count()) " 100" } preserveAspectRatio="none" {
                        @if self.is_stack { (self.stack(top)) } @else { (self.line(top)) }
                    }
                    (self.times())
                    (self.events())
                }
                p.readout data-own="" {}
                (self.legend)
            }
        }
    }

    fn count(&self) -> usize {
        self.buckets.known.len().max(1)
    }

    /// The highest value, of a stack the highest sum.
    fn highest(&self) -> f64 {
        let value = |line: &Line, at: usize| {
            let highest = line.range.as_ref().map_or(&line.mean, |range| &range[1]);
            highest.get(at).copied().flatten().unwrap_or_default()
        };
        let highest = (0..self.count()).map(|at| match self.is_stack {
            true => self.lines.iter().map(|line| value(line, at)).sum(),
            false => self
                .lines
                .iter()
                .map(|line| value(line, at))
                .fold(0.0, f64::max),
        });
        highest.fold(0.0, f64::max)
    }

    /// The mean and the extremes in words.
    fn summary(&self) -> String {
        let Some(line) = self.lines.first() else {
            return "no data".to_owned();
        };
        let sums = (0..self.count()).filter_map(|at| {
            let values = self
                .lines
                .iter()
                .map(|line| line.mean.get(at).copied().flatten());
            let known: Vec<f64> = values.flatten().collect();
            let is_known = !known.is_empty();
            is_known.then(|| match self.is_stack {
                true => known.iter().sum(),
                false => known[0],
            })
        });
        let sums: Vec<f64> = sums.collect();
        if sums.is_empty() {
            return "no data".to_owned();
        }
        let mean = sums.iter().sum::<f64>() / sums.len() as f64;
        let (mean, highest, unit) = (short(mean), short(self.highest()), self.unit);
        match line.range.is_some() || self.is_stack {
            true => format!("mean {mean} {unit}, highest {highest} {unit}"),
            false => format!("highest {highest} {unit}"),
        }
    }

    /// The axis of values: lines, and three of their labels.
    fn scale(&self, top: f64) -> Markup {
        html! {
            @for step in 0..=4_u32 {
                @let share = f64::from(step) / 4.0;
                @let y = TOP + (1.0 - share) * HEIGHT;
                line class=(if step == 0 { "base" } else { "rule" }) x1="0" x2="100%" y1=(y) y2=(y) {}
                @if step % 2 == 0 {
                    text x="0" y=(y - 4.0) { (short(top * share)) @if step == 4 { " " (self.unit) } }
                }
            }
        }
    }

    /// The times without samples.
    fn gaps(&self) -> Markup {
        let width = 100.0 / self.count() as f64;
        let known = &self.buckets.known;
        let mut gaps: Vec<(usize, usize)> = Vec::new();
        for (at, _) in known.iter().enumerate().filter(|(_, known)| !**known) {
            match gaps.last_mut() {
                Some((_, end)) if *end == at => *end = at + 1,
                Some(_) | None => gaps.push((at, at + 1)),
            }
        }
        html! {
            @for (start, end) in gaps {
                rect.none x={ (format!("{:.2}", width * start as f64)) "%" } y=(TOP) height=(HEIGHT)
                    width={ (format!("{:.2}", width * (end - start) as f64)) "%" } {
                    title { "no samples" }
                }
            }
        }
    }

    fn line(&self, top: f64) -> Markup {
        let Some(line) = self.lines.first() else {
            return html! {};
        };
        let values = |values: &[Option<f64>]| -> Vec<Option<f64>> {
            let scaled = values.iter().map(|it| it.map(|value| 100.0 * value / top));
            scaled.collect()
        };
        let mean = values(&line.mean);
        html! {
            @if let Some([lowest, highest]) = &line.range {
                path.band d=(area(&values(lowest), &values(highest))) {}
            }
            path.mean d=(polyline(&mean)) {}
        }
    }

    fn stack(&self, top: f64) -> Markup {
        let mut base: Vec<Option<f64>> = self
            .buckets
            .known
            .iter()
            .map(|it| it.then_some(0.0))
            .collect();
        let layers = self.lines.iter().map(|line| {
            let upper: Vec<Option<f64>> = base
                .iter()
                .enumerate()
                .map(|(at, below)| {
                    let value = line.mean.get(at).copied().flatten().unwrap_or_default();
                    below.map(|below| below + 100.0 * value / top)
                })
                .collect();
            let path = area(&base, &upper);
            base = upper;
            (line.colour, path)
        });
        let layers: Vec<(usize, String)> = layers.collect();
        html! {
            @for (colour, path) in &layers {
                path class={ "fill p" (colour) } d=(path) {}
                @if let Some(pattern) = pattern(*colour) { path class=(pattern) d=(path) {} }
            }
        }
    }

    /// The axis of time, in the time zone of the host.
    fn times(&self) -> Markup {
        let Buckets { from, step, .. } = *self.buckets;
        let length = step.saturating_mul(self.count() as i64).max(1);
        let minutes = TICKS
            .into_iter()
            .find(|it| length / (it * 60_000) < MAX_TICKS);
        let distance = minutes.unwrap_or(14_400) * 60_000;
        let zone = offset_minutes(from) * 60_000;
        let first = (from + zone).div_euclid(distance) * distance + distance - zone;
        let ticks = (0..=MAX_TICKS).map(|tick| first + tick * distance);
        let ticks =
            ticks.filter(|at| at - from < length * 97 / 100 && at - from > length * 3 / 100);
        html! {
            @for at in ticks {
                @let x = format!("{:.2}%", 100.0 * (at - from) as f64 / length as f64);
                line.rule x1=(x) x2=(x) y1=(TOP + HEIGHT) y2=(TOP + HEIGHT + 5.0) {}
                text x=(x) y=(TOP + HEIGHT + 20.0) text-anchor="middle" { (tick_label(at, distance)) }
            }
        }
    }

    /// The marks of what happened.
    fn events(&self) -> Markup {
        let Buckets { from, step, .. } = *self.buckets;
        let length = step.saturating_mul(self.count() as i64).max(1);
        let inside = self
            .marks
            .iter()
            .filter(|mark| (from..from + length).contains(&mark.at));
        html! {
            @for mark in inside {
                @let x = format!("{:.2}%", 100.0 * (mark.at - from) as f64 / length as f64);
                g {
                    title { (mark.text) }
                    line.mark.bad[mark.is_bad] x1=(x) x2=(x) y1=(TOP) y2=(TOP + HEIGHT) {}
                    circle.knob.bad[mark.is_bad] cx=(x) cy=(TOP + HEIGHT) r="4" {}
                }
            }
        }
    }

    /// The data for the script.
    fn data(&self) -> String {
        let lines: Vec<Value> = self
            .lines
            .iter()
            .map(|line| {
                let [min, max] = match &line.range {
                    Some([lowest, highest]) => [rounded(lowest), rounded(highest)],
                    None => [Value::Null, Value::Null],
                };
                json!({ "name": line.name, "mean": rounded(&line.mean), "min": min, "max": max })
            })
            .collect();
        let Buckets { from, step, .. } = *self.buckets;
        let offset = offset_minutes(from);
        json!({ "from": from, "step": step, "offset": offset, "unit": self.unit, "lines": lines })
            .to_string()
    }
}

/// The values with at most a decimal.
fn rounded(values: &[Option<f64>]) -> Value {
    let rounded = values
        .iter()
        .map(|it| it.map(|value| (value * 10.0).round() / 10.0));
    rounded.collect::<Vec<_>>().into()
}

/// A number with a decimal if it is small.
fn short(value: f64) -> String {
    match value {
        _ if value == 0.0 => "0".to_owned(),
        _ if value < 10.0 => format!("{value:.1}"),
        _ => super::format::thousands(value.round() as u64),
    }
}

/// A round number that is not lower: 1, 2, 2.5 or 5 times a power of ten.
fn nice(highest: f64) -> f64 {
    if highest <= 0.0 {
        return 1.0;
    }
    let power = 10_f64.powf(highest.log10().floor());
    let steps = [1.0, 2.0, 2.5, 5.0, 10.0];
    let step = steps.into_iter().find(|step| step * power >= highest);
    step.unwrap_or(10.0) * power
}

/// The stretches of known values: the position of each and the value.
fn stretches(values: &[Option<f64>]) -> Vec<Vec<(f64, f64)>> {
    let mut all: Vec<Vec<(f64, f64)>> = Vec::new();
    let mut is_open = false;
    for (at, value) in values.iter().enumerate() {
        let Some(value) = value else {
            is_open = false;
            continue;
        };
        if !is_open {
            all.push(Vec::new());
            is_open = true;
        }
        if let Some(stretch) = all.last_mut() {
            // In the middle of the bucket.
            stretch.push((at as f64 + 0.5, 100.0 - value.clamp(0.0, 100.0)));
        }
    }
    all
}

fn points(stretch: impl Iterator<Item = (f64, f64)>) -> String {
    let points = stretch.map(|(x, y)| format!("{x} {y:.1}"));
    points.collect::<Vec<_>>().join("L")
}

/// A line. A single value is a short stroke.
fn polyline(values: &[Option<f64>]) -> String {
    let paths = stretches(values)
        .into_iter()
        .map(|stretch| match stretch.as_slice() {
            [(x, y)] => format!("M{} {y:.1}h1", x - 0.5),
            _ => format!("M{}", points(stretch.into_iter())),
        });
    paths.collect()
}

/// The area between two lines with the same gaps. A single value is as wide as its bucket.
fn area(lower: &[Option<f64>], upper: &[Option<f64>]) -> String {
    let both = stretches(lower).into_iter().zip(stretches(upper));
    let paths = both.map(
        |(lower, upper)| match (lower.as_slice(), upper.as_slice()) {
            ([(x, low)], [(_, high)]) => {
                let (start, end) = (x - 0.5, x + 0.5);
                format!("M{start} {low:.1}L{start} {high:.1}L{end} {high:.1}L{end} {low:.1}Z")
            }
            _ => {
                let back = lower.into_iter().rev();
                format!("M{}Z", points(upper.into_iter().chain(back)))
            }
        },
    );
    paths.collect()
}

/// The offset of the host's time zone at this moment.
fn offset_minutes(at: i64) -> i64 {
    let moment = Local.timestamp_millis_opt(at).earliest();
    moment.map_or(0, |it| i64::from(it.offset().local_minus_utc()) / 60)
}

/// A time of the day; a date where labels are days.
fn tick_label(at: i64, distance: i64) -> String {
    let Some(moment) = Local.timestamp_millis_opt(at).earliest() else {
        return String::new();
    };
    let form = match distance {
        86_400_000.. => "%a %d",
        43_200_000.. => "%a %H:%M",
        _ => "%H:%M",
    };
    moment.format(form).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chart(lines: Vec<Line>, is_stack: bool, known: Vec<bool>) -> String {
        let chart = Chart {
            title: "Utilization",
            unit: "%",
            top: Some(100.0),
            buckets: &Buckets {
                from: 0,
                step: 60_000,
                known,
            },
            lines,
            is_stack,
            marks: &[Mark {
                at: 60_000,
                is_bad: true,
                text: "XID <79>".into(),
            }],
            legend: html! {},
        };
        chart.figure().into_string()
    }

    #[test]
    fn gaps_stay_gaps() {
        let mean = vec![Some(10.0), Some(20.0), None, Some(40.0)];
        let range = Some([mean.clone(), mean.clone()]);
        let line = Line {
            mean,
            range,
            ..Line::default()
        };
        let figure = chart(vec![line], false, vec![true, true, false, true]);
        // Two stretches: a line and a single bucket.
        assert!(
            figure.contains("d=\"M0.5 90.0L1.5 80.0M3 60.0h1\""),
            "{figure}"
        );
        assert!(figure.contains("class=\"none\" x=\"50.00%\""), "{figure}");
        assert!(figure.contains("width=\"25.00%\""), "{figure}");
        assert!(figure.contains("mean 23 %, highest 40 %"), "{figure}");
        assert!(figure.contains("XID &lt;79&gt;"), "{figure}");
        assert!(figure.contains("null,40.0"), "{figure}");
    }

    #[test]
    fn layers_are_stacked() {
        let layer = |name: &str, value| Line {
            name: Some(name.into()),
            colour: 5,
            mean: vec![Some(value); 2],
            range: None,
        };
        let layers = vec![layer("a", 10.0), layer("b", 20.0)];
        let figure = chart(layers, true, vec![true, true]);
        let first = "class=\"fill p5\" d=\"M0.5 90.0L1.5 90.0L1.5 100.0L0.5 100.0Z\"";
        let second = "class=\"fill p5\" d=\"M0.5 70.0L1.5 70.0L1.5 90.0L0.5 90.0Z\"";
        assert!(
            figure.contains(first) && figure.contains(second),
            "{figure}"
        );
        assert!(figure.contains("class=\"over\""), "{figure}");
    }

    #[test]
    fn axis_ends_at_a_round_number() {
        for (highest, expected) in [
            (0.0, 1.0),
            (0.7, 1.0),
            (2.1, 2.5),
            (71.0, 100.0),
            (230.0, 250.0),
            (688.0, 1_000.0),
        ] {
            assert!((nice(highest) - expected).abs() < 1e-9, "{highest}");
        }
    }
}
