//! Reads `gpu_metrics`: a structure of the driver; its header names the layout. It fills the gaps
//! of the card's other files.
//!
//! Only known layouts are read, each with its own offsets (`kgd_pp_interface.h` of the kernel): the
//! layouts are not extensions of one another, and from 1.9 on the file is no structure at all. A
//! field with all bits set is absent.

mod layouts;
mod throttle;

use crate::backend::drm::hwmon;
use crate::backend::drm::link;
use crate::backend::drm::sysfs::{self, ATTRIBUTE_MAX, Attribute};
use gpukill_proto::model::{ThrottleReasons, Vitals};
use gpukill_proto::reading::Reading;
use gpukill_proto::units::{Milliwatts, Percent, Rpm};
use layouts::{ActivityField, LAYOUTS, LinkField, MetricsLayout, PowerField, ThrottleField};

/// Reads the file: its values, and whether it is of a GPU that shares a die with a CPU. The largest
/// layout has 3,872 bytes.
pub(super) fn read(file: &(impl Attribute + ?Sized)) -> (Vitals, bool) {
    match file.read(&mut [0; ATTRIBUTE_MAX]) {
        Ok(bytes) => {
            let nothing = || Vitals::unknown(&Reading::Unsupported);
            (parse(bytes).unwrap_or_else(nothing), is_integrated(bytes))
        }
        Err(error) => (unreadable(&sysfs::failure(&error)), false),
    }
}

/// The readings that layouts have, unknown for this reason.
fn unreadable(why: &Reading<()>) -> Vitals {
    Vitals {
        utilization: why.as_unknown(),
        memory_utilization: why.as_unknown(),
        encoder: why.as_unknown(),
        decoder: why.as_unknown(),
        temperature: why.as_unknown(),
        memory_temperature: why.as_unknown(),
        hotspot_temperature: why.as_unknown(),
        power: why.as_unknown(),
        fan_speed: why.as_unknown(),
        clock_graphics: why.as_unknown(),
        clock_sm: why.as_unknown(),
        clock_memory: why.as_unknown(),
        clock_video: why.as_unknown(),
        throttle: why.as_unknown(),
        pcie_generation: why.as_unknown(),
        pcie_width: why.as_unknown(),
        ..Vitals::unknown(&Reading::Unsupported)
    }
}

/// Parses a structure of a known layout; `None` for any other. The length is taken from the header,
/// not from the file, which may be padded to a page.
pub(super) fn parse(bytes: &[u8]) -> Option<Vitals> {
    let header = bytes.first_chunk::<4>()?;
    let size = u16::from_le_bytes([header[0], header[1]]);
    let revision = (header[2], header[3]);
    let layout = LAYOUTS.iter().find(|layout| layout.revision == revision)?;
    if !layout.sizes.contains(&size) {
        return None;
    }
    let fields = MetricsFields(bytes.get(..usize::from(size))?);
    let celsius = |offset: Option<usize>| {
        let value = fields.first_present(offset.as_slice());
        hwmon::celsius(value.map(|value| i64::from(value) * layout.millidegrees))
    };
    let percent = |offset: Option<usize>| percent(fields.first_present(offset.as_slice()));
    let megahertz = |offsets: &[usize]| {
        let value = fields.first_present(offsets);
        hwmon::megahertz(value.map(|value| i64::from(value) * 1_000_000))
    };
    let video = fields.video_utilization(layout);
    Some(Vitals {
        utilization: percent(layout.graphics_activity),
        memory_utilization: percent(layout.memory_activity),
        encoder: video.clone(),
        decoder: video,
        temperature: celsius(layout.edge),
        memory_temperature: celsius(layout.memory),
        hotspot_temperature: celsius(layout.hotspot),
        power: fields.power(layout),
        fan_speed: fields.fan_speed(layout),
        clock_graphics: megahertz(layout.graphics_clock),
        clock_sm: megahertz(layout.graphics_clock),
        clock_memory: megahertz(layout.memory_clock),
        clock_video: megahertz(layout.video_clock),
        throttle: fields.throttle(layout),
        pcie_generation: fields.link_speed(layout),
        pcie_width: fields.link_width(layout),
        ..Vitals::unknown(&Reading::Unsupported)
    })
}

/// Whether a header, of a known layout or not, belongs to a GPU that shares a die with a CPU: those
/// use formats 2 and 3 (`kgd_pp_interface.h`), and discrete cards format 1.
fn is_integrated(bytes: &[u8]) -> bool {
    bytes
        .first_chunk::<4>()
        .is_some_and(|header| (2..=FORMATS_MAX).contains(&header[2]))
}

/// A greater format number is garbage.
const FORMATS_MAX: u8 = 15;

