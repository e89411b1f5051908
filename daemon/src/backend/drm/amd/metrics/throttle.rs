//! The names of throttle reasons.

use gpukill_proto::model::ThrottleReasons;

/// The names of the bits of `indep_throttle_status` (`SMU_THROTTLER_…_BIT` of the kernel's
/// `amdgpu_smu.h`); a bit without a name is shown as `0x100`.
pub(super) fn throttle_reasons(bits: u64) -> ThrottleReasons {
    #[rustfmt::skip]
    const NAMES: [(u32, &str); 34] = [
        (0, "ppt0"), (1, "ppt1"), (2, "ppt2"), (3, "ppt3"), (4, "spl"), (5, "fppt"), (6, "sppt"),
        (7, "sppt_apu"), (16, "tdc_gfx"), (17, "tdc_soc"), (18, "tdc_mem"), (19, "tdc_vdd"),
        (20, "tdc_cvip"), (21, "edc_cpu"), (22, "edc_gfx"), (23, "apcc"), (32, "temp_gpu"),
        (33, "temp_core"), (34, "temp_mem"), (35, "temp_edge"), (36, "temp_hotspot"),
        (37, "temp_soc"), (38, "temp_vr_gfx"), (39, "temp_vr_soc"), (40, "temp_vr_mem0"),
        (41, "temp_vr_mem1"), (42, "temp_liquid0"), (43, "temp_liquid1"), (44, "vrhot0"),
        (45, "vrhot1"), (46, "prochot_cpu"), (47, "prochot_gfx"), (56, "ppm"), (57, "fit"),
    ];
    let named = |bit: u32| NAMES.iter().find(|(known, _)| *known == bit);
    let names = (0..u64::BITS)
        .filter(|bit| bits & (1 << bit) != 0)
        .map(|bit| match named(bit) {
            Some((_, name)) => (*name).to_owned(),
            None => format!("0x{:x}", 1_u64 << bit),
        });
    ThrottleReasons(names.collect())
}
