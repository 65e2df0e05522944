//! The proleptic Gregorian calendar in UTC, for `std.strftime` and `std.time`.

use copal_base::Time;

const DAY: i64 = 86_400;

/// A moment taken apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Moment {
    /// Seconds since the epoch.
    pub(super) epoch: i64,
    pub(super) year: i64,
    /// 1 to 12.
    pub(super) month: i64,
    /// Day of the month, from 1.
    pub(super) day: i64,
    pub(super) hour: i64,
    pub(super) minute: i64,
    pub(super) second: i64,
    /// Sunday is 0.
    pub(super) weekday: i64,
    /// Day of the year, from 0.
    pub(super) year_day: i64,
}

impl Moment {
    /// The second that `time` lies in; `None` some 12,000 years away from the epoch.
    pub(super) fn new(time: Time) -> Option<Self> {
        // 377,705,116,800 is the first second of the year -9999, counted back from the epoch.
        if !time.is_finite() || time.abs() > 377_705_116_800.0 {
            return None;
        }
        let epoch = time.floor() as i64;
        let (days, rest) = (epoch.div_euclid(DAY), epoch.rem_euclid(DAY));
        let (year, month, day) = civil(days);
        Some(Self {
            epoch,
            year,
            month,
            day,
            hour: rest / 3600,
            minute: rest / 60 % 60,
            second: rest % 60,
            weekday: (days + 4).rem_euclid(7),
            year_day: days - days_of(year, 1, 1),
        })
    }

    /// The ISO 8601 year and week: weeks begin on Monday, the first is the one that holds January 4.
    pub(super) fn iso_week(&self) -> (i64, i64) {
        let monday_based = (self.weekday + 6) % 7;
        let week = (self.year_day - monday_based + 10) / 7;
        if week < 1 {
            (self.year - 1, iso_weeks(self.year - 1))
        } else if week > iso_weeks(self.year) {
            (self.year + 1, 1)
        } else {
            (self.year, week)
        }
    }
}

/// 52 or 53: a year has 53 weeks if it begins or ends on a Thursday.
fn iso_weeks(year: i64) -> i64 {
    let weekday = |month, day| (days_of(year, month, day) + 4).rem_euclid(7);
    if weekday(1, 1) == 4 || weekday(12, 31) == 4 { 53 } else { 52 }
}

/// Days from the epoch to a date.
///
/// Years are counted from March, so that the leap day ends them: a year's day is then `(153 * month + 2) / 5`, and 400
/// years have 146,097 days, of which 719,468 lie between March of the year 0 and the epoch.
pub(super) fn days_of(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * 146_097 + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year - 719_468
}

/// The date of a day since the epoch; the reverse of [`days_of`].
fn civil(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let era = days.div_euclid(146_097);
    let day_of_era = days.rem_euclid(146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let march_month = (5 * day_of_year + 2) / 153;
    let month = if march_month < 10 { march_month + 3 } else { march_month - 9 };
    let year = era * 400 + year_of_era + i64::from(month <= 2);
    (year, month, day_of_year - (153 * march_month + 2) / 5 + 1)
}

/// `YYYY-MM-DDTHH:MM:SS`, in UTC; exactly that.
pub(super) fn iso_time(text: &[u8]) -> Option<Time> {
    let shape = text.len() == 19
        && (text[4], text[7], text[10], text[13], text[16]) == (b'-', b'-', b'T', b':', b':');
    if !shape {
        return None;
    }
    let part = |from: usize, to: usize| {
        text[from..to]
            .iter()
            .try_fold(0i64, |value, byte| byte.is_ascii_digit().then(|| value * 10 + i64::from(byte - b'0')))
    };
    let (year, month, day) = (part(0, 4)?, part(5, 7)?, part(8, 10)?);
    let (hour, minute, second) = (part(11, 13)?, part(14, 16)?, part(17, 19)?);
    let days = days_of(year, month, day);
    let sound = (1..=12).contains(&month)
        && civil(days) == (year, month, day)
        && hour < 24
        && minute < 60
        && second <= 60;
    sound.then(|| (days * DAY + hour * 3600 + minute * 60 + second) as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_and_dates_are_each_others_reverse() {
        for days in (-4_000_000..4_000_000).step_by(97) {
            let (year, month, day) = civil(days);
            assert_eq!(days_of(year, month, day), days);
        }
        assert_eq!(civil(0), (1970, 1, 1));
        assert_eq!(civil(-1), (1969, 12, 31));
        assert_eq!(civil(11_016), (2000, 2, 29));
    }

    #[test]
    fn iso_weeks_at_the_turn_of_years() {
        for (year, month, day, week) in [
            (1994, 11, 6, (1994, 44)),
            (2005, 1, 1, (2004, 53)),
            (2008, 12, 29, (2009, 1)),
            (2010, 1, 3, (2009, 53)),
            (2020, 12, 31, (2020, 53)),
            (2024, 1, 1, (2024, 1)),
        ] {
            let moment = Moment::new((days_of(year, month, day) * DAY) as f64).unwrap();
            assert_eq!(moment.iso_week(), week, "{year}-{month}-{day}");
        }
    }

    #[test]
    fn what_lies_too_far_off_is_refused() {
        assert_eq!(Moment::new(f64::NAN), None);
        assert_eq!(Moment::new(1e300), None);
        assert_eq!(Moment::new(-0.5).unwrap().year, 1969);
        assert_eq!(iso_time(b"2023-02-29T00:00:00"), None);
    }
}
