//! Positions in PostgreSQL's write-ahead log.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Is a byte position in PostgreSQL's WAL.
///
/// Text form is PostgreSQL's own, `16/B374D848`; JSON uses the text form too.
/// A transaction's LSN is its commit record's *end* LSN.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Lsn(pub u64);

impl Lsn {
    /// Is the position before all others; PostgreSQL calls it invalid.
    pub const ZERO: Lsn = Lsn(0);

    /// Says whether this is PostgreSQL's invalid LSN.
    pub fn is_zero(self) -> bool {
        self.0 == 0
    }

    /// Counts the WAL bytes from `earlier` to `self`; zero if `self` is not later.
    pub fn bytes_since(self, earlier: Lsn) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}

impl fmt::Display for Lsn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:X}/{:X}", self.0 >> 32, self.0 & 0xffff_ffff)
    }
}

/// Says that a text is not an LSN.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' is not an LSN of the form 16/B374D848")]
pub struct ParseLsnError(pub String);

impl FromStr for Lsn {
    type Err = ParseLsnError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let part = |s: &str| {
            let plain = (1..=8).contains(&s.len()) && s.bytes().all(|b| b.is_ascii_hexdigit());
            plain.then(|| u64::from_str_radix(s, 16).ok()).flatten()
        };
        text.split_once('/')
            .and_then(|(high, low)| Some(Lsn((part(high)? << 32) | part(low)?)))
            .ok_or_else(|| ParseLsnError(text.chars().take(64).collect()))
    }
}

impl Serialize for Lsn {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Lsn {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?
            .parse()
            .map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_form_is_postgresqls() {
        let check = |n: u64, text: &str| {
            assert_eq!(Lsn(n).to_string(), text);
            assert_eq!(text.parse(), Ok(Lsn(n)));
        };
        check(0, "0/0");
        check(0x16_B374_D848, "16/B374D848");
        check(u64::MAX, "FFFFFFFF/FFFFFFFF");
        for bad in ["", "/", "1", "1/", "/1", "1/123456789", "1/-2", "1/+2", "g/1", " 1/2"] {
            assert!(bad.parse::<Lsn>().is_err(), "{bad}");
        }
    }
}
