//! A PCI address as NVML writes it: an eight-digit domain, upper case, `00000000:1B:00.0`.

use std::fmt;

use serde::Deserialize;

/// The PCI address of a GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub(crate) struct PciAddress {
    pub(crate) domain: u32,
    pub(crate) bus: u8,
    pub(crate) device: u8,
    pub(crate) function: u8,
}

impl PciAddress {
    /// Parses an address with a domain of any length, in either case: NVML and sysfs differ in
    /// both.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (rest, function) = text.split_once('.')?;
        let (domain, rest) = rest.split_once(':')?;
        let (bus, device) = rest.split_once(':')?;
        Some(Self {
            domain: u32::from_str_radix(domain, 16).ok()?,
            bus: u8::from_str_radix(bus, 16).ok()?,
            device: u8::from_str_radix(device, 16).ok()?,
            function: u8::from_str_radix(function, 16).ok()?,
        })
    }

    /// The form of old NVML, with room for only four digits of domain.
    pub(crate) fn legacy(self) -> String {
        let Self {
            domain,
            bus,
            device,
            function,
        } = self;
        format!(
            "{:04X}:{bus:02X}:{device:02X}.{function:X}",
            domain & 0xffff
        )
    }
}

impl fmt::Display for PciAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            domain,
            bus,
            device,
            function,
        } = self;
        write!(f, "{domain:08X}:{bus:02X}:{device:02X}.{function:X}")
    }
}

impl TryFrom<String> for PciAddress {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        Self::parse(&text)
            .ok_or_else(|| format!("{text:?} is not a PCI address (00000000:1B:00.0)"))
    }
}
