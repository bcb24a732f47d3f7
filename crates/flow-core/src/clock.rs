//! Time, handed in so that tests can hold it still.

use std::time::Duration;

/// Is a moment in microseconds since 1970-01-01 UTC.
pub type UnixMicros = i64;

/// Tells the time.
pub trait Clock: Send + Sync + std::fmt::Debug {
    /// Is the wall-clock time, for people and metadata. It may jump.
    fn now_us(&self) -> UnixMicros;

    /// Is the time since some fixed moment; it never goes back. For intervals.
    fn monotonic(&self) -> Duration;
}

/// Is microseconds from the Unix epoch to PostgreSQL's (2000-01-01).
pub const POSTGRES_EPOCH_US: i64 = 946_684_800_000_000;
/// Is days from the Unix epoch to PostgreSQL's (2000-01-01).
pub const POSTGRES_EPOCH_DAYS: i32 = 10_957;

/// Writes a moment as ISO 8601 in UTC with microseconds, `2026-11-30T09:05:00.000001Z`.
pub fn iso_utc(at: UnixMicros) -> String {
    let (days, micros) = (at.div_euclid(86_400_000_000), at.rem_euclid(86_400_000_000));
    let (year, month, day) = civil_from_days(days);
    let seconds = micros / 1_000_000;
    let (hour, minute, second) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    format!(
        "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{:06}Z",
        micros % 1_000_000
    )
}

/// Reads what [`iso_utc`] wrote; `None` for any other text.
pub fn parse_iso_utc(text: &str) -> Option<UnixMicros> {
    let (date, time) = text.strip_suffix('Z')?.split_once('T')?;
    let mut date = date.rsplitn(3, '-');
    let (day, month, year) = (date.next()?, date.next()?, date.next()?);
    let (time, micros) = time.split_once('.')?;
    let mut time = time.splitn(3, ':');
    // Narrow parts and checked sums: another program's text is input too.
    let mut next = || time.next()?.parse::<u8>().ok().map(i64::from);
    let seconds = next()? * 3600 + next()? * 60 + next()?;
    let (year, month, day) = (
        year.parse::<i32>().ok()?,
        month.parse::<u8>().ok()?,
        day.parse::<u8>().ok()?,
    );
    let days = days_from_civil(year.into(), month.into(), day.into());
    let of_day = seconds * 1_000_000 + i64::from(micros.parse::<u32>().ok()?);
    let at = days.checked_mul(86_400_000_000)?.checked_add(of_day)?;
    // What does not give the same text again was not ours: a thirteenth month, say.
    (iso_utc(at) == text).then_some(at)
}

/// Counts the days from 1970-01-01 to a date of the proleptic Gregorian calendar.
fn days_from_civil(year: i64, month: i64, day: i64) -> i64 {
    // Years begin in March, so that the leap day is the last; Hinnant, "chrono-compatible low-level date algorithms".
    let year = if month <= 2 { year - 1 } else { year };
    let (era, of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let of_year = (153 * (month + if month > 2 { -3 } else { 9 }) + 2) / 5 + day - 1;
    era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468
}

/// Is the proleptic Gregorian date of a day counted from 1970-01-01: year, month, day.
///
/// Counts in 400-year eras that begin on 1 March, so that the leap day is the last of a year.
pub fn civil_from_days(days: i64) -> (i64, i64, i64) {
    let shifted = days + 719_468;
    let era = shifted.div_euclid(146_097);
    let day_of_era = shifted.rem_euclid(146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 {
        month_from_march + 3
    } else {
        month_from_march - 9
    };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    (year, month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_print_as_iso() {
        assert_eq!(iso_utc(0), "1970-01-01T00:00:00.000000Z");
        assert_eq!(iso_utc(-1), "1969-12-31T23:59:59.999999Z");
        assert_eq!(iso_utc(951_782_400_000_000), "2000-02-29T00:00:00.000000Z");
        assert_eq!(iso_utc(POSTGRES_EPOCH_US), "2000-01-01T00:00:00.000000Z");
        assert_eq!(civil_from_days(i64::from(POSTGRES_EPOCH_DAYS)), (2000, 1, 1));
        assert_eq!(civil_from_days(-719_468), (0, 3, 1));
    }

    #[test]
    fn what_was_written_is_read_again() {
        for at in [0, -1, 951_782_400_000_000, POSTGRES_EPOCH_US, 1_796_000_000_123_456] {
            assert_eq!(parse_iso_utc(&iso_utc(at)), Some(at));
        }
        let wrong = [
            "",
            "2026-13-01T00:00:00.000000Z",
            "2026-02-30T00:00:00.000000Z",
            "2026-01-01T00:00:00Z",
            "2147483647-01-01T00:00:00.000000Z",
            "9223372036854775807-01-01T00:00:00.000000Z",
            "2026-01-01T4294967295:4294967295:4294967295.4294967295Z",
            "2026-255-255T9223372036854775807:00:00.000000Z",
        ];
        for text in wrong {
            assert_eq!(parse_iso_utc(text), None, "{text}");
        }
    }
}
