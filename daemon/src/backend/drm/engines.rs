//! What each driver calls its engines and its memory.
//!
//! One table. A driver that is not in it is read by the names that most use.

/// What one driver means by its words.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Driver {
    /// As in `drm-driver`, then what the kernel calls the driver of the device
    /// itself, where that differs.
    names: &'static [&'static str],
    /// How the names of the card's own memory begin.
    own: &'static [&'static str],
    /// The engines that [`usual_role`] has wrong or that are known to exist.
    engines: &'static [(&'static str, Role)],
    /// Each client tells of its engines, if only of those it used.
    tells_engines: bool,
    /// An engine that a client never used is not told.
    pub(crate) only_when_used: bool,
}

/// What an engine is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    Graphics,
    Compute,
    /// Copies, scales, or does whatever it is asked to.
    Other,
    Decoder,
    Encoder,
    /// One engine that encodes and decodes: its time is that of both.
    Codec,
    /// No engine of the GPU.
    None,
}

/// What is asked of a card's or a process's use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Work {
    /// All but videos.
    Main,
    Encode,
    Decode,
}

/// What a region of memory is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Memory {
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
        own: &["vram"],
        engines: &[
            ("dec", Role::Decoder),
            ("jpeg", Role::Decoder),
            ("enc", Role::Encoder),
            ("enc_1", Role::Encoder),
        ],
        tells_engines: true,
        only_when_used: true,
    },
    Driver {
        names: &["i915"],
        own: &["local", "stolen-local"],
        engines: &[("video", Role::Codec)],
        tells_engines: true,
        only_when_used: false,
    },
    Driver {
        names: &["xe"],
        own: &["vram"],
        engines: &[("vcs", Role::Codec)],
        tells_engines: true,
        only_when_used: false,
    },
    Driver {
        names: &["nouveau"],
        own: &["vram"],
        engines: &[],
        tells_engines: false,
        only_when_used: false,
    },
    // On a bus without PCI the display's driver may stand for the GPU's.
    shares_memory(
        &["msm", "msm_dpu", "msm_mdp", "msm-mdss", "adreno"],
        &[],
        true,
    ),
    // Jobs of its `cpu` queue run on the host.
    shares_memory(&["v3d", "vc4-drm", "vc4"], &[("cpu", Role::None)], true),
    shares_memory(&["etnaviv"], &[], true),
    shares_memory(&["lima"], &[], true),
    // These two count only after somebody asked them to (`profiling` in sysfs).
    shares_memory(&["panfrost"], &[], false),
    shares_memory(&["panthor"], &[], false),
    shares_memory(&["asahi", "apple-gpu"], &[], false),
];

/// Nobody has heard of it.
const UNKNOWN: Driver = Driver {
    names: &[],
    own: &["vram", "local"],
    engines: &[],
    tells_engines: false,
    only_when_used: false,
};

/// A driver of GPUs that have no memory of their own.
const fn shares_memory(
    names: &'static [&'static str],
    engines: &'static [(&'static str, Role)],
    tells_engines: bool,
) -> Driver {
    Driver {
        names,
        own: &[],
        engines,
        tells_engines,
        only_when_used: false,
    }
}

/// The driver of that name, by either of its names.
pub(crate) fn driver(name: &str) -> &'static Driver {
    DRIVERS
        .iter()
        .find(|driver| driver.names.contains(&name))
        .unwrap_or(&UNKNOWN)
}

/// Whether both names are of the same driver.
pub(crate) fn is_same(one: &str, other: &str) -> bool {
    one == other || driver(one).names.contains(&other)
}

impl Driver {
    /// What an engine is for.
    pub(crate) fn role(&self, engine: &str) -> Role {
        let known = self.engines.iter().find(|(name, _)| *name == engine);
        known.map_or_else(|| usual_role(engine), |(_, role)| *role)
    }

    /// What a region is.
    pub(crate) fn memory(&self, region: &str) -> Memory {
        if self.own.iter().any(|own| region.starts_with(own)) {
            Memory::Own
        } else if ON_CHIP.contains(&region) {
            Memory::Neither
        } else {
            Memory::Host
        }
    }

    /// Whether such work may have been done by an engine that is said to do
    /// another: newer video units of amdgpu decode in the encoder's queue, all but
    /// JPEG, and have no queue for it.
    pub(crate) fn may_hide(&self, work: Work, is_told: impl Fn(&str) -> bool) -> bool {
        let one_queue = || is_told("enc") && !is_told("dec");
        self.only_when_used && work == Work::Decode && one_queue()
    }

    /// Whether its clients tell how much of this they do, whatever they do.
    pub(crate) fn tells(&self, work: Work) -> bool {
        let has_engine = self.engines.iter().any(|(_, role)| role.serves(work));
        self.tells_engines && (work == Work::Main || has_engine)
    }
}

