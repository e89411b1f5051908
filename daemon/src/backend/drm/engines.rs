//! The names that each driver gives to its engines and its memory.
//!
//! One table. A driver that is not listed is read by the most common names.

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Driver {
    /// The name in `drm-driver`, then the kernel's names of the device driver where they differ.
    names: &'static [&'static str],
    /// The prefixes of the card's own memory regions.
    own_regions: &'static [&'static str],
    /// The engines for which [`default_role`] is wrong, or that are known to exist.
    engines: &'static [(&'static str, EngineRole)],
    /// Each client reports its engines, at least those that it used.
    reports_engines: bool,
    /// An engine that a client never used is not reported.
    pub(crate) omits_unused_engines: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EngineRole {
    Graphics,
    Compute,
    /// Copying, scaling, or anything else.
    Other,
    Decoder,
    Encoder,
    /// One engine that encodes and decodes: its time counts for both.
    Codec,
    /// Not an engine of the GPU.
    None,
}

/// The kinds of work for which a utilization is computed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EngineWork {
    /// Everything but video.
    Main,
    Encode,
    Decode,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RegionKind {
    /// The card's own.
    Own,
    /// The host's, as the card sees it.
    Host,
    /// Neither: registers and doorbells.
    Neither,
}

const DRIVERS: &[Driver] = &[
    Driver {
        names: &["amdgpu"],
        own_regions: &["vram"],
        engines: &[
            ("dec", EngineRole::Decoder),
            ("jpeg", EngineRole::Decoder),
            ("enc", EngineRole::Encoder),
            ("enc_1", EngineRole::Encoder),
        ],
        reports_engines: true,
        omits_unused_engines: true,
    },
    Driver {
        names: &["i915"],
        own_regions: &["local", "stolen-local"],
        engines: &[("video", EngineRole::Codec)],
        reports_engines: true,
        omits_unused_engines: false,
    },
    Driver {
        names: &["xe"],
        own_regions: &["vram"],
        engines: &[("vcs", EngineRole::Codec)],
        reports_engines: true,
        omits_unused_engines: false,
    },
    Driver {
        names: &["nouveau"],
        own_regions: &["vram"],
        engines: &[],
        reports_engines: false,
        omits_unused_engines: false,
    },
    // On a bus without PCI the driver of the display may stand for that of the GPU.
    integrated_driver(
        &["msm", "msm_dpu", "msm_mdp", "msm-mdss", "adreno"],
        &[],
        true,
    ),
    // Jobs of its `cpu` queue run on the host.
    integrated_driver(
        &["v3d", "vc4-drm", "vc4"],
        &[("cpu", EngineRole::None)],
        true,
    ),
    integrated_driver(&["etnaviv"], &[], true),
    integrated_driver(&["lima"], &[], true),
    // These drivers count only when profiling is enabled (`profiling` in sysfs).
    integrated_driver(&["panfrost"], &[], false),
    integrated_driver(&["panthor"], &[], false),
    integrated_driver(&["asahi", "apple-gpu"], &[], false),
];

const UNKNOWN_DRIVER: Driver = Driver {
    names: &[],
    own_regions: &["vram", "local"],
    engines: &[],
    reports_engines: false,
    omits_unused_engines: false,
};

/// A driver of GPUs without memory of their own.
const fn integrated_driver(
    names: &'static [&'static str],
    engines: &'static [(&'static str, EngineRole)],
    tells_engines: bool,
) -> Driver {
    Driver {
        names,
        own_regions: &[],
        engines,
        reports_engines: tells_engines,
        omits_unused_engines: false,
    }
}

/// Looks up a driver by any of its names.
pub(crate) fn driver_by_name(name: &str) -> &'static Driver {
    DRIVERS
        .iter()
        .find(|driver| driver.names.contains(&name))
        .unwrap_or(&UNKNOWN_DRIVER)
}

/// Whether both names belong to the same driver.
pub(crate) fn is_same_driver(one: &str, other: &str) -> bool {
    one == other || driver_by_name(one).names.contains(&other)
}

impl Driver {
    pub(crate) fn role(&self, engine: &str) -> EngineRole {
        let known = self.engines.iter().find(|(name, _)| *name == engine);
        known.map_or_else(|| default_role(engine), |(_, role)| *role)
    }

    pub(crate) fn region_kind(&self, region: &str) -> RegionKind {
        if self.own_regions.iter().any(|own| region.starts_with(own)) {
            RegionKind::Own
        } else if NON_MEMORY_REGIONS.contains(&region) {
            RegionKind::Neither
        } else {
            RegionKind::Host
        }
    }

    /// Whether such work may be reported under an engine with another role: newer video units of
    /// amdgpu decode everything but JPEG in the encoder's queue, and have no queue for decoding.
    pub(crate) fn may_hide_work(
        &self,
        work: EngineWork,
        is_reported: impl Fn(&str) -> bool,
    ) -> bool {
        let one_queue = || is_reported("enc") && !is_reported("dec");
        self.omits_unused_engines && work == EngineWork::Decode && one_queue()
    }

