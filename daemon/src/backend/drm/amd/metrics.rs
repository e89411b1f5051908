//! `gpu_metrics`: a structure of the driver whose layout its header names. Fills
//! what the card's other files do not tell.
//!
//! Only layouts that are known are read, each with its own offsets
//! (`kgd_pp_interface.h` of the kernel): they are no extensions of one another,
//! and from 1.9 on it is no structure at all. A field of ones only is absent.

use crate::backend::drm::hwmon;
use crate::backend::drm::sysfs;
use crate::procfs::file::read_at_most;
use gpukill_proto::reading::Reading;
use gpukill_proto::snapshot::ThrottleReasons;
use gpukill_proto::units::{Celsius, Megahertz, Milliwatts, Percent};
use std::path::Path;

/// sysfs gives a page at most; the greatest layout has 3,872 bytes.
const FILE_MAX: u64 = 4_096;

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
    pub(super) graphics_clock: Reading<Megahertz>,
    pub(super) memory_clock: Reading<Megahertz>,
    pub(super) throttle: Reading<ThrottleReasons>,
}

impl Metrics {
    /// What the file tells now.
    pub(super) fn read(file: &Path) -> Self {
        match read_at_most(file, FILE_MAX) {
            Ok(bytes) => Self::parse(&bytes).unwrap_or(Self::unknown(&Reading::Unsupported)),
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
            graphics_clock: why.because(),
            memory_clock: why.because(),
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
            integrated: revision.0 >= 2,
            temperature: celsius(layout.edge),
            hotspot: celsius(layout.hotspot),
            memory_temperature: celsius(layout.memory),
            power: hwmon::milliwatts(match layout.power {
                Power::Unknown => Reading::Unsupported,
                Power::Watts(offset) => fields
                    .first(&[offset])
                    .map(|value| i64::from(value) * 1_000_000),
                Power::Milliwatts(offset) => fields
                    .first(&[offset])
                    .map(|value| i64::from(value) * 1_000),
                Power::WideMilliwatts(offset) => {
                    fields.wide(offset).map(|value| i64::from(value) * 1_000)
                }
            }),
            utilization: percent(layout.graphics_activity),
            memory_utilization: percent(layout.memory_activity),
            graphics_clock: megahertz(layout.graphics_clock),
            memory_clock: megahertz(layout.memory_clock),
            throttle: layout.throttle.map_or(Reading::Unsupported, |offset| {
                fields.widest(offset).map(throttle)
            }),
        })
    }
}

