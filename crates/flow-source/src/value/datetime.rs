//! Dates and times: PostgreSQL counts from 2000-01-01, the lake from 1970-01-01.
//!
//! Text follows PostgreSQL's ISO style (`EncodeDateOnly`, `EncodeTimeOnly`, `EncodeDateTime`).

use std::io::Write;

use flow_core::clock::civil_from_days;

use super::{ValueError, fixed};

/// Counts the days from 1970-01-01 to 2000-01-01.
const EPOCH_DAYS: i32 = 10_957;
const DAY_US: i64 = 86_400_000_000;
const EPOCH_US: i64 = EPOCH_DAYS as i64 * DAY_US;

/// Is days since 1970-01-01.
pub(super) fn date(bytes: &[u8]) -> Result<i32, ValueError> {
    match i32::from_be_bytes(fixed(bytes)?) {
        i32::MAX | i32::MIN => Err(ValueError::Unfit("an infinite date")),
        days => days.checked_add(EPOCH_DAYS).ok_or(ValueError::Malformed("date")),
    }
}

/// Is microseconds since 1970-01-01 00:00:00.
pub(super) fn timestamp(bytes: &[u8]) -> Result<i64, ValueError> {
    match i64::from_be_bytes(fixed(bytes)?) {
        i64::MAX | i64::MIN => Err(ValueError::Unfit("an infinite timestamp")),
        micros => micros
            .checked_add(EPOCH_US)
            .ok_or(ValueError::Unfit("a timestamp past the range of the lake's timestamps")),
    }
}

fn time(bytes: &[u8]) -> Result<i64, ValueError> {
    match i64::from_be_bytes(fixed(bytes)?) {
        micros @ 0..=DAY_US => Ok(micros),
        _ => Err(ValueError::Malformed("time")),
    }
}

/// Is microseconds since midnight.
pub(super) fn time_below_24h(bytes: &[u8]) -> Result<i64, ValueError> {
    match time(bytes)? {
        DAY_US => Err(ValueError::Unfit("the time 24:00:00")),
        micros => Ok(micros),
    }
}

/// Writes a date, `infinity` included.
pub(super) fn render_date(bytes: &[u8], out: &mut Vec<u8>) -> Result<(), ValueError> {
    match i32::from_be_bytes(fixed(bytes)?) {
        i32::MAX => out.extend_from_slice(b"infinity"),
        i32::MIN => out.extend_from_slice(b"-infinity"),
        days => {
            let before_christ = put_date(i64::from(days), out);
            put_era(before_christ, out);
        }
    }
    Ok(())
}

/// Writes a time of day.
pub(super) fn render_time(bytes: &[u8], out: &mut Vec<u8>) -> Result<(), ValueError> {
    put_time(time(bytes)?, out);
    Ok(())
}

/// Writes a timestamp, with `+00` after it where it has a zone.
pub(super) fn render_timestamp(bytes: &[u8], zone: bool, out: &mut Vec<u8>) -> Result<(), ValueError> {
    match i64::from_be_bytes(fixed(bytes)?) {
        i64::MAX => out.extend_from_slice(b"infinity"),
        i64::MIN => out.extend_from_slice(b"-infinity"),
        micros => {
            let before_christ = put_date(micros.div_euclid(DAY_US), out);
            out.push(b' ');
            put_time(micros.rem_euclid(DAY_US), out);
            if zone {
                out.extend_from_slice(b"+00");
            }
            put_era(before_christ, out);
        }
    }
    Ok(())
}

/// Writes `YYYY-MM-DD` of a day counted from 2000-01-01; says whether it lies before Christ.
fn put_date(days: i64, out: &mut Vec<u8>) -> bool {
    let (year, month, day) = civil_from_days(days + i64::from(EPOCH_DAYS));
    let before_christ = year <= 0;
    let year = if before_christ { 1 - year } else { year };
    write!(out, "{year:04}-{month:02}-{day:02}").expect("a vector takes every write");
    before_christ
}

fn put_era(before_christ: bool, out: &mut Vec<u8>) {
    if before_christ {
        out.extend_from_slice(b" BC");
    }
}

fn put_time(micros: i64, out: &mut Vec<u8>) {
    let (seconds, fraction) = (micros / 1_000_000, micros % 1_000_000);
    let (hour, minute, second) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    write!(out, "{hour:02}:{minute:02}:{second:02}").expect("a vector takes every write");
    if fraction > 0 {
        write!(out, ".{fraction:06}").expect("a vector takes every write");
        while out.last() == Some(&b'0') {
            out.pop();
        }
    }
}
