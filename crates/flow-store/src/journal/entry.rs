//! A transaction's record as bytes: commit LSN, end LSN, commit time (8 each, little-endian), then
//! xid, chunks, changes, bytes as varints. Small transactions come by the hundred thousand.

use flow_core::Lsn;
use flow_core::codec::{Malformed, Reader, put_varint};
use flow_core::transaction::TransactionMeta;

use crate::error::StoreError;
use crate::layout::{Family, transaction_key};
use crate::record;

pub(super) fn encode(transaction: &TransactionMeta) -> Vec<u8> {
    let mut out = Vec::with_capacity(40);
    out.extend_from_slice(&transaction.commit_lsn.0.to_le_bytes());
    out.extend_from_slice(&transaction.end_lsn.0.to_le_bytes());
    out.extend_from_slice(&transaction.commit_time.to_le_bytes());
    put_varint(&mut out, u64::from(transaction.xid));
    put_varint(&mut out, u64::from(transaction.chunks));
    put_varint(&mut out, transaction.changes);
    put_varint(&mut out, transaction.bytes);
    out
}

fn decode(body: &[u8]) -> Result<TransactionMeta, Malformed> {
    let mut reader = Reader::new(body);
    let commit_lsn = Lsn(reader.u64("commit LSN")?);
    let end_lsn = Lsn(reader.u64("end LSN")?);
    let commit_time = i64::from_le_bytes(reader.array("commit time")?);
    let mut small = |what| {
        let number = reader.varint(what)?;
        u32::try_from(number).map_err(|_| reader.malformed(what))
    };
    let (xid, chunks) = (small("xid")?, small("chunk count")?);
    let (changes, bytes) = (reader.varint("change count")?, reader.varint("byte count")?);
    if !reader.is_empty() {
        return Err(reader.malformed("transaction end"));
    }
    Ok(TransactionMeta {
        commit_lsn,
        end_lsn,
        commit_time,
        xid,
        chunks,
        changes,
        bytes,
    })
}

/// Reads a wrapped transaction and checks that it is the key's.
pub(super) fn open(key: &[u8], value: &[u8]) -> Result<TransactionMeta, StoreError> {
    let body = record::open(Family::JournalTxn, key, value)?;
    let transaction = decode(body).map_err(record::malformed(Family::JournalTxn, key))?;
    if transaction_key(transaction.end_lsn) != key {
        return Err(StoreError::corrupt(Family::JournalTxn, key, "end LSN is not the key's"));
    }
    Ok(transaction)
}

/// Reads the end LSN from a key.
pub(super) fn transaction_lsn(key: &[u8]) -> Result<Lsn, StoreError> {
    let number = key.try_into().map(u64::from_be_bytes);
    let number = number.map_err(|_| StoreError::corrupt(Family::JournalTxn, key, "key is not an LSN"))?;
    Ok(Lsn(number))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_return_and_any_cut_is_an_error() {
        let transaction = TransactionMeta {
            commit_lsn: Lsn(0x16_0000_0000),
            end_lsn: Lsn(0x16_0000_0030),
            commit_time: -5,
            xid: u32::MAX,
            chunks: 300,
            changes: u64::MAX,
            bytes: 1 << 40,
        };
        let body = encode(&transaction);
        assert_eq!(decode(&body), Ok(transaction));
        for cut in 0..body.len() {
            assert!(decode(&body[..cut]).is_err(), "cut {cut}");
        }
        let mut long = body;
        long.push(0);
        assert!(decode(&long).is_err());
    }
}
