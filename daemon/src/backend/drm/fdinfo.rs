//! What the kernel tells of one open descriptor of a DRM device:
//! `/proc/PID/fdinfo/FD` (kernel documentation, gpu/drm-usage-stats).
//!
//! Only reads: what the names mean is in [`super::engines`]. The keys that amdgpu
//! had before they were agreed upon (Linux 5.14 to 5.18) are not among them.

pub(crate) mod untrusted;

use gpukill_proto::reading::Reading;
use gpukill_proto::text::visible;
use std::collections::BTreeMap;

/// No driver writes a longer text, not more engines or regions, and no longer
/// names: the longest known text has 2 KiB and 20 engines. A client of which more
/// is told is there, and what it does is not known.
pub(crate) const TEXT_MAX: usize = 64 * 1024;
const ENGINES_MAX: usize = 64;
const REGIONS_MAX: usize = 32;
const NAME_MAX: usize = 64;

const TOO_LONG: &str = "more than 64 KiB are told of it";
const TOO_MANY_ENGINES: &str = "more than 64 engines are told of it";
const TOO_MANY_REGIONS: &str = "more than 32 kinds of memory are told of it";

/// What one descriptor tells of the client behind it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FdInfo {
    /// `amdgpu`
    pub(crate) driver: String,
    /// `0000:c1:00.0`; only PCI devices have one.
    pub(crate) pdev: Option<String>,
    /// The same in all descriptors of one client, and in no other's.
    pub(crate) client: Option<u64>,
    pub(crate) engines: BTreeMap<String, Engine>,
    pub(crate) regions: BTreeMap<String, Region>,
    /// Why nothing of engines and regions is known, where more is told than is
    /// read. Neither has an entry then.
    pub(crate) too_much: Option<&'static str>,
}

/// What a client did on one kind of engine since it is there. What is not told
/// is unsupported, what is not understood has failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Engine {
    /// Nanoseconds of work.
    pub(crate) busy: Reading<u64>,
    /// Cycles of work.
    pub(crate) cycles: Reading<u64>,
    /// Cycles that went by.
    pub(crate) total_cycles: Reading<u64>,
    /// The most cycles a second.
    pub(crate) hertz: Reading<u64>,
    /// How many engines of this kind there are.
    pub(crate) capacity: Reading<u64>,
}

impl Engine {
    const UNTOLD: Self = Self {
        busy: Reading::Unsupported,
        cycles: Reading::Unsupported,
        total_cycles: Reading::Unsupported,
        hertz: Reading::Unsupported,
        capacity: Reading::Unsupported,
    };
}

/// What a client holds of one kind of memory. How large its buffers are (`total`)
/// is not kept: what was never filled or was moved away counts there too.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Region {
    /// Bytes.
    resident: Reading<u64>,
    /// The same by the older key `drm-memory-`.
    alias: Reading<u64>,
    /// Bytes of buffers that other clients have too, whether they are resident or
    /// not.
    shared: Reading<u64>,
}

impl Region {
    const UNTOLD: Self = Self {
        resident: Reading::Unsupported,
        alias: Reading::Unsupported,
        shared: Reading::Unsupported,
    };

    /// Bytes that are there now. amdgpu tells them by both keys: they are never
    /// added.
    pub(crate) fn resident(&self) -> &Reading<u64> {
        match &self.resident {
            Reading::Unsupported => &self.alias,
            told => told,
        }
    }

    /// At most so many of these bytes are other clients' too: all that is shared
    /// may be there now. `None` where either is not known.
    pub(crate) fn resident_and_shared(&self) -> Option<u64> {
        let resident = *self.resident().known()?;
        // Of nothing, nothing is shared, whether that is told or not.
        let shared = self.shared.known().copied();
        let shared = shared.or((resident == 0).then_some(0));
        shared.map(|shared| shared.min(resident))
    }
}

