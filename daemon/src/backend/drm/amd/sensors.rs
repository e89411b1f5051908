//! What a card measures of itself, at each poll: from the files that have one
//! value each, and what these do not tell from `gpu_metrics`.

use super::clocks;
use super::metrics::Metrics;
use crate::backend::drm::hwmon::{self, Hwmon};
use crate::backend::drm::lacking::Attributes;
use crate::backend::drm::link;
use crate::backend::drm::sysfs::{self, Attribute};
use gpukill_proto::reading::Reading;
use gpukill_proto::snapshot::Vitals;
use gpukill_proto::units::{Bytes, Celsius, Megahertz, Milliwatts, Percent, Rpm};

/// Everything that changes all the time. Like every reading of a card's sensors it
/// keeps a card awake that would fall asleep.
///
/// `pcie_bw` is left alone: reading it sleeps for a second.
pub(super) fn vitals(attributes: &Attributes, hwmon: Option<&Hwmon>, metrics: &Metrics) -> Vitals {
    let file = |name| attributes.named(name);
    let hotspot = degrees(hwmon, "junction").or(|| metrics.hotspot.clone());
    // The one unit encodes and decodes, so that both are as busy as it is.
    let video = percent(&file("vcn_busy_percent")).or(|| metrics.video_utilization.clone());
    let graphics_clock = clock(hwmon, "sclk", &file("pp_dpm_sclk"), &metrics.graphics_clock);
    Vitals {
        utilization: percent(&file("gpu_busy_percent")).or(|| metrics.utilization.clone()),
        memory_utilization: percent(&file("mem_busy_percent"))
            .or(|| metrics.memory_utilization.clone()),
        encoder: video.clone(),
        decoder: video,
        // Where only the hottest place of the die is measured (MI300), that is
        // the die's temperature.
        temperature: edge(hwmon)
            .or(|| metrics.temperature.clone())
            .or(|| hotspot.clone()),
        memory_temperature: degrees(hwmon, "mem").or(|| metrics.memory_temperature.clone()),
        hotspot_temperature: hotspot,
        power: power(hwmon).or(|| metrics.power.clone()),
        fan: fan(hwmon),
        fan_speed: fan_speed(hwmon).or(|| metrics.fan_speed.clone()),
        // Both names are of the one clock of the compute units.
        clock_graphics: graphics_clock.clone(),
        clock_sm: graphics_clock,
        clock_memory: clock(hwmon, "mclk", &file("pp_dpm_mclk"), &metrics.memory_clock),
        clock_video: metrics.video_clock.clone(),
        throttle: metrics.throttle.clone(),
        pcie_generation: link::generation(&file("current_link_speed"))
            .or(|| metrics.pcie_generation.clone()),
        pcie_width: link::width(&file("current_link_width")).or(|| metrics.pcie_width.clone()),
        ..Vitals::unknown(&Reading::Unsupported)
    }
}

/// What tells the same as another source, where that has nothing.
trait Or<T> {
    fn or(self, other: impl FnOnce() -> Reading<T>) -> Reading<T>;
}

impl<T> Or<T> for Reading<T> {
    fn or(self, other: impl FnOnce() -> Reading<T>) -> Reading<T> {
        match self {
            // One that failed has failed, and no other is put in its place.
            Reading::Unsupported => other(),
            told => told,
        }
    }
}

/// A share of a hundred. Some chips write more now and then.
fn percent(file: &impl Attribute) -> Reading<Percent> {
    match sysfs::number(file) {
        Reading::Value(share @ 0..=100) => {
            Reading::Value(Percent(u32::try_from(share).unwrap_or_default()))
        }
        Reading::Value(share) => Reading::impossible(format_args!("{share} %")),
        unknown => unknown.because(),
    }
}

/// A size in bytes.
pub(super) fn size(file: &impl Attribute) -> Reading<Bytes> {
    sysfs::number(file).map(Bytes)
}

