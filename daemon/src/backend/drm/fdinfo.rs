//! Parses the kernel's report on one open descriptor of a DRM device: `/proc/PID/fdinfo/FD` (kernel
//! documentation, gpu/drm-usage-stats).
//!
//! Only parses: [`super::engines`] interprets the names. The keys that amdgpu used before the
//! standard (Linux 5.14 to 5.18) are not supported.

pub(crate) mod fuzz_api;

use gpukill_proto::reading::Reading;
use gpukill_proto::text::sanitize;
use std::collections::BTreeMap;

/// No driver writes a longer text, more engines or regions, or longer names: the longest known text
/// has 2 KiB and 20 engines. A client with a larger report exists, but its activity is unknown.
pub(crate) const TEXT_MAX: usize = 64 * 1024;
const ENGINES_MAX: usize = 64;
const REGIONS_MAX: usize = 32;
const NAME_MAX: usize = 64;

const TOO_LONG: &str = "its fdinfo is longer than 64 KiB";
const TOO_MANY_ENGINES: &str = "its driver reports more than 64 engines";
const TOO_MANY_REGIONS: &str = "its driver reports more than 32 memory regions";

/// The report on the client behind one descriptor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FdInfo {
    /// Such as `amdgpu`.
    pub(crate) driver: String,
    /// Such as `0000:c1:00.0`; only PCI devices have one.
    pub(crate) pdev: Option<String>,
    /// Equal in all descriptors of one client, and in no other's.
    pub(crate) client: Option<u64>,
    pub(crate) engines: BTreeMap<String, Engine>,
    pub(crate) regions: BTreeMap<String, Region>,
    /// Why engines and regions are unknown, if the report is larger than the limits. Both maps are
    /// empty then.
    pub(crate) oversize_reason: Option<&'static str>,
}

/// The work of a client on one kind of engine since the client exists. A value that is not reported
/// is unsupported; one that cannot be parsed has failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Engine {
    /// Nanoseconds of work.
    pub(crate) busy: Reading<u64>,
    pub(crate) cycles: Reading<u64>,
    pub(crate) total_cycles: Reading<u64>,
    /// The highest frequency.
    pub(crate) hertz: Reading<u64>,
    /// The number of engines of this kind.
    pub(crate) capacity: Reading<u64>,
}

impl Engine {
    const UNREPORTED: Self = Self {
        busy: Reading::Unsupported,
        cycles: Reading::Unsupported,
        total_cycles: Reading::Unsupported,
        hertz: Reading::Unsupported,
        capacity: Reading::Unsupported,
    };
}

/// The memory of one kind that a client holds. The size of its buffers (`total`) is not kept: it
/// includes memory that was never filled or was moved away.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Region {
    /// In bytes.
    resident: Reading<u64>,
    /// The same value under the older key `drm-memory-`.
    alias: Reading<u64>,
    /// Bytes in buffers that other clients share, resident or not.
    shared: Reading<u64>,
}

impl Region {
    const UNREPORTED: Self = Self {
        resident: Reading::Unsupported,
        alias: Reading::Unsupported,
        shared: Reading::Unsupported,
    };

    /// The resident bytes. amdgpu reports them under both keys, so the two are never added.
    pub(crate) fn resident(&self) -> &Reading<u64> {
        match &self.resident {
            Reading::Unsupported => &self.alias,
            fdinfo => fdinfo,
        }
    }

    /// The upper bound of resident bytes that are shared: all shared bytes may be resident. `None`
    /// where either is unknown.
    pub(crate) fn shared_resident(&self) -> Option<u64> {
        let resident = *self.resident().known()?;
        // If nothing is resident nothing is shared, reported or not.
        let shared = self.shared.known().copied();
        let shared = shared.or((resident == 0).then_some(0));
        shared.map(|shared| shared.min(resident))
    }
}

/// Parses a report; `None` if it is not from a DRM driver. Of a text that is too long only the
/// beginning is read: it identifies the client.
pub(crate) fn parse(bytes: &[u8]) -> Option<FdInfo> {
    let is_too_long = bytes.len() > TEXT_MAX;
    let whole = &bytes[..bytes.len().min(TEXT_MAX)];
    let mut fdinfo = FdInfo {
        driver: String::new(),
        pdev: None,
        client: None,
        engines: BTreeMap::new(),
        regions: BTreeMap::new(),
        oversize_reason: is_too_long.then_some(TOO_LONG),
    };
    let mut lines: Vec<&[u8]> = whole.split(|byte| *byte == b'\n').collect();
    if is_too_long {
        // The last line is incomplete, and may hold part of a number.
        lines.pop();
    }
    for line in lines {
        if let Some((key, value)) = split_line(line) {
            fdinfo.record_line(key, value);
        }
    }
    if fdinfo.engines.len() > ENGINES_MAX {
        fdinfo.oversize_reason.get_or_insert(TOO_MANY_ENGINES);
    }
    if fdinfo.regions.len() > REGIONS_MAX {
        fdinfo.oversize_reason.get_or_insert(TOO_MANY_REGIONS);
    }
    if fdinfo.oversize_reason.is_some() {
        fdinfo.engines.clear();
        fdinfo.regions.clear();
    }
    (!fdinfo.driver.is_empty()).then_some(fdinfo)
}

