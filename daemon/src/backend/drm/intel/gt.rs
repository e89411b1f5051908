//! Reads the GTs of a card: the units with clocks and idle states of their own. xe has them below
//! tiles, i915 below the card; an older i915 has no directories for them, and the card is its only
//! GT.

use super::super::card::DrmCard;
use super::super::sysfs;
use gpukill_proto::collect::SortIndirect as _;
use gpukill_proto::model::ThrottleReasons;
use gpukill_proto::reading::Reading;
use gpukill_proto::units::Megahertz;
use std::path::{Path, PathBuf};

/// No card has more tiles, and no tile more GTs.
const MAX_UNITS: usize = 16;

pub(super) struct Gt {
    pub(super) directory: PathBuf,
    layout: GtLayout,
    /// Whether it renders and computes; otherwise it has only video engines.
    pub(super) renders: bool,
}

/// The naming of a GT's files.
#[derive(Clone, Copy)]
enum GtLayout {
    Xe,
    I915,
    /// i915 before it had a directory for each GT (2022).
    OldI915,
}

pub(super) fn list_gts(card: &DrmCard) -> Vec<Gt> {
    let tiles = tiles(card);
    if !tiles.is_empty() {
        let directories = tiles.iter().flat_map(|tile| numbered_entries(tile, "gt"));
        return directories
            .map(|directory| Gt {
                renders: !is_media(&directory),
                layout: GtLayout::Xe,
                directory,
            })
            .collect();
    }
    let directories = numbered_entries(&card.directory.join("gt"), "gt");
    if directories.is_empty() {
        return vec![Gt {
            directory: card.directory.clone(),
            layout: GtLayout::OldI915,
            renders: true,
        }];
    }
    let built_in = super::is_built_in(card);
    directories
        .into_iter()
        .enumerate()
        .map(|(at, directory)| Gt {
            directory,
            layout: GtLayout::I915,
            // In a processor the second GT is for media (Meteor Lake); on a card it is another
            // tile.
            renders: at == 0 || !built_in,
        })
        .collect()
}

/// The directories of a card's tiles; none under i915.
pub(super) fn tiles(card: &DrmCard) -> Vec<PathBuf> {
    numbered_entries(&card.device_directory(), "tile")
}

fn numbered_entries(directory: &Path, word: &str) -> Vec<PathBuf> {
    let is_numbered = |name: &str| {
        let number = name.strip_prefix(word).unwrap_or_default();
        !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit())
    };
    sysfs::entries(directory)
        .into_iter()
        .filter(|(name, _)| is_numbered(name))
        .map(|(_, path)| path)
        .take(MAX_UNITS)
        .collect()
}

/// Whether a GT of xe has only video engines: its idle state is named `gt1-mc`, others `gt0-rc`
/// (xe_gt_idle.c).
fn is_media(directory: &Path) -> bool {
    let name = sysfs::text(&directory.join("gtidle/name"));
    name.known().is_some_and(|name| name.ends_with("-mc"))
}

impl Gt {
    /// The current clock; 0 while the GT is idle. The requested clock (`cur_freq`) is never read:
    /// xe wakes the GT for it.
    pub(super) fn clock(&self) -> Reading<Megahertz> {
        read_megahertz(&self.directory.join(match self.layout {
            GtLayout::Xe => "freq0/act_freq",
            GtLayout::I915 => "rps_act_freq_mhz",
            GtLayout::OldI915 => "gt_act_freq_mhz",
        }))
    }

    /// The highest possible clock, above the current limit too.
    pub(super) fn clock_max(&self) -> Reading<Megahertz> {
        read_megahertz(&self.directory.join(match self.layout {
            GtLayout::Xe => "freq0/rp0_freq",
            GtLayout::I915 => "rps_RP0_freq_mhz",
            GtLayout::OldI915 => "gt_RP0_freq_mhz",
        }))
    }

