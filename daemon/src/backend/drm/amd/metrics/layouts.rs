//! Where each known layout of `gpu_metrics` has what: offsets in bytes, from the
//! beginning of its header (`kgd_pp_interface.h` of the kernel).

/// Where a layout has what.
pub(super) struct Layout {
    /// Of format and content.
    pub(super) revision: (u8, u8),
    /// Its length, as the header says it. Another one is another layout.
    pub(super) sizes: &'static [u16],
    /// The unit of its temperatures.
    pub(super) millidegrees: i64,
    pub(super) edge: Option<usize>,
    pub(super) hotspot: Option<usize>,
    pub(super) memory: Option<usize>,
    pub(super) power: Power,
    pub(super) graphics_activity: Option<usize>,
    pub(super) memory_activity: Option<usize>,
    /// The shares of time in which the video units worked.
    pub(super) video_activity: Activity,
    /// The clock now, and after it the one of late.
    pub(super) graphics_clock: &'static [usize],
    pub(super) memory_clock: &'static [usize],
    /// That of the first video unit.
    pub(super) video_clock: &'static [usize],
    /// Rounds a minute.
    pub(super) fan: Option<usize>,
    pub(super) link: Link,
    pub(super) throttle: Throttle,
}

/// Where a layout has how busy units of one kind were.
pub(super) enum Activity {
    /// Chips write it in different units, or not at all.
    Unknown,
    /// In percent, one for each unit.
    Percent(&'static [usize]),
    /// In hundredths of a percent.
    Hundredths(usize),
}

/// Where a layout has the power of the socket, and in which unit.
pub(super) enum Power {
    /// The unit differs between chips, or even between versions of a firmware.
    Unknown,
    Watts(usize),
    Milliwatts(usize),
    WideMilliwatts(usize),
}

/// Where a layout has the lanes of the PCIe link and, right after them, the
/// speed in tenths of GT/s.
pub(super) enum Link {
    /// It has none: beside a CPU there is no link.
    Unknown,
    /// Of eight bits each.
    Bytes(usize),
    /// Of sixteen bits each.
    Words(usize),
}

/// Where a layout has what slows the card, a bit for each reason.
pub(super) enum Throttle {
    /// Only for how long it was slowed.
    Unknown,
    /// 64 bits that mean the same on every chip.
    SameEverywhere(usize),
    /// 32 bits that mean something else on each chip.
    OfEachChip(usize),
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
    video_activity: Activity::Percent(&[20]),
    graphics_clock: &[54, 40],
    memory_clock: &[58, 44],
    video_clock: &[60, 46],
    fan: Some(72),
    link: Link::Words(74),
    throttle: Throttle::OfEachChip(68),
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
    video_activity: Activity::Percent(&[16, 18, 20, 22]),
    graphics_clock: &[240],
    memory_clock: &[280],
    video_clock: &[264],
    fan: None,
    link: Link::Words(48),
    throttle: Throttle::OfEachChip(40),
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
    video_activity: Activity::Unknown,
    graphics_clock: &[76, 64],
    memory_clock: &[80, 68],
    video_clock: &[84, 72],
    // `fan_pwm` is no speed.
    fan: None,
    link: Link::Unknown,
    throttle: Throttle::OfEachChip(108),
};

/// All that are known.
pub(super) const LAYOUTS: [Layout; 15] = [
    Layout {
        revision: (1, 0),
        sizes: &[80],
        edge: Some(16),
        hotspot: Some(18),
        memory: Some(20),
        power: Power::Watts(34),
        graphics_activity: Some(28),
        memory_activity: Some(30),
        video_activity: Activity::Percent(&[32]),
        link: Link::Bytes(74),
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
        throttle: Throttle::SameEverywhere(112),
        ..V1_1
    },
    V1_4,
    Layout {
        revision: (1, 5),
        sizes: &[360],
        graphics_clock: &[312],
        memory_clock: &[352],
        video_clock: &[336],
        link: Link::Words(112),
        throttle: Throttle::OfEachChip(104),
        ..V1_4
    },
    Layout {
        revision: (1, 6),
        sizes: &[1_664],
        // It has that of each partition alone.
        video_activity: Activity::Unknown,
        graphics_clock: &[264],
        memory_clock: &[304],
        video_clock: &[288],
        link: Link::Words(60),
        throttle: Throttle::Unknown,
        ..V1_4
    },
    Layout {
        revision: (1, 7),
        sizes: &[2_208],
        // It has that of each partition alone.
        video_activity: Activity::Unknown,
        graphics_clock: &[296],
        memory_clock: &[336],
        video_clock: &[320],
        link: Link::Words(68),
        throttle: Throttle::Unknown,
        ..V1_4
    },
    Layout {
        revision: (1, 8),
        // With and without the last counter of each partition.
        sizes: &[3_360, 3_872],
        // It has that of each partition alone.
        video_activity: Activity::Unknown,
        graphics_clock: &[296],
        memory_clock: &[336],
        video_clock: &[320],
        link: Link::Words(68),
        throttle: Throttle::Unknown,
        ..V1_4
    },
    Layout {
        revision: (2, 0),
        edge: Some(16),
        graphics_clock: &[80, 68],
        memory_clock: &[84, 72],
        video_clock: &[88, 76],
        throttle: Throttle::OfEachChip(112),
        ..V2_1
    },
    V2_1,
    Layout {
        revision: (2, 2),
        sizes: &[128],
        throttle: Throttle::SameEverywhere(120),
        ..V2_1
    },
    Layout {
        revision: (2, 3),
        sizes: &[152],
        throttle: Throttle::SameEverywhere(120),
        ..V2_1
    },
    Layout {
        revision: (2, 4),
        sizes: &[168],
        power: Power::Milliwatts(40),
        throttle: Throttle::SameEverywhere(120),
        ..V2_1
    },
    Layout {
        revision: (3, 0),
        sizes: &[264],
        // `smu_v14_0_0_ppt.c` copies what the firmware writes.
        video_activity: Activity::Hundredths(44),
        power: Power::WideMilliwatts(112),
        graphics_clock: &[174],
        memory_clock: &[186],
        video_clock: &[184],
        throttle: Throttle::Unknown,
        ..V2_1
    },
];
