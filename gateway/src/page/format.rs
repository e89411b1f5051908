//! Numbers, sizes, times and names as the pages show them.

use chrono::{DateTime, Local};
use gpukill_proto::text::format_duration;
use gpukill_proto::units::Bytes;
use maud::{Markup, html};
use std::collections::BTreeMap;
use std::time::Duration;

/// Why the fields of a document are `null`.
pub(super) type Reasons = BTreeMap<&'static str, String>;

/// A value, or why there is none: `–` is none, `n/a` not supported, `?` failed. The whole reason is the
/// tooltip.
pub(super) fn value<T>(
    value: Option<T>,
    (reasons, field): (&Reasons, &str),
    show: impl FnOnce(T) -> Markup,
) -> Markup {
    match (value, reasons.get(field)) {
        (Some(value), _) => show(value),
        (None, None) => html! { span.soft { "–" } },
        (None, Some(why)) => html! { span.soft title=(why) { (short_reason(why)) } },
    }
}

/// A value of a number with its unit.
pub(super) fn number<T: std::fmt::Display>(
    number: Option<T>,
    unit: &str,
    reasons: (&Reasons, &str),
) -> Markup {
    value(
        number,
        reasons,
        |number| html! { b { (number.to_string()) } " " (unit) },
    )
}

fn short_reason(why: &str) -> &'static str {
    match why.split(':').next().unwrap_or_default() {
        "unsupported" => "n/a",
        "withheld" => "hidden",
        "stale" => "old",
        _ => "?",
    }
}

/// GiB with one decimal: `63.1`.
pub(super) fn gib(bytes: u64) -> String {
    Bytes(bytes).gib_text()
}

/// `63.1 GiB`, or `12 MiB` of what is smaller than a tenth.
pub(super) fn size(bytes: u64) -> String {
    match bytes {
        0 => "0 GiB".to_owned(),
        1..107_374_183 => format!("{} MiB", bytes.div_ceil(1 << 20)),
        _ => format!("{} GiB", gib(bytes)),
    }
}

/// With a comma between thousands: `3,104`.
pub(super) fn thousands(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// `1 process`, `2 processes`: `several` is the word for other numbers than one.
pub(super) fn counted(number: usize, one: &str, several: &str) -> String {
    let word = if number == 1 { one } else { several };
    format!("{} {word}", thousands(number as u64))
}

/// Hours with one decimal.
pub(super) fn hours(hours: f64) -> String {
    format!("{hours:.1}")
}

/// The share of a whole, in percent.
pub(super) fn percent(part: f64, whole: f64) -> String {
    match whole > 0.0 {
        true => format!("{:.0} %", 100.0 * part / whole),
        false => "–".to_owned(),
    }
}

/// The moment of a text in RFC 3339, in the time zone of the host.
pub(super) fn local(text: &str) -> Option<DateTime<Local>> {
    let moment = DateTime::parse_from_rfc3339(text).ok()?;
    Some(moment.with_timezone(&Local))
}

/// A moment: today its time, within a week the day of the week too, else its date.
pub(super) fn moment(text: &str) -> Markup {
    let Some(at) = local(text) else {
        return html! { (text) };
    };
    let now = Local::now();
    let days = (now.date_naive() - at.date_naive()).num_days().abs();
    let shown = match days {
        0 => at.format("%H:%M:%S"),
        1..=6 => at.format("%a %H:%M"),
        _ => at.format("%Y-%m-%d %H:%M"),
    };
    let whole = at.format("%A, %Y-%m-%d %H:%M:%S %:z");
    html! { time datetime=(text) title=(whole.to_string()) { (shown.to_string()) } }
}

/// The time between two texts in RFC 3339, in its two largest units.
pub(super) fn between(from: &str, until: &str) -> String {
    let length = local(from).zip(local(until));
    let length = length.map(|(from, until)| (until - from).to_std().unwrap_or_default());
    length.map_or_else(|| "?".to_owned(), format_duration)
}

/// A length of seconds in its two largest units.
pub(super) fn seconds(seconds: f64) -> String {
    let length = Duration::try_from_secs_f64(seconds.max(0.0));
    format_duration(length.unwrap_or_default())
}

/// A text as one segment of a path.
pub(super) fn segment(text: &str) -> String {
    let mut path = String::new();
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'~' => {
                path.push(char::from(byte));
            }
            // A dot too: a browser takes `..` for the folder above.
            _ => path.push_str(&format!("%{byte:02X}")),
        }
    }
    path
}

/// The name of a GPU without its vendor, which is beside it.
pub(super) fn model(name: &str) -> &str {
    let vendors = ["NVIDIA ", "AMD ", "Intel "];
    let short = vendors.iter().find_map(|vendor| name.strip_prefix(vendor));
    short.unwrap_or(name)
}

/// A table row of a definition list.
pub(super) fn fact(name: &str, what: &Markup) -> Markup {
    html! { dt { (name) } dd { (what) } }
}

/// The head of a table: the titles of columns with their classes.
pub(super) fn columns(columns: &[(&str, &str)]) -> Markup {
    html! {
        thead { tr { @for (title, class) in columns { th scope="col" class=(class) { (title) } } } }
    }
}
