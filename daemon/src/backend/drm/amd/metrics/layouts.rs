//! The known layouts of `gpu_metrics`: field offsets in bytes from the start of the header
//! (`kgd_pp_interface.h` of the kernel).

pub(super) struct MetricsLayout {
    /// The format and content revision.
    pub(super) revision: (u8, u8),
    /// The possible lengths in the header. Another length is another layout.
    pub(super) sizes: &'static [u16],
    /// Thousandths of a degree in one unit of its temperatures.
    pub(super) millidegrees: i64,
    pub(super) edge: Option<usize>,
    pub(super) hotspot: Option<usize>,
    pub(super) memory: Option<usize>,
    pub(super) power: PowerField,
    pub(super) graphics_activity: Option<usize>,
    pub(super) memory_activity: Option<usize>,
    pub(super) video_activity: ActivityField,
    /// The current clock, then the average clock.
    pub(super) graphics_clock: &'static [usize],
    pub(super) memory_clock: &'static [usize],
    /// The clock of the first video unit.
    pub(super) video_clock: &'static [usize],
    /// In revolutions a minute.
    pub(super) fan: Option<usize>,
    pub(super) link: LinkField,
    pub(super) throttle: ThrottleField,
}

/// Where a layout has the activity of one kind of unit.
pub(super) enum ActivityField {
    /// Chips write it in different units, or not at all.
    Unknown,
    /// In percent, one field for each unit.
    Percent(&'static [usize]),
    /// In hundredths of a percent.
    Hundredths(usize),
}

/// Where a layout has the socket power, and in which unit.
pub(super) enum PowerField {
    /// The unit differs between chips, or even between versions of a firmware.
    Unknown,
    Watts(usize),
    Milliwatts(usize),
    WideMilliwatts(usize),
}

/// Where a layout has the lanes of the PCIe link, followed by the speed in tenths of GT/s.
pub(super) enum LinkField {
    /// The layout has none: a GPU beside a CPU has no link.
    Unknown,
    /// Eight bits each.
    Bytes(usize),
    /// Sixteen bits each.
    Words(usize),
}

/// Where a layout has the throttle reasons, one bit a reason.
pub(super) enum ThrottleField {
    /// The layout only has throttle durations.
    Unknown,
    /// 64 bits with the same meaning on every chip.
    Common(usize),
    /// 32 bits with a different meaning on each chip.
    ChipSpecific(usize),
}

/// Discrete cards.
const V1_1: MetricsLayout = MetricsLayout {
    revision: (1, 1),
    sizes: &[96],
    millidegrees: 1_000,
    edge: Some(4),
    hotspot: Some(6),
    memory: Some(8),
    power: PowerField::Watts(22),
    graphics_activity: Some(16),
    memory_activity: Some(18),
    video_activity: ActivityField::Percent(&[20]),
    graphics_clock: &[54, 40],
    memory_clock: &[58, 44],
    video_clock: &[60, 46],
    fan: Some(72),
    link: LinkField::Words(74),
    throttle: ThrottleField::ChipSpecific(68),
};

/// Accelerators of many dies: MI300.
const V1_4: MetricsLayout = MetricsLayout {
    revision: (1, 4),
    sizes: &[288],
    millidegrees: 1_000,
    edge: None,
    hotspot: Some(4),
    memory: Some(6),
    power: PowerField::Watts(10),
    graphics_activity: Some(12),
    memory_activity: Some(14),
    video_activity: ActivityField::Percent(&[16, 18, 20, 22]),
    graphics_clock: &[240],
    memory_clock: &[280],
    video_clock: &[264],
    fan: None,
    link: LinkField::Words(48),
    throttle: ThrottleField::ChipSpecific(40),
};

const V1_7: MetricsLayout = MetricsLayout {
    revision: (1, 7),
    sizes: &[2_208],
    // Only the activity of each partition is available.
    video_activity: ActivityField::Unknown,
    graphics_clock: &[296],
    memory_clock: &[336],
    video_clock: &[320],
    link: LinkField::Words(68),
    throttle: ThrottleField::Unknown,
    ..V1_4
};

/// GPUs on a die with a CPU. The activity is left out: some chips write it in percent, others in
/// hundredths of a percent.
const V2_1: MetricsLayout = MetricsLayout {
    revision: (2, 1),
    sizes: &[120],
    millidegrees: 10,
    edge: Some(4),
    hotspot: None,
    memory: None,
    power: PowerField::Unknown,
    graphics_activity: None,
    memory_activity: None,
    video_activity: ActivityField::Unknown,
    graphics_clock: &[76, 64],
    memory_clock: &[80, 68],
    video_clock: &[84, 72],
    // `fan_pwm` is not a speed.
    fan: None,
    link: LinkField::Unknown,
    throttle: ThrottleField::ChipSpecific(108),
};

pub(super) const LAYOUTS: [MetricsLayout; 15] = [
    MetricsLayout {
        revision: (1, 0),
        sizes: &[80],
        edge: Some(16),
        hotspot: Some(18),
        memory: Some(20),
        power: PowerField::Watts(34),
        graphics_activity: Some(28),
        memory_activity: Some(30),
        video_activity: ActivityField::Percent(&[32]),
        link: LinkField::Bytes(74),
        ..V1_1
    },
    V1_1,
    MetricsLayout {
        revision: (1, 2),
        sizes: &[104],
        ..V1_1
    },
    MetricsLayout {
        revision: (1, 3),
        sizes: &[120],
        throttle: ThrottleField::Common(112),
        ..V1_1
    },
    V1_4,
    MetricsLayout {
        revision: (1, 5),
        sizes: &[360],
        graphics_clock: &[312],
        memory_clock: &[352],
        video_clock: &[336],
        link: LinkField::Words(112),
        throttle: ThrottleField::ChipSpecific(104),
        ..V1_4
    },
    MetricsLayout {
        revision: (1, 6),
        sizes: &[1_664],
        // Only the activity of each partition is available.
        video_activity: ActivityField::Unknown,
        graphics_clock: &[264],
        memory_clock: &[304],
        video_clock: &[288],
        link: LinkField::Words(60),
        throttle: ThrottleField::Unknown,
        ..V1_4
    },
    V1_7,
    MetricsLayout {
        revision: (1, 8),
        // With and without the last counter of each partition.
        sizes: &[3_360, 3_872],
        ..V1_7
    },
    MetricsLayout {
        revision: (2, 0),
        edge: Some(16),
        graphics_clock: &[80, 68],
        memory_clock: &[84, 72],
        video_clock: &[88, 76],
        throttle: ThrottleField::ChipSpecific(112),
        ..V2_1
    },
    V2_1,
    MetricsLayout {
        revision: (2, 2),
        sizes: &[128],
        throttle: ThrottleField::Common(120),
        ..V2_1
    },
    MetricsLayout {
        revision: (2, 3),
        sizes: &[152],
        throttle: ThrottleField::Common(120),
        ..V2_1
    },
    MetricsLayout {
        revision: (2, 4),
        sizes: &[168],
        power: PowerField::Milliwatts(40),
        throttle: ThrottleField::Common(120),
        ..V2_1
    },
    MetricsLayout {
        revision: (3, 0),
        sizes: &[264],
        // `smu_v14_0_0_ppt.c` copies the firmware's values.
        video_activity: ActivityField::Hundredths(44),
        power: PowerField::WideMilliwatts(112),
        graphics_clock: &[174],
        memory_clock: &[186],
        video_clock: &[184],
        throttle: ThrottleField::Unknown,
        ..V2_1
    },
];
