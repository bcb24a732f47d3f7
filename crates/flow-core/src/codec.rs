//! Reading and writing small binary records without panics.
//!
//! Little-endian fixed-width numbers, LEB128 lengths. Everything read is checked: bytes from disk
//! and wire are input.

/// Says that bytes ended early or broke a rule.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("malformed {what} at byte {offset}")]
pub struct Malformed {
    /// Names what was being read.
    pub what: &'static str,
    /// Is where in the record, in bytes.
    pub offset: usize,
}

/// Reads a record front to back.
#[derive(Clone, Copy, Debug)]
pub struct Reader<'a> {
    bytes: &'a [u8],
    offset: usize,
}

impl<'a> Reader<'a> {
    /// Starts at the first byte.
    pub fn new(bytes: &'a [u8]) -> Self {
        Reader { bytes, offset: 0 }
    }

    /// Is how far reading has come, in bytes.
    pub fn offset(&self) -> usize {
        self.offset
    }

    /// Says whether every byte was read.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.offset == self.bytes.len()
    }

    /// Makes an error at the present place.
    pub fn malformed(&self, what: &'static str) -> Malformed {
        Malformed {
            what,
            offset: self.offset,
        }
    }

    /// Takes `count` bytes.
    #[inline]
    pub fn bytes(&mut self, count: usize, what: &'static str) -> Result<&'a [u8], Malformed> {
        let rest = &self.bytes[self.offset..];
        let taken = rest.get(..count).ok_or(Malformed {
            what,
            offset: self.offset,
        })?;
        self.offset += count;
        Ok(taken)
    }

    /// Takes all bytes that are left.
    pub fn rest(&mut self) -> &'a [u8] {
        let rest = &self.bytes[self.offset..];
        self.offset = self.bytes.len();
        rest
    }

    /// Takes `N` bytes as an array.
    #[inline]
    pub fn array<const N: usize>(&mut self, what: &'static str) -> Result<[u8; N], Malformed> {
        let mut out = [0; N];
        out.copy_from_slice(self.bytes(N, what)?);
        Ok(out)
    }

    /// Takes one byte.
    #[inline]
    pub fn u8(&mut self, what: &'static str) -> Result<u8, Malformed> {
        Ok(self.array::<1>(what)?[0])
    }

    /// Takes a little-endian `u32`.
    pub fn u32(&mut self, what: &'static str) -> Result<u32, Malformed> {
        self.array(what).map(u32::from_le_bytes)
    }

    /// Takes a little-endian `u64`.
    pub fn u64(&mut self, what: &'static str) -> Result<u64, Malformed> {
        self.array(what).map(u64::from_le_bytes)
    }

    /// Takes a LEB128 number.
    #[inline]
    pub fn varint(&mut self, what: &'static str) -> Result<u64, Malformed> {
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = self.u8(what)?;
            let bits = u64::from(byte & 0x7f);
            if shift == 63 && bits > 1 {
                break;
            }
            value |= bits << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(self.malformed(what))
    }

    /// Takes a length-prefixed byte string.
    #[inline]
    pub fn prefixed(&mut self, what: &'static str) -> Result<&'a [u8], Malformed> {
        let length = self.varint(what)?;
        let length = usize::try_from(length).map_err(|_| self.malformed(what))?;
        self.bytes(length, what)
    }

    /// Takes a length-prefixed UTF-8 text.
    #[inline]
    pub fn text(&mut self, what: &'static str) -> Result<&'a str, Malformed> {
        let at = self.offset;
        std::str::from_utf8(self.prefixed(what)?).map_err(|_| Malformed { what, offset: at })
    }
}

/// Appends a LEB128 number.
#[inline]
pub fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push((value as u8) | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Appends a length-prefixed byte string.
#[inline]
pub fn put_prefixed(out: &mut Vec<u8>, bytes: &[u8]) {
    put_varint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn varints_return_and_overlong_ones_are_refused() {
        for value in [0, 1, 127, 128, 16_383, 16_384, u64::from(u32::MAX), u64::MAX] {
            let mut bytes = Vec::new();
            put_varint(&mut bytes, value);
            assert_eq!(Reader::new(&bytes).varint("n"), Ok(value));
            bytes.pop();
            assert!(Reader::new(&bytes).varint("n").is_err());
        }
        assert!(Reader::new(&[0xff; 10]).varint("n").is_err());
    }
}
