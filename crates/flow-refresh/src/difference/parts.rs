//! Computed and stored rows in files, in parts by a hash of the row: twins are in the same part.

use std::collections::HashMap;
use std::fs::File;
use std::io::{BufRead, BufReader, BufWriter, Read, Seek, SeekFrom, Write};
use std::sync::Arc;

use datafusion::common::{DataFusionError, Result};

use crate::spool::Scratch;

/// Is how many parts there are, a power of two: a part of a result of 10 GB fits in 160 MB.
const PARTS: usize = 64;

/// Is the buffer of each file, in bytes.
const BUFFER_BYTES: usize = 32 << 10;

/// Writes rows into parts.
pub(super) struct Parts {
    parts: Vec<[BufWriter<File>; 2]>,
    scratch: Scratch,
    bytes: u64,
    files: Vec<Arc<str>>,
    numbers: HashMap<Arc<str>, u32>,
}

impl Parts {
    /// Makes the files.
    pub(super) fn create(scratch: Scratch) -> Result<Self> {
        let file = || Ok::<_, DataFusionError>(BufWriter::with_capacity(BUFFER_BYTES, scratch.file()?));
        let part = |_| Ok([file()?, file()?]);
        Ok(Parts {
            parts: (0..PARTS).map(part).collect::<Result<_>>()?,
            scratch,
            bytes: 0,
            files: Vec::new(),
            numbers: HashMap::new(),
        })
    }

    fn count(&mut self, row: &[u8]) -> Result<()> {
        self.bytes += row.len() as u64 + 16;
        self.scratch.check(self.bytes)
    }

    /// Takes a computed row.
    pub(super) fn computed(&mut self, hash: u64, row: &[u8]) -> Result<()> {
        self.count(row)?;
        let [computed, _] = &mut self.parts[part(hash)];
        put(computed, row)
    }

    /// Takes a stored row.
    pub(super) fn stored(&mut self, hash: u64, row: &[u8], file: &Arc<str>, position: u64) -> Result<()> {
        let number = match self.numbers.get(file) {
            Some(number) => *number,
            None => {
                let number = self.files.len() as u32;
                self.files.push(file.clone());
                self.numbers.insert(file.clone(), number);
                number
            }
        };
        self.count(row)?;
        let [_, stored] = &mut self.parts[part(hash)];
        stored.write_all(&number.to_le_bytes())?;
        stored.write_all(&position.to_le_bytes())?;
        put(stored, row)
    }

    /// Ends the writing and gives the parts, one after the other.
    pub(super) fn finish(self) -> Result<impl Iterator<Item = Part>> {
        let mut parts = Vec::with_capacity(PARTS);
        for [computed, stored] in self.parts {
            parts.push((begin(computed)?, begin(stored)?));
        }
        let files: Arc<[Arc<str>]> = self.files.into();
        Ok(parts.into_iter().map(move |(computed, stored)| Part {
            computed,
            stored,
            files: files.clone(),
        }))
    }
}

/// Takes the bits that a hash table uses last.
fn part(hash: u64) -> usize {
    (hash >> 32) as usize % PARTS
}

fn put(file: &mut BufWriter<File>, row: &[u8]) -> Result<()> {
    let length = u32::try_from(row.len()).map_err(|_| crate::exactness::inexact("a row has 4 GiB or more"))?;
    file.write_all(&length.to_le_bytes())?;
    file.write_all(row)?;
    Ok(())
}

fn begin(written: BufWriter<File>) -> Result<File> {
    let mut file = written
        .into_inner()
        .map_err(|error| DataFusionError::from(error.into_error()))?;
    file.seek(SeekFrom::Start(0))?;
    Ok(file)
}

/// Is one part, to be read.
pub(super) struct Part {
    computed: File,
    stored: File,
    files: Arc<[Arc<str>]>,
}

impl Part {
    /// Visits the computed rows.
    pub(super) fn computed(&self, mut visit: impl FnMut(&[u8]) -> Result<()>) -> Result<()> {
        let mut row = Vec::new();
        let mut file = BufReader::with_capacity(BUFFER_BYTES, &self.computed);
        while let Some(length) = number(&mut file)? {
            read_row(&mut file, length, &mut row)?;
            visit(&row)?;
        }
        Ok(())
    }

    /// Visits the stored rows with their places.
    pub(super) fn stored(&self, mut visit: impl FnMut(&[u8], &Arc<str>, u64)) -> Result<()> {
        let mut row = Vec::new();
        let mut file = BufReader::with_capacity(BUFFER_BYTES, &self.stored);
        while let Some(number) = number(&mut file)? {
            let mut rest = [0; 12];
            file.read_exact(&mut rest)?;
            let [p @ .., a, b, c, d] = rest;
            read_row(&mut file, u32::from_le_bytes([a, b, c, d]), &mut row)?;
            visit(&row, &self.files[number as usize], u64::from_le_bytes(p));
        }
        Ok(())
    }
}

/// Reads a number; `None` at the end of the file.
fn number(file: &mut impl BufRead) -> Result<Option<u32>> {
    if file.fill_buf()?.is_empty() {
        return Ok(None);
    }
    let mut bytes = [0; 4];
    file.read_exact(&mut bytes)?;
    Ok(Some(u32::from_le_bytes(bytes)))
}

fn read_row(file: &mut impl Read, length: u32, row: &mut Vec<u8>) -> Result<()> {
    row.resize(length as usize, 0);
    file.read_exact(row)?;
    Ok(())
}
