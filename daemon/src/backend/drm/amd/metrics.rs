//! `gpu_metrics`: a structure of the driver whose layout its header names. Fills
//! what the card's other files do not tell.
//!
//! Only layouts that are known are read, each with its own offsets
//! (`kgd_pp_interface.h` of the kernel): they are no extensions of one another,
//! and from 1.9 on it is no structure at all. A field of ones only is absent.

mod layouts;

mod throttle;

use crate::backend::drm::hwmon;
use crate::backend::drm::link;
use crate::backend::drm::sysfs::{self, ATTRIBUTE_MAX, Attribute};
use gpukill_proto::reading::Reading;
use gpukill_proto::snapshot::ThrottleReasons;
use gpukill_proto::units::{Celsius, Megahertz, Milliwatts, Percent, Rpm};
use layouts::{Activity, LAYOUTS, Layout, Link, Power, Throttle};

/// What a structure tells.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Metrics {
    /// The layout is one of GPUs that share a die with a CPU.
    pub(super) integrated: bool,
    pub(super) temperature: Reading<Celsius>,
    pub(super) hotspot: Reading<Celsius>,
    pub(super) memory_temperature: Reading<Celsius>,
    pub(super) power: Reading<Milliwatts>,
    pub(super) utilization: Reading<Percent>,
    pub(super) memory_utilization: Reading<Percent>,
    /// Of the busiest video unit.
    pub(super) video_utilization: Reading<Percent>,
    pub(super) graphics_clock: Reading<Megahertz>,
    pub(super) memory_clock: Reading<Megahertz>,
    pub(super) video_clock: Reading<Megahertz>,
    /// Never 0: a card without a fan says that, too.
    pub(super) fan_speed: Reading<Rpm>,
    pub(super) pcie_generation: Reading<u32>,
    pub(super) pcie_width: Reading<u32>,
    pub(super) throttle: Reading<ThrottleReasons>,
}

impl Metrics {
    /// What the file tells now. The greatest layout has 3,872 bytes.
    pub(super) fn read(file: &(impl Attribute + ?Sized)) -> Self {
        match file.read(&mut [0; ATTRIBUTE_MAX]) {
            Ok(bytes) => Self::parse(bytes).unwrap_or(Self {
                integrated: is_integrated(bytes),
                ..Self::unknown(&Reading::Unsupported)
            }),
            Err(error) => Self::unknown(&sysfs::failure(&error)),
        }
    }

    /// Nothing, for this reason.
    fn unknown(why: &Reading<()>) -> Self {
        Self {
            integrated: false,
            temperature: why.because(),
            hotspot: why.because(),
            memory_temperature: why.because(),
            power: why.because(),
            utilization: why.because(),
            memory_utilization: why.because(),
            video_utilization: why.because(),
            graphics_clock: why.because(),
            memory_clock: why.because(),
            video_clock: why.because(),
            fan_speed: why.because(),
            pcie_generation: why.because(),
            pcie_width: why.because(),
            throttle: why.because(),
        }
    }

    /// What a structure of a known layout tells; `None` of any other. The header
    /// says how long it is, not the file, which may be padded to a page.
    pub(super) fn parse(bytes: &[u8]) -> Option<Self> {
        let header = bytes.first_chunk::<4>()?;
        let size = u16::from_le_bytes([header[0], header[1]]);
        let revision = (header[2], header[3]);
        let layout = LAYOUTS.iter().find(|layout| layout.revision == revision)?;
        if !layout.sizes.contains(&size) {
            return None;
        }
        let fields = Fields(bytes.get(..usize::from(size))?);
        let celsius = |offset: Option<usize>| {
            let value = fields.first(offset.as_slice());
            hwmon::celsius(value.map(|value| i64::from(value) * layout.millidegrees))
        };
        let percent = |offset: Option<usize>| percent(fields.first(offset.as_slice()));
        let megahertz = |offsets: &[usize]| {
            let value = fields.first(offsets);
            hwmon::megahertz(value.map(|value| i64::from(value) * 1_000_000))
        };
        Some(Self {
            integrated: is_integrated(bytes),
            temperature: celsius(layout.edge),
            hotspot: celsius(layout.hotspot),
            memory_temperature: celsius(layout.memory),
            power: fields.power(layout),
            utilization: percent(layout.graphics_activity),
            memory_utilization: percent(layout.memory_activity),
            video_utilization: fields.video_utilization(layout),
            graphics_clock: megahertz(layout.graphics_clock),
            memory_clock: megahertz(layout.memory_clock),
            video_clock: megahertz(layout.video_clock),
            fan_speed: fields.fan_speed(layout),
            pcie_generation: fields.link_speed(layout),
            pcie_width: fields.link_width(layout),
            throttle: fields.throttle(layout),
        })
    }
}

