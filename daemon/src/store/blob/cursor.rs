//! Reads the numbers of a blob one after another.

use super::decode::BlobError;
use gpukill_policy::usage::{DeviceUsage, Gauge};

/// The most devices or runs that are read from one blob.
const MAX_ITEMS: u64 = 1 << 20;

#[derive(Clone, Copy)]
pub(super) enum DecodedGauge {
    Unsupported,
    Failed,
    Known {
        max: u64,
        deficit: u128,
    },
    Partial {
        max: u64,
        deficit: u128,
        known_ms: u64,
        is_failed: bool,
    },
}

impl DecodedGauge {
    /// Decodes the gauge of something that was present for `ms`.
    pub(super) fn to_gauge(self, ms: u64) -> Result<Gauge, BlobError> {
        let (max, deficit, known_ms, is_failed) = match self {
            Self::Unsupported => return Ok(Gauge::default()),
            Self::Failed => {
                return Ok(Gauge {
                    is_failed: true,
                    ..Gauge::default()
                });
            }
            Self::Known { max, deficit } => (max, deficit, ms, false),
            Self::Partial {
                max,
                deficit,
                known_ms,
                is_failed,
            } => (max, deficit, known_ms, is_failed),
        };
        let all = u128::from(max) * u128::from(known_ms);
        Ok(Gauge {
            max: Some(max),
            known_ms,
            total: all.checked_sub(deficit).ok_or(BlobError)?,
            is_failed,
        })
    }
}

/// The unread rest of a blob in postcard: seven bits of a number per byte, the lowest first, and
/// the index of a variant before its fields.
pub(super) struct BlobCursor<'a>(pub(super) &'a [u8]);

impl BlobCursor<'_> {
    fn take_byte(&mut self) -> Result<u8, BlobError> {
        let (first, rest) = self.0.split_first().ok_or(BlobError)?;
        self.0 = rest;
        Ok(*first)
    }

    pub(super) fn take_number(&mut self) -> Result<u64, BlobError> {
        let mut number = 0;
        for shift in (0..u64::BITS).step_by(7) {
            let byte = self.take_byte()?;
            let bits = u64::from(byte & 0x7f);
            number |= bits << shift;
            if byte & 0x80 == 0 {
                let fits = (bits << shift) >> shift == bits;
                return if fits { Ok(number) } else { Err(BlobError) };
            }
        }
        Err(BlobError)
    }

    fn take_long_number(&mut self) -> Result<u128, BlobError> {
        let mut number = 0;
        for shift in (0..u128::BITS).step_by(7) {
            let byte = self.take_byte()?;
            let bits = u128::from(byte & 0x7f);
            number |= bits << shift;
            if byte & 0x80 == 0 {
                let fits = (bits << shift) >> shift == bits;
                return if fits { Ok(number) } else { Err(BlobError) };
            }
        }
        Err(BlobError)
    }

    pub(super) fn skip_number(&mut self) -> Result<(), BlobError> {
        let last = self.0.iter().position(|byte| byte & 0x80 == 0);
        let rest = self.0.get(last.ok_or(BlobError)? + 1..);
        self.0 = rest.unwrap_or_default();
        Ok(())
    }

    pub(super) fn skip_value(&mut self) -> Result<(), BlobError> {
        let numbers = match self.take_number()? {
            0 | 1 => 0,
            // The unit of the amount, the amount, and what is lacking.
            2 => 3,
            // Also for how long the gauge was known, and whether it failed.
            3 => 5,
            _ => return Err(BlobError),
        };
        for _ in 0..numbers {
            self.skip_number()?;
        }
        Ok(())
    }

    /// Takes this many numbers of half a byte each, the first of two in the lower half.
    pub(super) fn take_half_bytes(
        &mut self,
        count: usize,
    ) -> Result<impl Iterator<Item = u8>, BlobError> {
        let (bytes, rest) = self
            .0
            .split_at_checked(count.div_ceil(2))
            .ok_or(BlobError)?;
        self.0 = rest;
        Ok(bytes.iter().flat_map(|both| [both & 0xf, both >> 4]))
    }

    /// Takes the number of devices or runs that follow.
    pub(super) fn take_length(&mut self) -> Result<u64, BlobError> {
        let count = self.take_number()?;
        if count > MAX_ITEMS {
            Err(BlobError)
        } else {
            Ok(count)
        }
    }

    pub(super) fn take_flag(&mut self) -> Result<bool, BlobError> {
        match self.take_byte()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(BlobError),
        }
    }

    /// Takes a signed number, zigzag-encoded: twice the number, or one less than twice its absolute
    /// value below zero.
    fn take_signed(&mut self) -> Result<i32, BlobError> {
        let folded = u32::try_from(self.take_number()?).map_err(|_| BlobError)?;
        let half = (folded >> 1).cast_signed();
        Ok(if folded & 1 == 0 { half } else { !half })
    }

    fn take_amount(&mut self) -> Result<u64, BlobError> {
        match self.take_number()? {
            0 => self.take_number(),
            1 => self.take_number()?.checked_mul(1 << 20).ok_or(BlobError),
            _ => Err(BlobError),
        }
    }

    pub(super) fn take_gauge(&mut self) -> Result<DecodedGauge, BlobError> {
        match self.take_number()? {
            0 => Ok(DecodedGauge::Unsupported),
            1 => Ok(DecodedGauge::Failed),
            2 => Ok(DecodedGauge::Known {
                max: self.take_amount()?,
                deficit: self.take_long_number()?,
            }),
            3 => Ok(DecodedGauge::Partial {
                max: self.take_amount()?,
                deficit: self.take_long_number()?,
                known_ms: self.take_number()?,
                is_failed: self.take_flag()?,
            }),
            _ => Err(BlobError),
        }
    }

    /// Takes the index of a device and skips the rest of the device.
    pub(super) fn take_device_index(&mut self) -> Result<u32, BlobError> {
        let index = u32::try_from(self.take_number()?).map_err(|_| BlobError)?;
        for _ in 0..4 {
            self.skip_number()?;
        }
        for _ in 0..3 {
            self.skip_value()?;
        }
        if self.take_flag()? {
            self.skip_number()?;
        }
        Ok(index)
    }

    pub(super) fn take_device(&mut self, seen_ms: u64) -> Result<DeviceUsage, BlobError> {
        let index = u32::try_from(self.take_number()?).map_err(|_| BlobError)?;
        let ms = seen_ms.checked_sub(self.take_number()?).ok_or(BlobError)?;
        let (held_ms, free_ms, unknown_ms) = (
            self.take_number()?,
            self.take_number()?,
            self.take_number()?,
        );
        let other = held_ms.checked_add(free_ms);
        let other = other.and_then(|ms| ms.checked_add(unknown_ms));
        Ok(DeviceUsage {
            index,
            busy_ms: ms.checked_sub(other.ok_or(BlobError)?).ok_or(BlobError)?,
            held_ms,
            free_ms,
            unknown_ms,
            memory: self.take_gauge()?.to_gauge(ms)?,
            utilization: self.take_gauge()?.to_gauge(ms)?,
            power: self.take_gauge()?.to_gauge(ms)?,
            hottest: if self.take_flag()? {
                Some(self.take_signed()?)
            } else {
                None
            },
        })
    }
}