/// amdgpu's regions that are not memory.
const ON_CHIP: [&str; 5] = ["gds", "gws", "oa", "doorbell", "mmioremap"];

/// What an engine of this name is for with most drivers.
fn usual_role(engine: &str) -> Role {
    match engine {
        "gfx" | "render" | "rcs" | "3d" | "3D" | "fragment" | "vertex-tiler" | "bin" | "gp"
        | "pp" => Role::Graphics,
        "compute" | "ccs" | "csd" | "compute-only" => Role::Compute,
        "vcs" | "video" | "vcn" => Role::Codec,
        "dec" | "vdec" | "decode" | "decoder" | "jpeg" => Role::Decoder,
        "enc" | "venc" | "encode" | "encoder" => Role::Encoder,
        _ => Role::Other,
    }
}

impl Role {
    /// Whether an engine with this role does such work.
    pub(crate) fn serves(self, work: Work) -> bool {
        match self {
            Self::Graphics | Self::Compute | Self::Other => work == Work::Main,
            Self::Decoder => work == Work::Decode,
            Self::Encoder => work == Work::Encode,
            Self::Codec => work != Work::Main,
            Self::None => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_driver_s_words_mean_what_its_driver_means() {
        let cases = [
            ("amdgpu", "gfx", Role::Graphics),
            ("amdgpu", "compute", Role::Compute),
            ("amdgpu", "dma", Role::Other),
            ("amdgpu", "vpe", Role::Other),
            ("amdgpu", "dec", Role::Decoder),
            ("amdgpu", "jpeg", Role::Decoder),
            ("amdgpu", "enc_1", Role::Encoder),
            ("i915", "render", Role::Graphics),
            ("i915", "copy", Role::Other),
            ("i915", "video", Role::Codec),
            ("i915", "video-enhance", Role::Other),
            ("xe", "rcs", Role::Graphics),
            ("xe", "bcs", Role::Other),
            ("xe", "vcs", Role::Codec),
            ("xe", "vecs", Role::Other),
            ("xe", "ccs", Role::Compute),
            ("v3d", "cpu", Role::None),
            ("v3d", "csd", Role::Compute),
            ("panthor", "panthor", Role::Other),
            ("panfrost", "fragment", Role::Graphics),
            ("msm", "gpu", Role::Other),
            ("unheard", "cpu", Role::Other),
            ("unheard", "vdec", Role::Decoder),
        ];
        for (name, engine, role) in cases {
            assert_eq!(driver(name).role(engine), role, "{name} {engine}");
        }
    }

    #[test]
    fn the_card_s_own_memory_is_told_from_the_host_s() {
        let cases = [
            ("amdgpu", "vram", Memory::Own),
            ("amdgpu", "gtt", Memory::Host),
            ("amdgpu", "cpu", Memory::Host),
            ("amdgpu", "doorbell", Memory::Neither),
            ("i915", "local0", Memory::Own),
            ("i915", "stolen-local0", Memory::Own),
            ("i915", "system0", Memory::Host),
            ("i915", "stolen-system", Memory::Host),
            ("xe", "vram1", Memory::Own),
            ("xe", "stolen", Memory::Host),
            ("xe", "gtt", Memory::Host),
            ("nouveau", "vram", Memory::Own),
            ("nouveau", "gart", Memory::Host),
            ("panthor", "memory", Memory::Host),
            ("unheard", "vram7", Memory::Own),
            ("unheard", "local3", Memory::Own),
            ("unheard", "system", Memory::Host),
        ];
        for (name, region, memory) in cases {
            assert_eq!(driver(name).memory(region), memory, "{name} {region}");
        }
    }

    #[test]
    fn a_driver_is_known_by_the_name_of_its_device_s_driver_too() {
        assert!(is_same("msm_dpu", "msm"));
        assert!(is_same("unheard", "unheard"));
        for (one, other) in [("amdgpu", "xe"), ("unheard", "new"), ("unheard", "amdgpu")] {
            assert!(!is_same(one, other), "{one} {other}");
        }
    }

    #[test]
    fn only_a_driver_with_such_an_engine_is_known_to_tell_of_its_work() {
        let told = |name: &str| {
            let works = [Work::Main, Work::Encode, Work::Decode];
            works.map(|work| driver(name).tells(work))
        };
        assert_eq!(told("amdgpu"), [true, true, true]);
        assert_eq!(told("xe"), [true, true, true]);
        assert_eq!(told("v3d"), [true, false, false]);
        assert_eq!(told("panthor"), [false, false, false]);
        assert_eq!(told("unheard"), [false, false, false]);
    }
}
