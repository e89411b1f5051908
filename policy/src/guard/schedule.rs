//! Hours of the week, in civil time: as the box's people count it. Windows may cross
//! midnight. The daemon turns moments into civil time; nothing here knows a zone.

use serde::Serialize;

/// A moment, as the box's people count time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Civil {
    /// Which day of the week it is.
    pub day: Day,
    /// Minutes since midnight, as clocks on the wall show it: 0 to 1439.
    pub minute: u16,
}

/// A day of the week.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize)]
pub enum Day {
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

impl Day {
    /// From Monday on.
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
    pub const fn before(self) -> Self {
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

    /// As rules have it.
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

/// Some hours of some days. Begins at `from`, ends before `to`; where `to` is not
/// after `from`, it ends on the day after. Its days are those on which it begins.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct Hours {
    /// Minutes since midnight.
    pub from: u16,
    /// Minutes since midnight, at most 1440.
    pub to: u16,
    /// On every day where this is empty.
    pub days: Vec<Day>,
}

impl Hours {
    /// Whether a moment lies in it.
    #[must_use]
    pub fn contains(&self, moment: Civil) -> bool {
        let is_day = |day: Day| self.days.is_empty() || self.days.contains(&day);
        let Civil { day, minute } = moment;
        if self.from < self.to {
            return is_day(day) && (self.from..self.to).contains(&minute);
        }
        (is_day(day) && minute >= self.from) || (is_day(day.before()) && minute < self.to)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(day: Day, hour: u16, minute: u16) -> Civil {
        Civil {
            day,
            minute: hour * 60 + minute,
        }
    }

    #[test]
    fn a_window_ends_before_its_last_minute() {
        let hours = Hours {
            from: 9 * 60,
            to: 17 * 60,
            days: vec![Day::Monday, Day::Friday],
        };
        for (moment, is_in) in [
            (at(Day::Monday, 8, 59), false),
            (at(Day::Monday, 9, 0), true),
            (at(Day::Monday, 16, 59), true),
            (at(Day::Monday, 17, 0), false),
            (at(Day::Tuesday, 12, 0), false),
            (at(Day::Friday, 12, 0), true),
        ] {
            assert_eq!(hours.contains(moment), is_in, "{moment:?}");
        }
    }

    #[test]
    fn a_window_across_midnight_belongs_to_the_day_it_begins_on() {
        let hours = Hours {
            from: 22 * 60,
            to: 6 * 60,
            days: vec![Day::Friday],
        };
        for (moment, is_in) in [
            (at(Day::Friday, 5, 0), false),
            (at(Day::Friday, 21, 59), false),
            (at(Day::Friday, 22, 0), true),
            (at(Day::Saturday, 5, 59), true),
            (at(Day::Saturday, 6, 0), false),
            (at(Day::Saturday, 22, 0), false),
        ] {
            assert_eq!(hours.contains(moment), is_in, "{moment:?}");
        }
    }

    #[test]
    fn a_window_from_a_time_to_the_same_is_a_whole_day() {
        let hours = Hours {
            from: 0,
            to: 0,
            days: vec![Day::Sunday],
        };
        assert!(hours.contains(at(Day::Sunday, 23, 59)));
        assert!(!hours.contains(at(Day::Monday, 0, 0)));
        assert!(!hours.contains(at(Day::Saturday, 23, 59)));
    }
}
