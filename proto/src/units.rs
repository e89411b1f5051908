//! Quantities with their unit in the type, so that none is mistaken for another.

use serde::{Deserialize, Serialize};

/// An exact number of bytes.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
pub struct Bytes(pub u64);

impl Bytes {
    /// So many MiB.
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

    /// GiB with one decimal, for people to read: `63.1`. A tie goes to the even digit, as
    /// `{:.1}` of [`as_gib`](Self::as_gib) rounds, which costs ten times as much.
    #[must_use]
    pub fn gib_text(self) -> String {
        const GIB: u64 = 1 << 30;
        let tenths = self.0 / GIB * 10 + nearest(self.0 % GIB * 10, GIB);
        let mut text = (tenths / 10).to_string();
        text.push('.');
        text.push_str(&(tenths % 10).to_string());
        text
    }
}

/// The whole number nearest to `number / by`; of two, the even one. `by` is a small factor.
const fn nearest(number: u64, by: u64) -> u64 {
    let (whole, rest) = (number / by, number % by);
    let up = rest * 2 > by || (rest * 2 == by && whole % 2 == 1);
    whole + up as u64
}

/// A share of 100. A utilisation of 0 is a known zero, never an unknown one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Percent(pub u32);

/// Millions of cycles a second.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Megahertz(pub u32);

/// Revolutions a minute.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Rpm(pub u32);

/// Degrees Celsius.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Celsius(pub i32);

/// Thousandths of a watt, the unit NVML reports power in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Milliwatts(pub u64);

impl Milliwatts {
    /// Watts as a fraction, for people to read.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "no board draws 2^53 mW")]
    pub fn as_watts(self) -> f64 {
        self.0 as f64 / 1000.0
    }

    /// The nearest whole watts; of two, the even number, as `{:.0}` of
    /// [`as_watts`](Self::as_watts) rounds.
    #[must_use]
    pub const fn whole_watts(self) -> u64 {
        nearest(self.0, 1000)
    }
}

/// A moment of the wall clock: milliseconds since 1970-01-01 UTC.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
pub struct Timestamp(pub i64);

impl Timestamp {
    /// How long after `earlier` this is; zero when the clock went back.
    #[must_use]
    pub fn since(self, earlier: Timestamp) -> std::time::Duration {
        let milliseconds = self.0.saturating_sub(earlier.0);
        std::time::Duration::from_millis(u64::try_from(milliseconds).unwrap_or(0))
    }

    /// This moment moved by a signed number of seconds.
    #[must_use]
    pub const fn plus_seconds(self, seconds: i64) -> Timestamp {
        Timestamp(self.0.saturating_add(seconds.saturating_mul(1000)))
    }

    /// RFC 3339 in UTC with milliseconds: `2026-11-21T14:02:31.250Z`. A moment
    /// outside the calendar's range prints as its number of milliseconds.
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
    fn sizes_count_as_nvidia_smi_counts() {
        assert_eq!(Bytes(1_048_575).as_mib(), 0);
        assert_eq!(Bytes::mib(80 * 1024).as_mib(), 81_920);
        assert!((Bytes::mib(1536).as_gib() - 1.5).abs() < f64::EPSILON);
    }

    proptest::proptest! {
        #[test]
        fn whole_and_tenths_are_rounded_as_fractions_are(
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
    fn the_greatest_quantities_have_a_text() {
        assert_eq!(Bytes(u64::MAX).gib_text(), "17179869184.0");
        assert_eq!(Milliwatts(u64::MAX).whole_watts(), 18_446_744_073_709_552);
    }

    #[test]
    fn a_clock_that_went_back_gives_no_duration() {
        let earlier = Timestamp(5_000);
        assert_eq!(Timestamp(4_000).since(earlier), std::time::Duration::ZERO);
        assert_eq!(Timestamp(7_500).since(earlier).as_millis(), 2_500);
    }

    #[test]
    fn a_moment_prints_in_utc_with_milliseconds() {
        assert_eq!(Timestamp(0).to_rfc3339(), "1970-01-01T00:00:00.000Z");
        assert_eq!(Timestamp(i64::MAX).to_rfc3339(), i64::MAX.to_string());
    }
}