    /// Whether the clients always report how much of this work they do.
    pub(crate) fn reports_work(&self, work: EngineWork) -> bool {
        let has_engine = self.engines.iter().any(|(_, role)| role.serves(work));
        self.reports_engines && (work == EngineWork::Main || has_engine)
    }
}

/// amdgpu regions that are not memory.
const NON_MEMORY_REGIONS: [&str; 5] = ["gds", "gws", "oa", "doorbell", "mmioremap"];

/// The role of an engine of this name with most drivers.
fn default_role(engine: &str) -> EngineRole {
    match engine {
        "gfx" | "render" | "rcs" | "3d" | "3D" | "fragment" | "vertex-tiler" | "bin" | "gp"
        | "pp" => EngineRole::Graphics,
        "compute" | "ccs" | "csd" | "compute-only" => EngineRole::Compute,
        "vcs" | "video" | "vcn" => EngineRole::Codec,
        "dec" | "vdec" | "decode" | "decoder" | "jpeg" => EngineRole::Decoder,
        "enc" | "venc" | "encode" | "encoder" => EngineRole::Encoder,
        _ => EngineRole::Other,
    }
}

impl EngineRole {
    /// Whether an engine with this role does such work.
    pub(crate) fn serves(self, work: EngineWork) -> bool {
        match self {
            Self::Graphics | Self::Compute | Self::Other => work == EngineWork::Main,
            Self::Decoder => work == EngineWork::Decode,
            Self::Encoder => work == EngineWork::Encode,
            Self::Codec => work != EngineWork::Main,
            Self::None => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn engine_roles_of_each_driver() {
        let cases = [
            ("amdgpu", "gfx", EngineRole::Graphics),
            ("amdgpu", "compute", EngineRole::Compute),
            ("amdgpu", "dma", EngineRole::Other),
            ("amdgpu", "vpe", EngineRole::Other),
            ("amdgpu", "dec", EngineRole::Decoder),
            ("amdgpu", "jpeg", EngineRole::Decoder),
            ("amdgpu", "enc_1", EngineRole::Encoder),
            ("i915", "render", EngineRole::Graphics),
            ("i915", "copy", EngineRole::Other),
            ("i915", "video", EngineRole::Codec),
            ("i915", "video-enhance", EngineRole::Other),
            ("xe", "rcs", EngineRole::Graphics),
            ("xe", "bcs", EngineRole::Other),
            ("xe", "vcs", EngineRole::Codec),
            ("xe", "vecs", EngineRole::Other),
            ("xe", "ccs", EngineRole::Compute),
            ("v3d", "cpu", EngineRole::None),
            ("v3d", "csd", EngineRole::Compute),
            ("panthor", "panthor", EngineRole::Other),
            ("panfrost", "fragment", EngineRole::Graphics),
            ("msm", "gpu", EngineRole::Other),
            ("unheard", "cpu", EngineRole::Other),
            ("unheard", "vdec", EngineRole::Decoder),
        ];
        for (name, engine, role) in cases {
            assert_eq!(driver_by_name(name).role(engine), role, "{name} {engine}");
        }
    }

    #[test]
    fn region_kinds_of_each_driver() {
        let cases = [
            ("amdgpu", "vram", RegionKind::Own),
            ("amdgpu", "gtt", RegionKind::Host),
            ("amdgpu", "cpu", RegionKind::Host),
            ("amdgpu", "doorbell", RegionKind::Neither),
            ("i915", "local0", RegionKind::Own),
            ("i915", "stolen-local0", RegionKind::Own),
            ("i915", "system0", RegionKind::Host),
            ("i915", "stolen-system", RegionKind::Host),
            ("xe", "vram1", RegionKind::Own),
            ("xe", "stolen", RegionKind::Host),
            ("xe", "gtt", RegionKind::Host),
            ("nouveau", "vram", RegionKind::Own),
            ("nouveau", "gart", RegionKind::Host),
            ("panthor", "memory", RegionKind::Host),
            ("unheard", "vram7", RegionKind::Own),
            ("unheard", "local3", RegionKind::Own),
            ("unheard", "system", RegionKind::Host),
        ];
        for (name, region, memory) in cases {
            assert_eq!(
                driver_by_name(name).region_kind(region),
                memory,
                "{name} {region}"
            );
        }
    }

    #[test]
    fn driver_has_several_names() {
        assert!(is_same_driver("msm_dpu", "msm"));
        assert!(is_same_driver("unheard", "unheard"));
        for (one, other) in [("amdgpu", "xe"), ("unheard", "new"), ("unheard", "amdgpu")] {
            assert!(!is_same_driver(one, other), "{one} {other}");
        }
    }

    #[test]
    fn reported_work_of_each_driver() {
        let reported_work = |name: &str| {
            let works = [EngineWork::Main, EngineWork::Encode, EngineWork::Decode];
            works.map(|work| driver_by_name(name).reports_work(work))
        };
        assert_eq!(reported_work("amdgpu"), [true, true, true]);
        assert_eq!(reported_work("xe"), [true, true, true]);
        assert_eq!(reported_work("v3d"), [true, false, false]);
        assert_eq!(reported_work("panthor"), [false, false, false]);
        assert_eq!(reported_work("unheard"), [false, false, false]);
    }
}
