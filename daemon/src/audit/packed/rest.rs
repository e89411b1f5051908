//! The numbers of a blob, one after the other.

use super::read::Broken;
use gpukill_policy::usage::{DeviceUsage, Gauge};

/// The most devices or processes that are read of one blob.
const MOST: u64 = 1 << 20;

/// A gauge as it is written.
#[derive(Clone, Copy)]
pub(super) enum Value {
    Unsupported,
    Failed,
    Known {
        most: u64,
        lacking: u128,
    },
    Partly {
        most: u64,
        lacking: u128,
        known_ms: u64,
        is_failed: bool,
    },
}

impl Value {
    /// Of something that was there for so long.
    pub(super) fn gauge(self, ms: u64) -> Result<Gauge, Broken> {
        let (most, lacking, known_ms, is_failed) = match self {
            Self::Unsupported => return Ok(Gauge::default()),
            Self::Failed => {
                return Ok(Gauge {
                    is_failed: true,
                    ..Gauge::default()
                });
            }
            Self::Known { most, lacking } => (most, lacking, ms, false),
            Self::Partly {
                most,
                lacking,
                known_ms,
                is_failed,
            } => (most, lacking, known_ms, is_failed),
        };
        let all = u128::from(most) * u128::from(known_ms);
        Ok(Gauge {
            most: Some(most),
            known_ms,
            total: all.checked_sub(lacking).ok_or(Broken)?,
            is_failed,
        })
    }
}

/// What is not read yet, as postcard writes it: seven bits of a number to a byte, the
/// lowest first, and the number of a variant before what it holds.
pub(super) struct Rest<'a>(pub(super) &'a [u8]);

impl Rest<'_> {
    fn byte(&mut self) -> Result<u8, Broken> {
        let (first, rest) = self.0.split_first().ok_or(Broken)?;
        self.0 = rest;
        Ok(*first)
    }

    pub(super) fn number(&mut self) -> Result<u64, Broken> {
        let mut number = 0;
        for shift in (0..u64::BITS).step_by(7) {
            let byte = self.byte()?;
            let bits = u64::from(byte & 0x7f);
            number |= bits << shift;
            if byte & 0x80 == 0 {
                let is_whole = (bits << shift) >> shift == bits;
                return if is_whole { Ok(number) } else { Err(Broken) };
            }
        }
        Err(Broken)
    }

    fn long_number(&mut self) -> Result<u128, Broken> {
        let mut number = 0;
        for shift in (0..u128::BITS).step_by(7) {
            let byte = self.byte()?;
            let bits = u128::from(byte & 0x7f);
            number |= bits << shift;
            if byte & 0x80 == 0 {
                let is_whole = (bits << shift) >> shift == bits;
                return if is_whole { Ok(number) } else { Err(Broken) };
            }
        }
        Err(Broken)
    }

    pub(super) fn skip_number(&mut self) -> Result<(), Broken> {
        let last = self.0.iter().position(|byte| byte & 0x80 == 0);
        let rest = self.0.get(last.ok_or(Broken)? + 1..);
        self.0 = rest.unwrap_or_default();
        Ok(())
    }

    pub(super) fn skip_value(&mut self) -> Result<(), Broken> {
        let numbers = match self.number()? {
            0 | 1 => 0,
            // The kind of an amount, the amount, and what is lacking.
            2 => 3,
            // And for how long it was known, and whether it failed.
            3 => 5,
            _ => return Err(Broken),
        };
        for _ in 0..numbers {
            self.skip_number()?;
        }
        Ok(())
    }

    /// So many numbers of half a byte each, the first of two in the lower half.
    pub(super) fn half_bytes(&mut self, many: usize) -> Result<impl Iterator<Item = u8>, Broken> {
        let (halves, rest) = self.0.split_at_checked(many.div_ceil(2)).ok_or(Broken)?;
        self.0 = rest;
        Ok(halves.iter().flat_map(|both| [both & 0xf, both >> 4]))
    }

    /// How many devices or runs follow.
    pub(super) fn many(&mut self) -> Result<u64, Broken> {
        let many = self.number()?;
        if many > MOST { Err(Broken) } else { Ok(many) }
    }

    pub(super) fn flag(&mut self) -> Result<bool, Broken> {
        match self.byte()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(Broken),
        }
    }

    /// A number with a sign: twice as much, and one more below zero.
    fn signed(&mut self) -> Result<i32, Broken> {
        let folded = u32::try_from(self.number()?).map_err(|_| Broken)?;
        let half = (folded >> 1).cast_signed();
        Ok(if folded & 1 == 0 { half } else { !half })
    }

    fn amount(&mut self) -> Result<u64, Broken> {
        match self.number()? {
            0 => self.number(),
            1 => self.number()?.checked_mul(1 << 20).ok_or(Broken),
            _ => Err(Broken),
        }
    }

    pub(super) fn value(&mut self) -> Result<Value, Broken> {
        match self.number()? {
            0 => Ok(Value::Unsupported),
            1 => Ok(Value::Failed),
            2 => Ok(Value::Known {
                most: self.amount()?,
                lacking: self.long_number()?,
            }),
            3 => Ok(Value::Partly {
                most: self.amount()?,
                lacking: self.long_number()?,
                known_ms: self.number()?,
                is_failed: self.flag()?,
            }),
            _ => Err(Broken),
        }
    }

    /// Goes on behind the device.
    pub(super) fn index_of_device(&mut self) -> Result<u32, Broken> {
        let index = u32::try_from(self.number()?).map_err(|_| Broken)?;
        for _ in 0..4 {
            self.skip_number()?;
        }
        for _ in 0..3 {
            self.skip_value()?;
        }
        if self.flag()? {
            self.skip_number()?;
        }
        Ok(index)
    }

    pub(super) fn device(&mut self, seen_ms: u64) -> Result<DeviceUsage, Broken> {
        let index = u32::try_from(self.number()?).map_err(|_| Broken)?;
        let ms = seen_ms.checked_sub(self.number()?).ok_or(Broken)?;
        let (held_ms, free_ms, unknown_ms) = (self.number()?, self.number()?, self.number()?);
        let other = held_ms.checked_add(free_ms);
        let other = other.and_then(|ms| ms.checked_add(unknown_ms));
        Ok(DeviceUsage {
            index,
            busy_ms: ms.checked_sub(other.ok_or(Broken)?).ok_or(Broken)?,
            held_ms,
            free_ms,
            unknown_ms,
            memory: self.value()?.gauge(ms)?,
            utilization: self.value()?.gauge(ms)?,
            power: self.value()?.gauge(ms)?,
            hottest: if self.flag()? {
                Some(self.signed()?)
            } else {
                None
            },
        })
    }
}