    /// The idle time since the driver was loaded, in milliseconds. A GT that was never idle has no
    /// idle state, or may not use it: that does not make it busy.
    pub(super) fn idle_ms(&self) -> Reading<u64> {
        let (idle, allowed) = match self.layout {
            GtLayout::Xe => ("gtidle/idle_residency_ms", None),
            GtLayout::I915 => ("rc6_residency_ms", Some("rc6_enable")),
            GtLayout::OldI915 => ("power/rc6_residency_ms", Some("power/rc6_enable")),
        };
        let allowed = allowed.map(|file| sysfs::text(&self.directory.join(file)));
        if allowed.is_some_and(|it| it.known().is_some_and(|it| it == "0")) {
            return Reading::Unsupported;
        }
        match sysfs::number(&self.directory.join(idle)) {
            Reading::Value(0) => Reading::Unsupported,
            reading => reading,
        }
    }

    /// The current throttle reasons. Each reason is read only while the status reports throttling.
    fn throttle(&self) -> Reading<Vec<String>> {
        let (directory, prefix, status) = match self.layout {
            GtLayout::Xe => (self.directory.join("freq0/throttle"), "reason_", "status"),
            GtLayout::I915 => (
                self.directory.clone(),
                "throttle_reason_",
                "throttle_reason_status",
            ),
            GtLayout::OldI915 => return Reading::Unsupported,
        };
        match sysfs::number(&directory.join(status)) {
            Reading::Value(0) => return Reading::Value(Vec::new()),
            Reading::Value(_) => {}
            unknown => return unknown.as_unknown(),
        }
        let holds = |file: &Path| sysfs::number(file).known().is_some_and(|it| *it != 0);
        let reasons: Vec<String> = sysfs::entries(&directory)
            .into_iter()
            .filter(|(name, _)| name != status)
            .filter_map(|(name, file)| Some((name.strip_prefix(prefix)?.to_owned(), file)))
            .take(64)
            .filter(|(_, file)| holds(file))
            .map(|(reason, _)| reason_name(&reason))
            .collect();
        if reasons.is_empty() {
            // A reason without a file yet, or one that has just ended.
            return Reading::Value(vec!["other".into()]);
        }
        Reading::Value(reasons)
    }
}

pub(super) fn throttle_reasons(gts: &[Gt]) -> Reading<ThrottleReasons> {
    let mut all = Vec::new();
    let mut is_reported = false;
    for gt in gts {
        match gt.throttle() {
            Reading::Value(reasons) => {
                is_reported = true;
                all.extend(reasons);
            }
            Reading::Failed(why) => return Reading::Failed(why),
            Reading::Unsupported | Reading::Stale(..) | Reading::Withheld => {}
        }
    }
    if !is_reported {
        return Reading::Unsupported;
    }
    all.sort_indirect();
    all.dedup();
    Reading::Value(ThrottleReasons(all))
}

/// The NVML name of a reason with the same meaning, else the driver's name. `pl1` and `pl2` are the
/// power limits over seconds and over milliseconds. `pl4` is a current limit, and `ratl` a limit of
/// the average temperature: NVML has no names for these.
fn reason_name(reason: &str) -> String {
    match reason {
        "pl1" | "pl2" | "psys_pl1" | "psys_pl2" => "sw_power_cap",
        "thermal" | "soc_thermal" | "soc_avg_thermal" | "mem_thermal" => "hw_thermal",
        other => return gpukill_proto::text::sanitize(other.as_bytes(), 32),
    }
    .into()
}

pub(super) fn read_megahertz(file: &Path) -> Reading<Megahertz> {
    match sysfs::number(file) {
        Reading::Value(number) => match u32::try_from(number) {
            // No clock runs at 100 GHz.
            Ok(number) if number <= 100_000 => Reading::Value(Megahertz(number)),
            Ok(_) | Err(_) => Reading::Failed("the driver reports more than 100 GHz".into()),
        },
        unknown => unknown.as_unknown(),
    }
}
