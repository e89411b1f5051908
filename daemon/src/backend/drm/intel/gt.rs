//! The GTs of a card: the parts with clocks and idle states of their own. xe has
//! them below tiles, i915 below the card, and an old i915 is one itself.

use super::super::card::Card;
use super::super::sysfs;
use gpukill_proto::collect::SortIndirect as _;
use gpukill_proto::reading::Reading;
use gpukill_proto::snapshot::ThrottleReasons;
use gpukill_proto::units::Megahertz;
use std::path::{Path, PathBuf};

/// No card has more tiles, and no tile more GTs.
const MOST: usize = 16;

/// One GT.
pub(super) struct Gt {
    /// Its directory.
    pub(super) place: PathBuf,
    layout: Layout,
    /// Whether it renders and computes; else it has video engines alone.
    pub(super) renders: bool,
}

/// What a GT's files are called.
#[derive(Clone, Copy)]
enum Layout {
    Xe,
    I915,
    /// Before it had a directory for each GT (2022).
    OldI915,
}

/// All GTs of a card.
pub(super) fn of(card: &Card) -> Vec<Gt> {
    let tiles = tiles(card);
    if !tiles.is_empty() {
        let places = tiles.iter().flat_map(|tile| numbered(tile, "gt"));
        return places
            .map(|place| Gt {
                renders: !is_media(&place),
                layout: Layout::Xe,
                place,
            })
            .collect();
    }
    let places = numbered(&card.directory.join("gt"), "gt");
    if places.is_empty() {
        return vec![Gt {
            place: card.directory.clone(),
            layout: Layout::OldI915,
            renders: true,
        }];
    }
    let built_in = super::is_built_in(card);
    places
        .into_iter()
        .enumerate()
        .map(|(at, place)| Gt {
            place,
            layout: Layout::I915,
            // Built in, the second one is for media (Meteor Lake); on a card it is
            // another tile.
            renders: at == 0 || !built_in,
        })
        .collect()
}

/// The directories of a card's tiles; none below i915.
pub(super) fn tiles(card: &Card) -> Vec<PathBuf> {
    numbered(&card.device(), "tile")
}

/// The entries called like this, with a number after it.
fn numbered(directory: &Path, word: &str) -> Vec<PathBuf> {
    let is_numbered = |name: &str| {
        let number = name.strip_prefix(word).unwrap_or_default();
        !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit())
    };
    sysfs::entries(directory)
        .into_iter()
        .filter(|(name, _)| is_numbered(name))
        .map(|(_, path)| path)
        .take(MOST)
        .collect()
}

/// Whether a GT of xe has video engines alone: its idle state is called
/// `gt1-mc`, where others are `gt0-rc` (xe_gt_idle.c).
fn is_media(place: &Path) -> bool {
    let name = sysfs::text(&place.join("gtidle/name"));
    name.known().is_some_and(|name| name.ends_with("-mc"))
}

impl Gt {
    /// What it runs at now; 0 while it is idle. The clock that was asked for
    /// (`cur_freq`) is never read: xe wakes the GT for it.
    pub(super) fn clock(&self) -> Reading<Megahertz> {
        megahertz(&self.place.join(match self.layout {
            Layout::Xe => "freq0/act_freq",
            Layout::I915 => "rps_act_freq_mhz",
            Layout::OldI915 => "gt_act_freq_mhz",
        }))
    }

    /// The fastest it can run at, whatever is allowed now.
    pub(super) fn clock_max(&self) -> Reading<Megahertz> {
        megahertz(&self.place.join(match self.layout {
            Layout::Xe => "freq0/rp0_freq",
            Layout::I915 => "rps_RP0_freq_mhz",
            Layout::OldI915 => "gt_RP0_freq_mhz",
        }))
    }

    /// How long it was idle since its driver was loaded, in milliseconds. One that
    /// never was has no idle state, or may not use it: it is not busy for that.
    pub(super) fn idle(&self) -> Reading<u64> {
        let (idle, allowed) = match self.layout {
            Layout::Xe => ("gtidle/idle_residency_ms", None),
            Layout::I915 => ("rc6_residency_ms", Some("rc6_enable")),
            Layout::OldI915 => ("power/rc6_residency_ms", Some("power/rc6_enable")),
        };
        let allowed = allowed.map(|file| sysfs::text(&self.place.join(file)));
        if allowed.is_some_and(|it| it.known().is_some_and(|it| it == "0")) {
            return Reading::Unsupported;
        }
        match sysfs::number(&self.place.join(idle)) {
            Reading::Value(0) => Reading::Unsupported,
            reading => reading,
        }
    }

    /// What holds its clocks down now. Asked reason by reason only while its
    /// status says that something does.
    fn throttle(&self) -> Reading<Vec<String>> {
        let (directory, prefix, status) = match self.layout {
            Layout::Xe => (self.place.join("freq0/throttle"), "reason_", "status"),
            Layout::I915 => (
                self.place.clone(),
                "throttle_reason_",
                "throttle_reason_status",
            ),
            Layout::OldI915 => return Reading::Unsupported,
        };
        match sysfs::number(&directory.join(status)) {
            Reading::Value(0) => return Reading::Value(Vec::new()),
            Reading::Value(_) => {}
            unknown => return unknown.because(),
        }
        let holds = |file: &Path| sysfs::number(file).known().is_some_and(|it| *it != 0);
        let reasons: Vec<String> = sysfs::entries(&directory)
            .into_iter()
            .filter(|(name, _)| name != status)
            .filter_map(|(name, file)| Some((name.strip_prefix(prefix)?.to_owned(), file)))
            .take(64)
            .filter(|(_, file)| holds(file))
            .map(|(reason, _)| word(&reason))
            .collect();
        if reasons.is_empty() {
            // One that has no file yet, or that has just ended.
            return Reading::Value(vec!["other".into()]);
        }
        Reading::Value(reasons)
    }
}

/// What holds the clocks of any of them down.
pub(super) fn throttle(gts: &[Gt]) -> Reading<ThrottleReasons> {
    let mut all = Vec::new();
    let mut told = false;
    for gt in gts {
        match gt.throttle() {
            Reading::Value(reasons) => {
                told = true;
                all.extend(reasons);
            }
            Reading::Failed(why) => return Reading::Failed(why),
            Reading::Unsupported | Reading::Stale(..) | Reading::Withheld => {}
        }
    }
    if !told {
        return Reading::Unsupported;
    }
    all.sort_indirect();
    all.dedup();
    Reading::Value(ThrottleReasons(all))
}

/// A reason in the words that NVML's reasons have, where it means the same; else
/// as the driver calls it. `pl1` and `pl2` are the limits of power over seconds
/// and over milliseconds. `pl4` is one of current, and `ratl` of a temperature's
/// running average: NVML has no words for these.
fn word(reason: &str) -> String {
    match reason {
        "pl1" | "pl2" | "psys_pl1" | "psys_pl2" => "sw_power_cap",
        "thermal" | "soc_thermal" | "soc_avg_thermal" | "mem_thermal" => "hw_thermal",
        other => return gpukill_proto::text::visible(other.as_bytes(), 32),
    }
    .into()
}

/// A clock in millions of cycles a second.
pub(super) fn megahertz(file: &Path) -> Reading<Megahertz> {
    match sysfs::number(file) {
        Reading::Value(number) => match u32::try_from(number) {
            // No clock runs at 100 GHz.
            Ok(number) if number <= 100_000 => Reading::Value(Megahertz(number)),
            Ok(_) | Err(_) => Reading::Failed("the driver reports more than 100 GHz".into()),
        },
        unknown => unknown.because(),
    }
}