/// `SPX` or `NPS1`; a driver that does not know says `UNKNOWN`.
pub(super) fn mode(file: &impl Attribute) -> Reading<String> {
    match sysfs::text(file) {
        Reading::Value(mode) if mode.is_empty() || mode == "UNKNOWN" => Reading::Unsupported,
        Reading::Value(mode)
            if mode.len() > 16 || !mode.bytes().all(|byte| byte.is_ascii_alphanumeric()) =>
        {
            Reading::Failed(super::lines::NOT_UNDERSTOOD.into())
        }
        told => told,
    }
}

fn degrees(hwmon: Option<&Hwmon>, label: &str) -> Reading<Celsius> {
    hwmon::celsius(labelled(hwmon, "temp", label))
}

/// Old drivers have one temperature and no label.
fn edge(hwmon: Option<&Hwmon>) -> Reading<Celsius> {
    degrees(hwmon, "edge").or(|| match hwmon {
        Some(hwmon) if hwmon.channels("temp") == [(1, None)] => {
            hwmon::celsius(hwmon.read("temp1_input"))
        }
        _ => Reading::Unsupported,
    })
}

fn labelled(hwmon: Option<&Hwmon>, kind: &str, label: &str) -> Reading<i64> {
    let input =
        |hwmon: &Hwmon| Some(hwmon.read(&format!("{kind}{}_input", hwmon.channel(kind, label)?)));
    hwmon.and_then(input).unwrap_or(Reading::Unsupported)
}

fn attribute(hwmon: Option<&Hwmon>, attribute: &str) -> Reading<i64> {
    hwmon.map_or(Reading::Unsupported, |hwmon| hwmon.read(attribute))
}

/// The mean of late, or the power of now: newer cards have that only.
fn power(hwmon: Option<&Hwmon>) -> Reading<Milliwatts> {
    let mean = attribute(hwmon, "power1_average");
    hwmon::milliwatts(mean.or(|| attribute(hwmon, "power1_input")))
}

/// A limit of nothing is none.
pub(super) fn power_limit(hwmon: Option<&Hwmon>) -> Reading<Milliwatts> {
    match hwmon::milliwatts(attribute(hwmon, "power1_cap")) {
        Reading::Value(Milliwatts(0)) => Reading::Unsupported,
        told => told,
    }
}

fn fan_speed(hwmon: Option<&Hwmon>) -> Reading<Rpm> {
    hwmon::rpm(attribute(hwmon, "fan1_input"))
}

/// What is intended, of 255; or else the fan's speed, of its greatest.
fn fan(hwmon: Option<&Hwmon>) -> Reading<Percent> {
    let share = |part: i64, whole: i64| match u32::try_from((part * 100 + whole / 2) / whole) {
        Ok(share @ 0..=100) => Reading::Value(Percent(share)),
        _ => Reading::impossible(format_args!("{part} of {whole}")),
    };
    let intended = match attribute(hwmon, "pwm1") {
        Reading::Value(level @ 0..=255) => share(level, 255),
        Reading::Value(level) => Reading::impossible(format_args!("{level} of 255")),
        unknown => unknown.because(),
    };
    intended.or(|| {
        let greatest = hwmon::rpm(attribute(hwmon, "fan1_max"));
        match (fan_speed(hwmon), greatest) {
            (Reading::Value(Rpm(speed)), Reading::Value(Rpm(greatest))) if greatest > 0 => {
                // A fan may turn a little faster than it should.
                share(speed.min(greatest).into(), greatest.into())
            }
            (Reading::Value(_), unknown) | (unknown, _) => unknown.because(),
        }
    })
}

/// A clock now: of its sensor, or of the step with a star, or of the structure.
fn clock(
    hwmon: Option<&Hwmon>,
    label: &str,
    steps: &impl Attribute,
    metrics: &Reading<Megahertz>,
) -> Reading<Megahertz> {
    hwmon::megahertz(labelled(hwmon, "freq", label))
        .or(|| match clocks::read(steps) {
            Reading::Value(steps) => steps.now.map_or(Reading::Unsupported, Reading::Value),
            unknown => unknown.because(),
        })
        .or(|| metrics.clone())
}