fn percent(value: Reading<u16>) -> Reading<Percent> {
    match value {
        Reading::Value(value) if value <= 100 => Reading::Value(Percent(value.into())),
        Reading::Value(_) => Reading::Failed(hwmon::CANNOT_BE.into()),
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

    fn at<const WIDTH: usize>(&self, offset: usize) -> Option<[u8; WIDTH]> {
        self.0.get(offset..)?.first_chunk().copied()
    }
}

/// Where a layout has what.
struct Layout {
    /// Of format and content.
    revision: (u8, u8),
    /// Its length, as the header says it. Another one is another layout.
    sizes: &'static [u16],
    /// The unit of its temperatures.
    millidegrees: i64,
    edge: Option<usize>,
    hotspot: Option<usize>,
    memory: Option<usize>,
    power: Power,
    graphics_activity: Option<usize>,
    memory_activity: Option<usize>,
    /// The clock now, and after it the one of late.
    graphics_clock: &'static [usize],
    memory_clock: &'static [usize],
    /// What slows it, in bits that mean the same on every chip.
    throttle: Option<usize>,
}

/// Where a layout has the power of the socket, and in which unit.
enum Power {
    /// The unit differs between chips, or even between versions of a firmware.
    Unknown,
    Watts(usize),
    Milliwatts(usize),
    WideMilliwatts(usize),
}

/// Cards.
const V1_1: Layout = Layout {
    revision: (1, 1),
    sizes: &[96],
    millidegrees: 1_000,
    edge: Some(4),
    hotspot: Some(6),
    memory: Some(8),
    power: Power::Watts(22),
    graphics_activity: Some(16),
    memory_activity: Some(18),
    graphics_clock: &[54, 40],
    memory_clock: &[58, 44],
    throttle: None,
};

/// Accelerators of many dies: MI300.
const V1_4: Layout = Layout {
    revision: (1, 4),
    sizes: &[288],
    millidegrees: 1_000,
    edge: None,
    hotspot: Some(4),
    memory: Some(6),
    power: Power::Watts(10),
    graphics_activity: Some(12),
    memory_activity: Some(14),
    graphics_clock: &[240],
    memory_clock: &[280],
    throttle: None,
};

/// GPUs on a die with a CPU. Their activity is left out: some chips write shares
/// of a hundred, and some of ten thousand.
const V2_1: Layout = Layout {
    revision: (2, 1),
    sizes: &[120],
    millidegrees: 10,
    edge: Some(4),
    hotspot: None,
    memory: None,
    power: Power::Unknown,
    graphics_activity: None,
    memory_activity: None,
    graphics_clock: &[76, 64],
    memory_clock: &[80, 68],
    throttle: None,
};

const LAYOUTS: [Layout; 15] = [
    Layout {
        revision: (1, 0),
        sizes: &[80],
        edge: Some(16),
        hotspot: Some(18),
        memory: Some(20),
        power: Power::Watts(34),
        graphics_activity: Some(28),
        memory_activity: Some(30),
        ..V1_1
    },
    V1_1,
    Layout {
        revision: (1, 2),
        sizes: &[104],
        ..V1_1
    },
    Layout {
        revision: (1, 3),
        sizes: &[120],
        throttle: Some(112),
        ..V1_1
    },
    V1_4,
    Layout {
        revision: (1, 5),
        sizes: &[360],
        graphics_clock: &[312],
        memory_clock: &[352],
        ..V1_4
    },
    Layout {
        revision: (1, 6),
        sizes: &[1_664],
        graphics_clock: &[264],
        memory_clock: &[304],
        ..V1_4
    },
    Layout {
        revision: (1, 7),
        sizes: &[2_208],
        graphics_clock: &[296],
        memory_clock: &[336],
        ..V1_4
    },
    Layout {
        revision: (1, 8),
        // With and without the last counter of each partition.
        sizes: &[3_360, 3_872],
        graphics_clock: &[296],
        memory_clock: &[336],
        ..V1_4
    },
    Layout {
        revision: (2, 0),
        edge: Some(16),
        graphics_clock: &[80, 68],
        memory_clock: &[84, 72],
        ..V2_1
    },
    V2_1,
    Layout {
        revision: (2, 2),
        sizes: &[128],
        throttle: Some(120),
        ..V2_1
    },
    Layout {
        revision: (2, 3),
        sizes: &[152],
        throttle: Some(120),
        ..V2_1
    },
    Layout {
        revision: (2, 4),
        sizes: &[168],
        power: Power::Milliwatts(40),
        throttle: Some(120),
        ..V2_1
    },
    Layout {
        revision: (3, 0),
        sizes: &[264],
        power: Power::WideMilliwatts(112),
        graphics_clock: &[174],
        memory_clock: &[186],
        ..V2_1
    },
];

/// What each bit of `indep_throttle_status` means (`SMU_THROTTLER_…_BIT` of the
/// kernel's `amdgpu_smu.h`); a bit that has no name yet reads `0x100`.
fn throttle(bits: u64) -> ThrottleReasons {
    const NAMES: [(u32, &str); 34] = [
        (0, "ppt0"),
        (1, "ppt1"),
        (2, "ppt2"),
        (3, "ppt3"),
        (4, "spl"),
        (5, "fppt"),
        (6, "sppt"),
        (7, "sppt_apu"),
        (16, "tdc_gfx"),
        (17, "tdc_soc"),
        (18, "tdc_mem"),
        (19, "tdc_vdd"),
        (20, "tdc_cvip"),
        (21, "edc_cpu"),
        (22, "edc_gfx"),
        (23, "apcc"),
        (32, "temp_gpu"),
        (33, "temp_core"),
        (34, "temp_mem"),
        (35, "temp_edge"),
        (36, "temp_hotspot"),
        (37, "temp_soc"),
        (38, "temp_vr_gfx"),
        (39, "temp_vr_soc"),
        (40, "temp_vr_mem0"),
        (41, "temp_vr_mem1"),
        (42, "temp_liquid0"),
        (43, "temp_liquid1"),
        (44, "vrhot0"),
        (45, "vrhot1"),
        (46, "prochot_cpu"),
        (47, "prochot_gfx"),
        (56, "ppm"),
        (57, "fit"),
    ];
    let named = |place: u32| NAMES.iter().find(|(known, _)| *known == place);
    let names = (0..u64::BITS)
        .filter(|place| bits & (1 << place) != 0)
        .map(|place| match named(place) {
            Some((_, name)) => (*name).to_owned(),
            None => format!("0x{:x}", 1_u64 << place),
        });
    ThrottleReasons(names.collect())
}

#[cfg(test)]
mod tests;
