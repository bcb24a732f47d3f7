//! Rows on their way from a computation to a table: in memory up to a bound, and behind it in a file.
//!
//! The file has no name, so it is gone with the process, however that ends.

use std::fs::File;
use std::io::{BufReader, BufWriter, Seek, SeekFrom, Write};
use std::path::PathBuf;

use arrow_array::RecordBatch;
use arrow_ipc::reader::StreamReader;
use arrow_ipc::writer::StreamWriter;
use arrow_schema::SchemaRef;
use datafusion::common::{DataFusionError, Result, resources_err};

/// Is where what does not fit in memory may be put.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scratch {
    /// Is the folder. What is put there is gone with its user.
    pub folder: PathBuf,
    /// Is how many bytes each of a refresh's users may put there.
    pub bytes_max: u64,
}

impl Scratch {
    /// Makes a file without a name.
    pub(crate) fn file(&self) -> Result<File> {
        Ok(tempfile::tempfile_in(&self.folder)?)
    }

    /// Says that more is put there than may be.
    pub(crate) fn check(&self, bytes: u64) -> Result<()> {
        match bytes <= self.bytes_max {
            true => Ok(()),
            false => resources_err!("more than {} bytes of scratch files", self.bytes_max),
        }
    }
}

/// Takes batches of one schema.
pub(crate) struct Spool {
    schema: SchemaRef,
    scratch: Scratch,
    bytes_max: usize,
    /// Counts those in memory.
    bytes: usize,
    /// Counts those in the file.
    filed: u64,
    rows: u64,
    held: Vec<RecordBatch>,
    file: Option<StreamWriter<BufWriter<File>>>,
}

impl Spool {
    /// Holds `bytes_max` in memory; the rest goes to a file.
    pub(crate) fn new(schema: SchemaRef, scratch: Scratch, bytes_max: usize) -> Self {
        Spool {
            schema,
            scratch,
            bytes_max,
            bytes: 0,
            filed: 0,
            rows: 0,
            held: Vec::new(),
            file: None,
        }
    }

    /// Takes a batch.
    pub(crate) fn push(&mut self, batch: RecordBatch) -> Result<()> {
        self.rows += batch.num_rows() as u64;
        let bytes = batch.get_array_memory_size();
        if self.file.is_none() && self.bytes + bytes <= self.bytes_max {
            self.bytes += bytes;
            self.held.push(batch);
            return Ok(());
        }
        self.filed += bytes as u64;
        self.scratch.check(self.filed)?;
        let file = match &mut self.file {
            Some(file) => file,
            none => {
                let file = BufWriter::with_capacity(1 << 20, self.scratch.file()?);
                none.insert(StreamWriter::try_new(file, &self.schema)?)
            }
        };
        file.write(&batch)?;
        Ok(())
    }

    /// Ends the writing.
    pub(crate) fn finish(self) -> Result<Spooled> {
        let ended = |mut writer: StreamWriter<BufWriter<File>>| -> Result<File> {
            writer.finish()?;
            let mut file = writer.into_inner()?;
            file.flush()?;
            let mut file = file
                .into_inner()
                .map_err(|error| DataFusionError::from(error.into_error()))?;
            file.seek(SeekFrom::Start(0))?;
            Ok(file)
        };
        Ok(Spooled {
            rows: self.rows,
            held: self.held,
            file: self.file.map(ended).transpose()?,
        })
    }
}

/// Is rows that were taken, in their order.
#[derive(Debug, Default)]
pub(crate) struct Spooled {
    rows: u64,
    held: Vec<RecordBatch>,
    file: Option<File>,
}

impl Spooled {
    /// Counts the rows.
    pub(crate) fn rows(&self) -> u64 {
        self.rows
    }

    /// Gives the batches, each as it was taken.
    pub(crate) fn batches(self) -> Result<impl Iterator<Item = Result<RecordBatch>> + Send> {
        let read = |file| StreamReader::try_new(BufReader::with_capacity(1 << 20, file), None);
        let file = self.file.map(read).transpose()?;
        let filed = file.into_iter().flatten().map(|batch| Ok(batch?));
        Ok(self.held.into_iter().map(Ok).chain(filed))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_array::{ArrayRef, StringArray};

    use super::*;

    #[test]
    fn all_rows_return_in_order_wherever_they_were() {
        let folder = tempfile::tempdir().expect("a folder");
        let scratch = Scratch {
            folder: folder.path().to_owned(),
            bytes_max: 1 << 30,
        };
        let batch = |n: usize| {
            let texts: ArrayRef = Arc::new(StringArray::from_iter(
                (0..n).map(|i| (i % 3 != 0).then(|| "x".repeat(i))),
            ));
            RecordBatch::try_from_iter_with_nullable([("t", texts, true)]).expect("a batch")
        };
        let batches: Vec<RecordBatch> = (0..40).map(batch).collect();
        let whole: usize = batches.iter().map(RecordBatch::get_array_memory_size).sum();
        for bytes_max in [0, whole / 2, whole] {
            let mut spool = Spool::new(batches[0].schema(), scratch.clone(), bytes_max);
            batches
                .iter()
                .try_for_each(|batch| spool.push(batch.clone()))
                .expect("taken");
            let spooled = spool.finish().expect("ended");
            assert_eq!(spooled.file.is_some(), bytes_max < whole, "{bytes_max} of {whole}");
            assert_eq!(spooled.rows(), (0..40).sum::<u64>());
            let back = spooled.batches().expect("opens").collect::<Result<Vec<_>>>();
            assert_eq!(back.expect("reads"), batches);
        }
    }
}
