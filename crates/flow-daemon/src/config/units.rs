//! Durations and sizes as people write them: a whole number and a unit.
//!
//! Sizes are binary only (`KiB` is 1024 bytes), so that nobody has to guess what `MB` means.

use std::fmt;
use std::time::Duration;

/// Is a number of bytes; its text form is the largest exact unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Size(pub u64);

/// Lists the duration units with their length in milliseconds.
const DURATION_UNITS: [(&str, u64); 5] = [
    ("ms", 1),
    ("s", 1_000),
    ("m", 60_000),
    ("h", 3_600_000),
    ("d", 86_400_000),
];

/// Lists the size units with their bytes.
const SIZE_UNITS: [(&str, u64); 5] = [
    ("B", 1),
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
    ("TiB", 1 << 40),
];

/// Reads a duration such as `500ms`, `10s`, `5m`, `1h`, `7d`.
///
/// # Errors
/// A sentence for the user if the text is no duration.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    number_and_unit(text, &DURATION_UNITS)
        .map(Duration::from_millis)
        .ok_or_else(|| {
            format!(
                "'{}' is not a duration; write a whole number and ms, s, m, h or d, such as \"500ms\" or \"10s\"",
                clip(text)
            )
        })
}

/// Reads a size such as `64MiB`.
///
/// # Errors
/// A sentence for the user if the text is no size.
pub fn parse_size(text: &str) -> Result<Size, String> {
    number_and_unit(text, &SIZE_UNITS).map(Size).ok_or_else(|| {
        format!(
            "'{}' is not a size; write a whole number and B, KiB, MiB, GiB or TiB, such as \"64MiB\"",
            clip(text)
        )
    })
}

fn number_and_unit(text: &str, units: &[(&str, u64)]) -> Option<u64> {
    let text = text.trim();
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let number: u64 = text[..digits].parse().ok()?;
    let unit = text[digits..].trim_start();
    let (_, factor) = units.iter().find(|(name, _)| *name == unit)?;
    number.checked_mul(*factor)
}

/// Shortens a text for a message.
pub fn clip(text: &str) -> String {
    /// Longer texts are no typing errors but something pasted; a message need not repeat them.
    const CHARS_MAX: usize = 64;
    match text.char_indices().nth(CHARS_MAX) {
        Some((end, _)) => format!("{}…", text[..end].escape_debug()),
        None => text.escape_debug().to_string(),
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (unit, factor) = SIZE_UNITS
            .iter()
            .rev()
            .find(|(_, factor)| self.0 >= *factor && self.0.is_multiple_of(*factor))
            .unwrap_or(&SIZE_UNITS[0]);
        write!(f, "{}{unit}", self.0 / factor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations() {
        let check = |text: &str, ms: Option<u64>| {
            assert_eq!(parse_duration(text).ok(), ms.map(Duration::from_millis), "{text}");
        };
        check("500ms", Some(500));
        check("10s", Some(10_000));
        check(" 5 m ", Some(300_000));
        check("1h", Some(3_600_000));
        check("7d", Some(604_800_000));
        check("0s", Some(0));
        for bad in [
            "",
            "s",
            "10",
            "1.5h",
            "-1s",
            "1 hour",
            "1H",
            "ms500",
            "1s 5ms",
            "18446744073709551615d",
            "99999999999999999999s",
            "ü",
        ] {
            check(bad, None);
        }
    }

    #[test]
    fn sizes() {
        let check = |text: &str, bytes: Option<u64>| assert_eq!(parse_size(text).ok().map(|s| s.0), bytes, "{text}");
        check("64MiB", Some(64 << 20));
        check("1GiB", Some(1 << 30));
        check("512 B", Some(512));
        for bad in ["64", "64MB", "64mib", "", "-1MiB", "1.5GiB", "99999999999TiB"] {
            check(bad, None);
        }
        assert_eq!(Size(64 << 20).to_string(), "64MiB");
        assert_eq!(Size(1025).to_string(), "1025B");
        assert_eq!(Size(0).to_string(), "0B");
    }

    #[test]
    fn messages_stay_short() {
        let long = "x".repeat(5000);
        assert!(parse_duration(&long).expect_err("no duration").len() < 250);
    }
}
