//! Quantities with their unit in the type.

use serde::{Deserialize, Serialize};

/// An exact number of bytes.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
pub struct Bytes(pub u64);

impl Bytes {
    /// A size of `n` MiB.
    #[must_use]
    pub const fn mib(n: u64) -> Self {
        Self(n.saturating_mul(1 << 20))
    }

    /// Whole MiB, rounded down, as `nvidia-smi` counts.
    #[must_use]
    pub const fn as_mib(self) -> u64 {
        self.0 >> 20
    }

    /// GiB as a fraction, for people to read.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "53 bits hold 8 PiB exactly")]
    pub fn as_gib(self) -> f64 {
        self.0 as f64 / (1u64 << 30) as f64
    }

    /// GiB with one decimal, for people to read: `63.1`. Rounds half to even, as `{:.1}` of
    /// [`as_gib`](Self::as_gib) does; formatting the fraction costs ten times as much.
    #[must_use]
    pub fn gib_text(self) -> String {
        const GIB: u64 = 1 << 30;
        let tenths = self.0 / GIB * 10 + round_quotient(self.0 % GIB * 10, GIB);
        let mut text = (tenths / 10).to_string();
        text.push('.');
        text.push_str(&(tenths % 10).to_string());
        text
    }
}

/// The quotient `number / by` rounded to the nearest integer, half to even. `by` must be small
/// enough that twice a remainder does not overflow.
const fn round_quotient(number: u64, by: u64) -> u64 {
    let (whole, remainder) = (number / by, number % by);
    let up = remainder * 2 > by || (remainder * 2 == by && whole % 2 == 1);
    whole + up as u64
}

/// A percentage. A utilization of 0 is a known zero, never an unknown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Percent(pub u32);

/// A frequency in MHz.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Megahertz(pub u32);

/// A rotational speed in revolutions per minute.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Rpm(pub u32);

/// A temperature in degrees Celsius.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Celsius(pub i32);

/// A power in milliwatts, the unit of NVML.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Milliwatts(pub u64);

impl Milliwatts {
    /// Watts as a fraction, for people to read.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "no board draws 2^53 mW")]
    pub fn as_watts(self) -> f64 {
        self.0 as f64 / 1000.0
    }

    /// Watts rounded to the nearest integer, half to even, as `{:.0}` of
    /// [`as_watts`](Self::as_watts) rounds.
    #[must_use]
    pub const fn whole_watts(self) -> u64 {
        round_quotient(self.0, 1000)
    }
}

/// An energy in millijoules, the unit of NVML.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Millijoules(pub u64);

impl Millijoules {
    /// Joules as a fraction.
    #[must_use]
    #[expect(
        clippy::cast_precision_loss,
        reason = "a device draws 2^53 mJ in centuries"
    )]
    pub fn as_joules(self) -> f64 {
        self.0 as f64 / 1000.0
    }
}

/// A point of wall-clock time: milliseconds since 1970-01-01 UTC.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
pub struct Timestamp(pub i64);

impl Timestamp {
    /// The time since `earlier`; zero if the clock went back.
    #[must_use]
    pub fn since(self, earlier: Timestamp) -> std::time::Duration {
        let milliseconds = self.0.saturating_sub(earlier.0);
        std::time::Duration::from_millis(u64::try_from(milliseconds).unwrap_or(0))
    }

    /// This time plus a signed number of seconds.
    #[must_use]
    pub const fn plus_seconds(self, seconds: i64) -> Timestamp {
        Timestamp(self.0.saturating_add(seconds.saturating_mul(1000)))
    }

    /// RFC 3339 in UTC with milliseconds: `2026-11-21T14:02:31.250Z`. A time outside the range
    /// of the calendar prints as its number of milliseconds.
    #[must_use]
    pub fn to_rfc3339(self) -> String {
        chrono::DateTime::from_timestamp_millis(self.0).map_or_else(
            || self.0.to_string(),
            |moment| moment.to_rfc3339_opts(chrono::SecondsFormat::Millis, true),
        )
    }
}

impl std::fmt::Display for Timestamp {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.to_rfc3339())
    }
}

impl From<std::time::SystemTime> for Timestamp {
    fn from(time: std::time::SystemTime) -> Self {
        let milliseconds = match time.duration_since(std::time::UNIX_EPOCH) {
            Ok(after) => i64::try_from(after.as_millis()).unwrap_or(i64::MAX),
            Err(before) => -i64::try_from(before.duration().as_millis()).unwrap_or(i64::MAX),
        };
        Timestamp(milliseconds)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mib_are_rounded_down() {
        assert_eq!(Bytes(1_048_575).as_mib(), 0);
        assert_eq!(Bytes::mib(80 * 1024).as_mib(), 81_920);
        assert!((Bytes::mib(1536).as_gib() - 1.5).abs() < f64::EPSILON);
    }

    proptest::proptest! {
        #[test]
        fn text_rounds_like_the_fraction(
            number in 0..1_u64 << 53,
            halves in 0..1_000_000_u64,
        ) {
            for bytes in [number, halves << 29, halves * (1 << 29) / 10, (halves << 30) / 20] {
                let fraction = format!("{:.1}", Bytes(bytes).as_gib());
                proptest::prop_assert_eq!(Bytes(bytes).gib_text(), fraction);
            }
            for milliwatts in [number, halves * 500] {
                let fraction = format!("{:.0}", Milliwatts(milliwatts).as_watts());
                let whole = Milliwatts(milliwatts).whole_watts().to_string();
                proptest::prop_assert_eq!(whole, fraction);
            }
        }
    }

    #[test]
    fn largest_quantities_have_a_text() {
        assert_eq!(Bytes(u64::MAX).gib_text(), "17179869184.0");
        assert_eq!(Milliwatts(u64::MAX).whole_watts(), 18_446_744_073_709_552);
    }

    #[test]
    fn since_is_zero_after_clock_step_back() {
        let earlier = Timestamp(5_000);
        assert_eq!(Timestamp(4_000).since(earlier), std::time::Duration::ZERO);
        assert_eq!(Timestamp(7_500).since(earlier).as_millis(), 2_500);
    }

    #[test]
    fn rfc3339_is_utc_with_milliseconds() {
        assert_eq!(Timestamp(0).to_rfc3339(), "1970-01-01T00:00:00.000Z");
        assert_eq!(Timestamp(i64::MAX).to_rfc3339(), i64::MAX.to_string());
    }
}