/// Whether a text has any key of a DRM driver, even with an invalid value.
pub(crate) fn is_drm(bytes: &[u8]) -> bool {
    let mut lines = bytes.split(|byte| *byte == b'\n');
    lines.any(|line| line.trim_ascii_start().starts_with(b"drm-"))
}

/// A key without `drm-`, and its value. Some keys of amdgpu end with a blank.
fn split_line(line: &[u8]) -> Option<(&str, &str)> {
    let (key, value) = std::str::from_utf8(line).ok()?.split_once(':')?;
    let key = key.trim_ascii().strip_prefix("drm-")?;
    Some((key, value.trim_ascii()))
}

impl FdInfo {
    /// Records one line. Of two lines with the same key the first counts: the kernel identifies the
    /// client before its driver can write anything.
    fn record_line(&mut self, key: &str, value: &str) {
        match key {
            "driver" if self.driver.is_empty() => self.driver = printable_name(value),
            "pdev" if self.pdev.is_none() => {
                self.pdev = Some(printable_name(value).to_ascii_lowercase())
            }
            "client-id" if self.client.is_none() => {
                self.client = parse_number(value, COUNT).known().copied();
            }
            _ => self.record_number(key, value),
        }
    }

    fn record_number(&mut self, key: &str, value: &str) {
        let engine = |(prefix, ..): &&EngineKey| key.starts_with(prefix);
        if let Some((prefix, units, field)) = ENGINE_KEYS.iter().find(engine) {
            if let Some(name) = valid_name(&key[prefix.len()..]) {
                let engine = self.engines.entry(name).or_insert(Engine::UNREPORTED);
                set_if_unset(field(engine), value, units);
            }
            return;
        }
        for (prefix, field) in REGION_KEYS {
            if let Some(name) = key.strip_prefix(prefix).and_then(valid_name) {
                let region = self.regions.entry(name).or_insert(Region::UNREPORTED);
                if let Some(field) = field(region) {
                    set_if_unset(field, value, BYTES);
                }
            }
        }
    }
}

type EngineKey = (
    &'static str,
    &'static [(&'static str, u64)],
    fn(&mut Engine) -> &mut Reading<u64>,
);

/// The first matching prefix counts, so longer ones come first: `total-cycles-` does not belong to
/// the memory key `total-` either.
const ENGINE_KEYS: [EngineKey; 5] = [
    ("engine-capacity-", COUNT, |engine| &mut engine.capacity),
    ("engine-", &[("ns", 1)], |engine| &mut engine.busy),
    ("total-cycles-", COUNT, |engine| &mut engine.total_cycles),
    ("cycles-", COUNT, |engine| &mut engine.cycles),
    ("maxfreq-", HERTZ, |engine| &mut engine.hertz),
];

type RegionKey = (&'static str, fn(&mut Region) -> Option<&mut Reading<u64>>);

/// The other keys only show that the region exists.
const REGION_KEYS: [RegionKey; 6] = [
    ("resident-", |region| Some(&mut region.resident)),
    ("memory-", |region| Some(&mut region.alias)),
    ("total-", |_| None),
    ("shared-", |region| Some(&mut region.shared)),
    ("purgeable-", |_| None),
    ("active-", |_| None),
];

const COUNT: &[(&str, u64)] = &[("", 1)];

const HERTZ: &[(&str, u64)] = &[("", 1), ("Hz", 1), ("KHz", 1_000), ("MHz", 1_000_000)];

/// The kernel uses the greatest unit that is exact, so the unit of a key changes between readings.
const BYTES: &[(&str, u64)] = &[
    ("", 1),
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
];

fn set_if_unset(reading: &mut Reading<u64>, value: &str, units: &[(&str, u64)]) {
    if *reading == Reading::Unsupported {
        *reading = parse_number(value, units);
    }
}

/// A decimal number with a unit. A value that cannot be parsed is not 0.
fn parse_number(value: &str, units: &[(&str, u64)]) -> Reading<u64> {
    let mut words = value.split_ascii_whitespace();
    let (digits, unit) = (words.next().unwrap_or_default(), words.next());
    let factor = units
        .iter()
        .find(|(name, _)| *name == unit.unwrap_or_default());
    let is_decimal = digits.bytes().all(|byte| byte.is_ascii_digit());
    match (digits.parse::<u64>(), factor, words.next()) {
        (Ok(number), Some((_, factor)), None) if is_decimal => number
            .checked_mul(*factor)
            .map_or_else(|| not_understood(value), Reading::Value),
        _ => not_understood(value),
    }
}

fn not_understood(value: &str) -> Reading<u64> {
    Reading::Failed(format!(
        "not understood: {}",
        sanitize(value.as_bytes(), 40)
    ))
}

/// The name of a driver or device, with control characters made visible.
fn printable_name(value: &str) -> String {
    sanitize(value.as_bytes(), NAME_MAX)
}

/// The name of an engine or a region. Drivers write it: a name that is too long or has odd
/// characters is ignored.
fn valid_name(text: &str) -> Option<String> {
    let is_name =
        (1..=NAME_MAX).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_graphic());
    is_name.then(|| text.to_owned())
}

#[cfg(test)]
mod recorded;
#[cfg(test)]
mod tests;