/// Whether a header, of a layout that is known or not, is one of GPUs that share a die
/// with a CPU: those are formats 2 and 3 (`kgd_pp_interface.h`), and cards have format 1.
fn is_integrated(bytes: &[u8]) -> bool {
    bytes
        .first_chunk::<4>()
        .is_some_and(|header| (2..=FORMATS_MAX).contains(&header[2]))
}

/// A greater number of a format is garbage.
const FORMATS_MAX: u8 = 15;

fn percent(value: Reading<u16>) -> Reading<Percent> {
    match value {
        Reading::Value(value) if value <= 100 => Reading::Value(Percent(value.into())),
        Reading::Value(value) => Reading::impossible(format_args!("{value} %")),
        unknown => unknown.because(),
    }
}

/// The bytes of one structure, little-endian. A field beyond its end is absent.
struct Fields<'a>(&'a [u8]);

impl Fields<'_> {
    /// The first of these fields that is not absent.
    fn first(&self, offsets: &[usize]) -> Reading<u16> {
        let values = offsets.iter().filter_map(|offset| self.at(*offset));
        let value = values.map(u16::from_le_bytes).find(|it| *it != u16::MAX);
        value.map_or(Reading::Unsupported, Reading::Value)
    }

    fn wide(&self, offset: usize) -> Reading<u32> {
        let value = self.at(offset).map(u32::from_le_bytes);
        let value = value.filter(|value| *value != u32::MAX);
        value.map_or(Reading::Unsupported, Reading::Value)
    }

    fn widest(&self, offset: usize) -> Reading<u64> {
        let value = self.at(offset).map(u64::from_le_bytes);
        let value = value.filter(|value| *value != u64::MAX);
        value.map_or(Reading::Unsupported, Reading::Value)
    }

    fn video_utilization(&self, layout: &Layout) -> Reading<Percent> {
        match layout.video_activity {
            Activity::Unknown => Reading::Unsupported,
            Activity::Percent(units) => {
                let units = units.iter().filter_map(|offset| self.at(*offset));
                let units = units.map(u16::from_le_bytes).filter(|it| *it != u16::MAX);
                percent(units.max().map_or(Reading::Unsupported, Reading::Value))
            }
            Activity::Hundredths(offset) => {
                let share = self.first(&[offset]);
                percent(share.map(|share| share.saturating_add(50) / 100))
            }
        }
    }

    fn power(&self, layout: &Layout) -> Reading<Milliwatts> {
        hwmon::milliwatts(match layout.power {
            Power::Unknown => Reading::Unsupported,
            Power::Watts(offset) => self.first(&[offset]).map(|it| i64::from(it) * 1_000_000),
            Power::Milliwatts(offset) => self.first(&[offset]).map(|it| i64::from(it) * 1_000),
            Power::WideMilliwatts(offset) => self.wide(offset).map(|it| i64::from(it) * 1_000),
        })
    }

    fn fan_speed(&self, layout: &Layout) -> Reading<Rpm> {
        match hwmon::rpm(self.first(layout.fan.as_slice()).map(i64::from)) {
            Reading::Value(Rpm(0)) => Reading::Unsupported,
            told => told,
        }
    }

    fn link_width(&self, layout: &Layout) -> Reading<u32> {
        link::lanes(match layout.link {
            Link::Unknown => Reading::Unsupported,
            Link::Bytes(offset) => self.byte(offset).map(u64::from),
            Link::Words(offset) => self.first(&[offset]).map(u64::from),
        })
    }

    fn link_speed(&self, layout: &Layout) -> Reading<u32> {
        link::generation_of_tenths(match layout.link {
            Link::Unknown => Reading::Unsupported,
            Link::Bytes(offset) => self.byte(offset + 1).map(u16::from),
            Link::Words(offset) => self.first(&[offset + 2]),
        })
    }

    fn throttle(&self, layout: &Layout) -> Reading<ThrottleReasons> {
        match layout.throttle {
            Throttle::Unknown => Reading::Unsupported,
            Throttle::SameEverywhere(offset) => self.widest(offset).map(throttle::reasons),
            // Which bit is which differs, and none is none.
            Throttle::OfEachChip(offset) => match self.wide(offset) {
                Reading::Value(0) => Reading::Value(ThrottleReasons(Vec::new())),
                Reading::Value(_) => Reading::Unsupported,
                unknown => unknown.because(),
            },
        }
    }

    fn byte(&self, offset: usize) -> Reading<u8> {
        let value = self.at(offset).map(u8::from_le_bytes);
        let value = value.filter(|value| *value != u8::MAX);
        value.map_or(Reading::Unsupported, Reading::Value)
    }

    fn at<const WIDTH: usize>(&self, offset: usize) -> Option<[u8; WIDTH]> {
        self.0.get(offset..)?.first_chunk().copied()
    }
}

#[cfg(test)]
mod tests;
