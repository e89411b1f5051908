//! Reads the sensor values of a card at each poll: from files of one value each, then from
//! `gpu_metrics`.

use super::clocks;
use crate::backend::drm::hwmon::{self, Hwmon};
use crate::backend::drm::link;
use crate::backend::drm::missing_attributes::CardAttributes;
use crate::backend::drm::sysfs::{self, Attribute};
use gpukill_proto::model::Vitals;
use gpukill_proto::reading::Reading;
use gpukill_proto::units::{Bytes, Celsius, Megahertz, Milliwatts, Percent, Rpm};

/// The values that change all the time; `metrics` are those of `gpu_metrics`. Like every sensor
/// access, this keeps a card awake that would otherwise fall asleep.
///
/// `pcie_bw` is not read: reading it sleeps for a second.
pub(super) fn vitals(
    attributes: &CardAttributes,
    hwmon: Option<&Hwmon>,
    metrics: Vitals,
) -> Vitals {
    let file = |name| attributes.attribute(name);
    // One unit encodes and decodes, so both shares are its utilization.
    let video = percent(&file("vcn_busy_percent"));
    // Both names mean the one clock of the compute units.
    let graphics_clock = clock(hwmon, "sclk", &file("pp_dpm_sclk"));
    let mut vitals = Vitals {
        utilization: percent(&file("gpu_busy_percent")),
        memory_utilization: percent(&file("mem_busy_percent")),
        encoder: video.clone(),
        decoder: video,
        temperature: edge(hwmon),
        memory_temperature: degrees(hwmon, "mem"),
        hotspot_temperature: degrees(hwmon, "junction"),
        power: power(hwmon),
        fan: fan(hwmon),
        fan_speed: fan_speed(hwmon),
        clock_graphics: graphics_clock.clone(),
        clock_sm: graphics_clock,
        clock_memory: clock(hwmon, "mclk", &file("pp_dpm_mclk")),
        pcie_generation: link::generation(&file("current_link_speed")),
        pcie_width: link::width(&file("current_link_width")),
        ..Vitals::unknown(&Reading::Unsupported)
    }
    .or_if_unsupported(metrics);
    // Where only the hottest point of the die is measured (MI300), it stands for the die's
    // temperature.
    let hotspot = vitals.hotspot_temperature.clone();
    vitals.temperature = vitals.temperature.or_if_unsupported(|| hotspot);
    vitals
}

/// A percentage. Some chips write more than 100 now and then.
fn percent(file: &impl Attribute) -> Reading<Percent> {
    match sysfs::number(file) {
        Reading::Value(share @ 0..=100) => {
            Reading::Value(Percent(u32::try_from(share).unwrap_or_default()))
        }
        Reading::Value(share) => Reading::impossible(format_args!("{share} %")),
        unknown => unknown.as_unknown(),
    }
}

pub(super) fn read_size(file: &impl Attribute) -> Reading<Bytes> {
    sysfs::number(file).map(Bytes)
}

/// Such as `SPX` or `NPS1`; a driver that does not know the mode writes `UNKNOWN`.
pub(super) fn read_mode(file: &impl Attribute) -> Reading<String> {
    match sysfs::text(file) {
        Reading::Value(mode) if mode.is_empty() || mode == "UNKNOWN" => Reading::Unsupported,
        Reading::Value(mode)
            if mode.len() > 16 || !mode.bytes().all(|byte| byte.is_ascii_alphanumeric()) =>
        {
            Reading::Failed(super::NOT_UNDERSTOOD.into())
        }
        reading => reading,
    }
}

fn degrees(hwmon: Option<&Hwmon>, label: &str) -> Reading<Celsius> {
    hwmon::celsius(read_labelled(hwmon, "temp", label))
}

/// Old drivers have one temperature and no label.
fn edge(hwmon: Option<&Hwmon>) -> Reading<Celsius> {
    degrees(hwmon, "edge").or_if_unsupported(|| match hwmon {
        Some(hwmon) if hwmon.channels("temp") == [(1, None)] => {
            hwmon::celsius(hwmon.read("temp1_input"))
        }
        _ => Reading::Unsupported,
    })
}

fn read_labelled(hwmon: Option<&Hwmon>, kind: &str, label: &str) -> Reading<i64> {
    let input =
        |hwmon: &Hwmon| Some(hwmon.read(&format!("{kind}{}_input", hwmon.channel(kind, label)?)));
    hwmon.and_then(input).unwrap_or(Reading::Unsupported)
}

fn read_attribute(hwmon: Option<&Hwmon>, attribute: &str) -> Reading<i64> {
    hwmon.map_or(Reading::Unsupported, |hwmon| hwmon.read(attribute))
}

/// The average power, or the current power on newer cards, which have only that.
fn power(hwmon: Option<&Hwmon>) -> Reading<Milliwatts> {
    let mean = read_attribute(hwmon, "power1_average");
    hwmon::milliwatts(mean.or_if_unsupported(|| read_attribute(hwmon, "power1_input")))
}

/// A limit of 0 is none.
pub(super) fn power_limit(hwmon: Option<&Hwmon>) -> Reading<Milliwatts> {
    match hwmon::milliwatts(read_attribute(hwmon, "power1_cap")) {
        Reading::Value(Milliwatts(0)) => Reading::Unsupported,
        reading => reading,
    }
}

fn fan_speed(hwmon: Option<&Hwmon>) -> Reading<Rpm> {
    hwmon::rpm(read_attribute(hwmon, "fan1_input"))
}

/// The intended level, of 255; else the fan's speed as a share of its maximum.
fn fan(hwmon: Option<&Hwmon>) -> Reading<Percent> {
    let share = |part: i64, whole: i64| match u32::try_from((part * 100 + whole / 2) / whole) {
        Ok(share @ 0..=100) => Reading::Value(Percent(share)),
        _ => Reading::impossible(format_args!("{part} of {whole}")),
    };
    let intended = match read_attribute(hwmon, "pwm1") {
        Reading::Value(level @ 0..=255) => share(level, 255),
        Reading::Value(level) => Reading::impossible(format_args!("{level} of 255")),
        unknown => unknown.as_unknown(),
    };
    intended.or_if_unsupported(|| {
        let greatest = hwmon::rpm(read_attribute(hwmon, "fan1_max"));
        match (fan_speed(hwmon), greatest) {
            (Reading::Value(Rpm(speed)), Reading::Value(Rpm(greatest))) if greatest > 0 => {
                // A fan may turn a little faster than its maximum.
                share(speed.min(greatest).into(), greatest.into())
            }
            (Reading::Value(_), unknown) | (unknown, _) => unknown.as_unknown(),
        }
    })
}

/// A current clock: from its sensor, else from the step with a star.
fn clock(hwmon: Option<&Hwmon>, label: &str, steps: &impl Attribute) -> Reading<Megahertz> {
    hwmon::megahertz(read_labelled(hwmon, "freq", label)).or_if_unsupported(|| {
        match clocks::read_steps(steps) {
            Reading::Value(steps) => steps.current.map_or(Reading::Unsupported, Reading::Value),
            unknown => unknown.as_unknown(),
        }
    })
}