fn percent(value: Reading<u16>) -> Reading<Percent> {
    match value {
        Reading::Value(value) if value <= 100 => Reading::Value(Percent(value.into())),
        Reading::Value(value) => Reading::impossible(format_args!("{value} %")),
        unknown => unknown.as_unknown(),
    }
}

/// The bytes of one structure, little-endian. A field beyond the end is absent.
struct MetricsFields<'a>(&'a [u8]);

impl MetricsFields<'_> {
    /// The first of these fields that is present.
    fn first_present(&self, offsets: &[usize]) -> Reading<u16> {
        let values = offsets.iter().filter_map(|offset| self.bytes_at(*offset));
        let value = values.map(u16::from_le_bytes).find(|it| *it != u16::MAX);
        value.map_or(Reading::Unsupported, Reading::Value)
    }

    fn read_u32(&self, offset: usize) -> Reading<u32> {
        let value = self.bytes_at(offset).map(u32::from_le_bytes);
        let value = value.filter(|value| *value != u32::MAX);
        value.map_or(Reading::Unsupported, Reading::Value)
    }

    fn read_u64(&self, offset: usize) -> Reading<u64> {
        let value = self.bytes_at(offset).map(u64::from_le_bytes);
        let value = value.filter(|value| *value != u64::MAX);
        value.map_or(Reading::Unsupported, Reading::Value)
    }

    /// The utilization of the busiest video unit, which encodes and decodes.
    fn video_utilization(&self, layout: &MetricsLayout) -> Reading<Percent> {
        match layout.video_activity {
            ActivityField::Unknown => Reading::Unsupported,
            ActivityField::Percent(units) => {
                let units = units.iter().filter_map(|offset| self.bytes_at(*offset));
                let units = units.map(u16::from_le_bytes).filter(|it| *it != u16::MAX);
                percent(units.max().map_or(Reading::Unsupported, Reading::Value))
            }
            ActivityField::Hundredths(offset) => {
                let share = self.first_present(&[offset]);
                percent(share.map(|share| share.saturating_add(50) / 100))
            }
        }
    }

    fn power(&self, layout: &MetricsLayout) -> Reading<Milliwatts> {
        hwmon::milliwatts(match layout.power {
            PowerField::Unknown => Reading::Unsupported,
            PowerField::Watts(offset) => self
                .first_present(&[offset])
                .map(|it| i64::from(it) * 1_000_000),
            PowerField::Milliwatts(offset) => self
                .first_present(&[offset])
                .map(|it| i64::from(it) * 1_000),
            PowerField::WideMilliwatts(offset) => {
                self.read_u32(offset).map(|it| i64::from(it) * 1_000)
            }
        })
    }

    /// Never 0: a card without a fan reports 0, too.
    fn fan_speed(&self, layout: &MetricsLayout) -> Reading<Rpm> {
        match hwmon::rpm(self.first_present(layout.fan.as_slice()).map(i64::from)) {
            Reading::Value(Rpm(0)) => Reading::Unsupported,
            reading => reading,
        }
    }

    fn link_width(&self, layout: &MetricsLayout) -> Reading<u32> {
        link::valid_lanes(match layout.link {
            LinkField::Unknown => Reading::Unsupported,
            LinkField::Bytes(offset) => self.read_u8(offset).map(u64::from),
            LinkField::Words(offset) => self.first_present(&[offset]).map(u64::from),
        })
    }

    fn link_speed(&self, layout: &MetricsLayout) -> Reading<u32> {
        link::generation_of_tenths(match layout.link {
            LinkField::Unknown => Reading::Unsupported,
            LinkField::Bytes(offset) => self.read_u8(offset + 1).map(u16::from),
            LinkField::Words(offset) => self.first_present(&[offset + 2]),
        })
    }

    fn throttle(&self, layout: &MetricsLayout) -> Reading<ThrottleReasons> {
        match layout.throttle {
            ThrottleField::Unknown => Reading::Unsupported,
            ThrottleField::Common(offset) => self.read_u64(offset).map(throttle::throttle_reasons),
            // The bits have chip-specific meanings, but no bit set always means no throttling.
            ThrottleField::ChipSpecific(offset) => match self.read_u32(offset) {
                Reading::Value(0) => Reading::Value(ThrottleReasons(Vec::new())),
                Reading::Value(_) => Reading::Unsupported,
                unknown => unknown.as_unknown(),
            },
        }
    }

    fn read_u8(&self, offset: usize) -> Reading<u8> {
        let value = self.bytes_at(offset).map(u8::from_le_bytes);
        let value = value.filter(|value| *value != u8::MAX);
        value.map_or(Reading::Unsupported, Reading::Value)
    }

    fn bytes_at<const WIDTH: usize>(&self, offset: usize) -> Option<[u8; WIDTH]> {
        self.0.get(offset..)?.first_chunk().copied()
    }
}

#[cfg(test)]
mod tests;
