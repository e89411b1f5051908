//! Hours of the week in the local time of the host. Windows may cross midnight. The daemon
//! converts moments to local time; nothing here knows a time zone.

use serde::Serialize;

/// A moment in local time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct LocalTime {
    /// Day of the week.
    pub day: Weekday,
    /// Minutes since midnight, as wall clocks show it: 0 to 1439.
    pub minute: u16,
}

/// A day of the week.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize)]
pub enum Weekday {
    /// Monday
    #[default]
    Monday,
    /// Tuesday
    Tuesday,
    /// Wednesday
    Wednesday,
    /// Thursday
    Thursday,
    /// Friday
    Friday,
    /// Saturday
    Saturday,
    /// Sunday
    Sunday,
}

impl Weekday {
    /// All days, from Monday on.
    pub const ALL: [Self; 7] = [
        Self::Monday,
        Self::Tuesday,
        Self::Wednesday,
        Self::Thursday,
        Self::Friday,
        Self::Saturday,
        Self::Sunday,
    ];

    /// The day before.
    #[must_use]
    pub const fn previous(self) -> Self {
        match self {
            Self::Monday => Self::Sunday,
            Self::Tuesday => Self::Monday,
            Self::Wednesday => Self::Tuesday,
            Self::Thursday => Self::Wednesday,
            Self::Friday => Self::Thursday,
            Self::Saturday => Self::Friday,
            Self::Sunday => Self::Saturday,
        }
    }

    /// The name in the rules.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Monday => "Monday",
            Self::Tuesday => "Tuesday",
            Self::Wednesday => "Wednesday",
            Self::Thursday => "Thursday",
            Self::Friday => "Friday",
            Self::Saturday => "Saturday",
            Self::Sunday => "Sunday",
        }
    }
}

/// A time window on some days. It begins at `from` and ends before `to`; if `to` is not
/// after `from`, it ends on the next day. Its days are those on which it begins.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct Hours {
    /// Minutes since midnight.
    pub from: u16,
    /// Minutes since midnight, at most 1440.
    pub to: u16,
    /// Every day if empty.
    pub days: Vec<Weekday>,
}

impl Hours {
    /// Whether the window contains a moment.
    #[must_use]
    pub fn contains(&self, moment: LocalTime) -> bool {
        let is_day = |day: Weekday| self.days.is_empty() || self.days.contains(&day);
        let LocalTime { day, minute } = moment;
        if self.from < self.to {
            return is_day(day) && (self.from..self.to).contains(&minute);
        }
        (is_day(day) && minute >= self.from) || (is_day(day.previous()) && minute < self.to)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(day: Weekday, hour: u16, minute: u16) -> LocalTime {
        LocalTime {
            day,
            minute: hour * 60 + minute,
        }
    }

    #[test]
    fn window_end_is_exclusive() {
        let hours = Hours {
            from: 9 * 60,
            to: 17 * 60,
            days: vec![Weekday::Monday, Weekday::Friday],
        };
        for (moment, is_in) in [
            (at(Weekday::Monday, 8, 59), false),
            (at(Weekday::Monday, 9, 0), true),
            (at(Weekday::Monday, 16, 59), true),
            (at(Weekday::Monday, 17, 0), false),
            (at(Weekday::Tuesday, 12, 0), false),
            (at(Weekday::Friday, 12, 0), true),
        ] {
            assert_eq!(hours.contains(moment), is_in, "{moment:?}");
        }
    }

    #[test]
    fn midnight_window_belongs_to_start_day() {
        let hours = Hours {
            from: 22 * 60,
            to: 6 * 60,
            days: vec![Weekday::Friday],
        };
        for (moment, is_in) in [
            (at(Weekday::Friday, 5, 0), false),
            (at(Weekday::Friday, 21, 59), false),
            (at(Weekday::Friday, 22, 0), true),
            (at(Weekday::Saturday, 5, 59), true),
            (at(Weekday::Saturday, 6, 0), false),
            (at(Weekday::Saturday, 22, 0), false),
        ] {
            assert_eq!(hours.contains(moment), is_in, "{moment:?}");
        }
    }

    #[test]
    fn equal_ends_span_a_day() {
        let hours = Hours {
            from: 0,
            to: 0,
            days: vec![Weekday::Sunday],
        };
        assert!(hours.contains(at(Weekday::Sunday, 23, 59)));
        assert!(!hours.contains(at(Weekday::Monday, 0, 0)));
        assert!(!hours.contains(at(Weekday::Saturday, 23, 59)));
    }
}
