//! The product names of common GPUs, for hosts without the lists of names. The numbers and names of
//! AMD's are those of `amdgpu.ids` (libdrm), of Intel's those of `pci.ids`.

/// AMD's product names by device and revision. `ANY` stands for every revision.
const AMD: &[(u16, Option<u8>, &str)] = &[
    // Instinct
    (0x66a1, Some(0x02), "AMD Instinct MI60 / MI50"),
    (0x738c, ANY, "AMD Instinct MI100"),
    (0x7408, ANY, "AMD Instinct MI250X"),
    (0x740c, ANY, "AMD Instinct MI250X / MI250"),
    (0x740f, ANY, "AMD Instinct MI210"),
    (0x74a0, ANY, "AMD Instinct MI300A"),
    (0x74a1, ANY, "AMD Instinct MI300X"),
    (0x74a2, ANY, "AMD Instinct MI308X"),
    (0x74a5, ANY, "AMD Instinct MI325X"),
    (0x74b5, ANY, "AMD Instinct MI300X VF"),
    (0x75a0, ANY, "AMD Instinct MI350X"),
    (0x75a3, ANY, "AMD Instinct MI355X"),
    // Radeon Pro
    (0x7312, ANY, "AMD Radeon Pro W5700"),
    (0x7341, ANY, "AMD Radeon Pro W5500"),
    (0x73a1, ANY, "AMD Radeon Pro V620"),
    (0x73a3, ANY, "AMD Radeon Pro W6800"),
    (0x73e3, ANY, "AMD Radeon Pro W6600"),
    (0x7422, ANY, "AMD Radeon Pro W6400"),
    (0x7448, ANY, "AMD Radeon Pro W7900"),
    (0x7449, ANY, "AMD Radeon Pro W7800 48GB"),
    (0x744a, ANY, "AMD Radeon Pro W7900 Dual Slot"),
    (0x745e, ANY, "AMD Radeon Pro W7800"),
    (0x7460, ANY, "AMD Radeon Pro V710"),
    (0x7470, ANY, "AMD Radeon Pro W7700"),
    (0x7489, ANY, "AMD Radeon Pro W7500"),
    (0x7551, Some(0xc0), "AMD Radeon AI PRO R9700"),
    // Radeon RX
    (0x731f, Some(0xc1), "AMD Radeon RX 5700 XT"),
    (0x731f, Some(0xc4), "AMD Radeon RX 5700"),
    (0x73bf, Some(0xc0), "AMD Radeon RX 6900 XT"),
    (0x73bf, Some(0xc1), "AMD Radeon RX 6800 XT"),
    (0x73bf, Some(0xc3), "AMD Radeon RX 6800"),
    (0x73a5, ANY, "AMD Radeon RX 6950 XT"),
    (0x73df, Some(0xc0), "AMD Radeon RX 6750 XT"),
    (0x73df, Some(0xc1), "AMD Radeon RX 6700 XT"),
    (0x73df, Some(0xc5), "AMD Radeon RX 6700 XT"),
    (0x73ef, Some(0xc1), "AMD Radeon RX 6650 XT"),
    (0x73ff, Some(0xc1), "AMD Radeon RX 6600 XT"),
    (0x73ff, Some(0xc7), "AMD Radeon RX 6600"),
    (0x744c, Some(0xc8), "AMD Radeon RX 7900 XTX"),
    (0x744c, Some(0xcc), "AMD Radeon RX 7900 XT"),
    (0x744c, Some(0xce), "AMD Radeon RX 7900 GRE"),
    (0x747e, Some(0xc8), "AMD Radeon RX 7800 XT"),
    (0x747e, Some(0xff), "AMD Radeon RX 7700 XT"),
    (0x7480, Some(0xc0), "AMD Radeon RX 7600 XT"),
    (0x7480, Some(0xcf), "AMD Radeon RX 7600"),
    (0x7550, Some(0xc0), "AMD Radeon RX 9070 XT"),
    (0x7550, Some(0xc3), "AMD Radeon RX 9070"),
    (0x7590, Some(0xc0), "AMD Radeon RX 9060 XT"),
];

const ANY: Option<u8> = None;

/// Intel's product names by device.
const INTEL: &[(u16, &str)] = &[
    // Data Center GPU
    (0x0bd5, "Intel Data Center GPU Max 1550"),
    (0x0bd6, "Intel Data Center GPU Max 1550"),
    (0x0bd9, "Intel Data Center GPU Max 1100"),
    (0x0bda, "Intel Data Center GPU Max 1100"),
    (0x0bdb, "Intel Data Center GPU Max 1100"),
    (0x56c0, "Intel Data Center GPU Flex 170"),
    (0x56c1, "Intel Data Center GPU Flex 140"),
    // Arc
    (0x5690, "Intel Arc A770M"),
    (0x5691, "Intel Arc A730M"),
    (0x5692, "Intel Arc A550M"),
    (0x5693, "Intel Arc A370M"),
    (0x5694, "Intel Arc A350M"),
    (0x56a0, "Intel Arc A770"),
    (0x56a1, "Intel Arc A750"),
    (0x56a2, "Intel Arc A580"),
    (0x56a5, "Intel Arc A380"),
    (0x56a6, "Intel Arc A310"),
    (0x56b1, "Intel Arc Pro A40/A50"),
    (0x56b3, "Intel Arc Pro A60"),
    (0xe20b, "Intel Arc B580"),
    (0xe20c, "Intel Arc B570"),
    (0xe211, "Intel Arc Pro B60"),
    (0xe212, "Intel Arc Pro B50"),
];

pub(super) fn amd_product(device: u16, revision: Option<u8>) -> Option<&'static str> {
    let mut products = AMD.iter();
    let is_it = |of: Option<u8>| of == ANY || of == revision;
    let product = products.find(|(number, of, _)| *number == device && is_it(*of));
    product.map(|(_, _, name)| *name)
}

pub(super) fn intel_product(device: u16) -> Option<&'static str> {
    let mut products = INTEL.iter();
    let product = products.find(|(number, _)| *number == device);
    product.map(|(_, name)| *name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_depend_on_device_and_revision() {
        let cases = [
            (amd_product(0x74a1, Some(0)), Some("AMD Instinct MI300X")),
            (amd_product(0x74a1, None), Some("AMD Instinct MI300X")),
            (
                amd_product(0x744c, Some(0xc8)),
                Some("AMD Radeon RX 7900 XTX"),
            ),
            (
                amd_product(0x744c, Some(0xcc)),
                Some("AMD Radeon RX 7900 XT"),
            ),
            // An unknown revision may be another product.
            (amd_product(0x744c, Some(1)), None),
            (amd_product(0x744c, None), None),
            (amd_product(0x56a0, None), None),
            (intel_product(0x56a0), Some("Intel Arc A770")),
            (intel_product(0x74a1), None),
        ];
        for (found, expected) in cases {
            assert_eq!(found, expected);
        }
    }

    #[test]
    fn no_device_is_named_twice() {
        let same_amd = |one: &(u16, Option<u8>, &str), other: &(u16, Option<u8>, &str)| {
            one.0 == other.0 && (one.1 == other.1 || one.1 == ANY || other.1 == ANY)
        };
        for (at, product) in AMD.iter().enumerate() {
            assert!(
                !AMD[..at].iter().any(|other| same_amd(product, other)),
                "{product:?}"
            );
        }
        for (at, product) in INTEL.iter().enumerate() {
            assert!(
                !INTEL[..at].iter().any(|other| other.0 == product.0),
                "{product:?}"
            );
        }
    }
}