/// What a text tells; `None` where it is no DRM driver's. Of one that is longer
/// than any only the beginning is read: whose it is stands there.
pub(crate) fn parse(bytes: &[u8]) -> Option<FdInfo> {
    let is_too_long = bytes.len() > TEXT_MAX;
    let whole = &bytes[..bytes.len().min(TEXT_MAX)];
    let mut told = FdInfo {
        driver: String::new(),
        pdev: None,
        client: None,
        engines: BTreeMap::new(),
        regions: BTreeMap::new(),
        too_much: is_too_long.then_some(TOO_LONG),
    };
    let mut lines: Vec<&[u8]> = whole.split(|byte| *byte == b'\n').collect();
    if is_too_long {
        // Half a line may be half a number.
        lines.pop();
    }
    for line in lines {
        if let Some((key, value)) = pair(line) {
            told.hear(key, value);
        }
    }
    if told.engines.len() > ENGINES_MAX {
        told.too_much.get_or_insert(TOO_MANY_ENGINES);
    }
    if told.regions.len() > REGIONS_MAX {
        told.too_much.get_or_insert(TOO_MANY_REGIONS);
    }
    if told.too_much.is_some() {
        told.engines.clear();
        told.regions.clear();
    }
    (!told.driver.is_empty()).then_some(told)
}

/// Whether a text has a key of a DRM driver at all, however odd its value.
pub(crate) fn is_drm(bytes: &[u8]) -> bool {
    let mut lines = bytes.split(|byte| *byte == b'\n');
    lines.any(|line| line.trim_ascii_start().starts_with(b"drm-"))
}

/// A key without `drm-`, and its value. Some keys of amdgpu end with a blank.
fn pair(line: &[u8]) -> Option<(&str, &str)> {
    let (key, value) = std::str::from_utf8(line).ok()?.split_once(':')?;
    let key = key.trim_ascii().strip_prefix("drm-")?;
    Some((key, value.trim_ascii()))
}

impl FdInfo {
    /// Takes one line. Of two with the same key the first counts: the kernel
    /// writes what identifies the client before its driver may write anything.
    fn hear(&mut self, key: &str, value: &str) {
        match key {
            "driver" if self.driver.is_empty() => self.driver = word(value),
            "pdev" if self.pdev.is_none() => self.pdev = Some(word(value).to_ascii_lowercase()),
            "client-id" if self.client.is_none() => {
                self.client = number(value, COUNT).known().copied();
            }
            _ => self.hear_number(key, value),
        }
    }

    fn hear_number(&mut self, key: &str, value: &str) {
        let engine = |(prefix, ..): &&EngineKey| key.starts_with(prefix);
        if let Some((prefix, units, place)) = ENGINE_KEYS.iter().find(engine) {
            if let Some(name) = name(&key[prefix.len()..]) {
                let engine = self.engines.entry(name).or_insert(Engine::UNTOLD);
                first(place(engine), value, units);
            }
            return;
        }
        for (prefix, place) in REGION_KEYS {
            if let Some(name) = key.strip_prefix(prefix).and_then(name) {
                let region = self.regions.entry(name).or_insert(Region::UNTOLD);
                if let Some(place) = place(region) {
                    first(place, value, BYTES);
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

/// The first that fits counts, so the longer ones stand first: `total-cycles-` is
/// none of the memory's `total-` either.
const ENGINE_KEYS: [EngineKey; 5] = [
    ("engine-capacity-", COUNT, |engine| &mut engine.capacity),
    ("engine-", &[("ns", 1)], |engine| &mut engine.busy),
    ("total-cycles-", COUNT, |engine| &mut engine.total_cycles),
    ("cycles-", COUNT, |engine| &mut engine.cycles),
    ("maxfreq-", HERTZ, |engine| &mut engine.hertz),
];

type RegionKey = (&'static str, fn(&mut Region) -> Option<&mut Reading<u64>>);

/// The others only tell that there is such a region.
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

/// The kernel takes the greatest that is exact, so one key changes its unit from
/// one reading to the next.
const BYTES: &[(&str, u64)] = &[
    ("", 1),
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
];

fn first(place: &mut Reading<u64>, value: &str, units: &[(&str, u64)]) {
    if *place == Reading::Unsupported {
        *place = number(value, units);
    }
}

/// A decimal number and its unit. What is not understood is not 0.
fn number(value: &str, units: &[(&str, u64)]) -> Reading<u64> {
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
    Reading::Failed(format!("not understood: {}", visible(value.as_bytes(), 40)))
}

/// A driver's or a device's name, controls made visible.
fn word(value: &str) -> String {
    visible(value.as_bytes(), NAME_MAX)
}

/// The name of an engine or a region. They are written by drivers: one that is
/// too long or has odd characters is nobody's.
fn name(text: &str) -> Option<String> {
    let is_name =
        (1..=NAME_MAX).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_graphic());
    is_name.then(|| text.to_owned())
}

#[cfg(test)]
mod tests;

#[cfg(test)]
mod recorded;
