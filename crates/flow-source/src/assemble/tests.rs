//! Messages in, events out: transactions whole, tables blocked one by one.

use std::collections::BTreeMap;

use flow_core::transaction::{Change, ChunkReader};
use flow_core::{Column, ColumnType, TableId, TableName, TableSchema};

use super::*;
use crate::capture::CaptureColumn;
use crate::copy::CopyDecoder;
use crate::value::tests::Noise;
use crate::wire_types::{Target, Wire};

fn table() -> CaptureTable {
    let list = ColumnType::List(Box::new(ColumnType::String));
    let shapes = [
        ("id", 23, Wire::Int4, ColumnType::Int),
        ("v", 25, Wire::Text, ColumnType::String),
        ("n", 1700, Wire::Numeric, ColumnType::String),
        ("l", 1009, Wire::Array(Box::new(Wire::Text)), list),
    ];
    let column = |(name, _, _, column_type): &(&str, u32, Wire, ColumnType)| Column {
        name: (*name).to_owned(),
        field_id: 0,
        element_id: None,
        column_type: column_type.clone(),
        required: *name == "id",
        source_type: String::new(),
    };
    let arrives = |(index, (_, type_oid, wire, _)): (usize, &(&str, u32, Wire, ColumnType))| CaptureColumn {
        attnum: index as i16 + 1,
        type_oid: *type_oid,
        type_mod: -1,
        wire: wire.clone(),
        target: Target::Native,
    };
    CaptureTable {
        id: TableId(1),
        oid: 42,
        name: TableName::new("public", "t"),
        schema: TableSchema {
            columns: shapes.iter().map(column).collect(),
            key: vec![0],
        },
        columns: shapes.iter().enumerate().map(arrives).collect(),
        append_only: false,
        skip_until: Lsn::ZERO,
        row_filter: None,
    }
}

fn corpus() -> BTreeMap<String, Vec<Vec<u8>>> {
    let dir = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus");
    let mut all = BTreeMap::new();
    for entry in std::fs::read_dir(dir).expect("the corpus is there") {
        let path = entry.expect("readable").path();
        if path.extension().is_some_and(|e| e == "bin") {
            let bytes = std::fs::read(&path).expect("readable");
            let mut rest = bytes.as_slice();
            let mut messages = Vec::new();
            while let Some((length, after)) = rest.split_first_chunk::<4>() {
                let (message, after) = after.split_at(u32::from_be_bytes(*length) as usize);
                messages.push(message.to_vec());
                rest = after;
            }
            let name = path.file_stem().expect("a name").to_string_lossy().into_owned();
            all.insert(name, messages);
        }
    }
    all
}

fn run(table: CaptureTable, start: Lsn, messages: &[Vec<u8>]) -> Result<Vec<SourceEvent>, SourceError> {
    let mut assembler = Assembler::new(start, vec![table]);
    let mut events = Vec::new();
    for message in messages {
        assembler.message(message, &mut events)?;
    }
    Ok(events)
}

fn changes(events: &[SourceEvent]) -> Vec<Change> {
    let chunks = events.iter().filter_map(|event| match event {
        SourceEvent::Chunk { bytes, .. } => Some(bytes),
        _ => None,
    });
    chunks
        .flat_map(|chunk| {
            ChunkReader::new(chunk)
                .map(|change| change.expect("own chunk"))
                .collect::<Vec<_>>()
        })
        .collect()
}

#[test]
fn well_formed_inputs_give_their_changes_and_the_others_errors() {
    for (name, messages) in corpus() {
        let result = run(table(), Lsn::ZERO, &messages);
        match name.as_str() {
            "changes" => assert_eq!(changes(&result.expect("well-formed")).len(), 5),
            "full-identity" => assert_eq!(changes(&result.expect("well-formed")).len(), 1),
            _ => assert!(matches!(result, Err(SourceError::Protocol(_))), "{name}: {result:?}"),
        }
    }
}

#[test]
fn transactions_before_the_start_are_dropped_and_for_a_later_table_skipped() {
    let messages = &corpus()["changes"];
    // The first transaction ends at 110, the second at 130.
    let events = run(table(), Lsn(110), messages).expect("well-formed");
    assert_eq!(events.len(), 2, "{events:?}");
    let mut later = table();
    later.skip_until = Lsn(110);
    let events = run(later, Lsn(90), messages).expect("well-formed");
    assert_eq!((events.len(), changes(&events).len()), (4, 0));
    let mut exact = table();
    exact.skip_until = Lsn(100);
    assert_eq!(changes(&run(exact, Lsn(90), messages).expect("well-formed")).len(), 5);
}

#[test]
fn a_keepalive_counts_between_transactions_only_and_only_forward() {
    let messages = &corpus()["changes"];
    let mut assembler = Assembler::new(Lsn(50), vec![table()]);
    let mut events = Vec::new();
    assembler.keepalive(Lsn(40), &mut events);
    assert!(events.is_empty());
    assembler.keepalive(Lsn(60), &mut events);
    assert_eq!(events, [SourceEvent::Keepalive { wal_end: Lsn(60) }]);
    assembler.message(&messages[0], &mut events).expect("a begin");
    assembler.keepalive(Lsn(500), &mut events);
    assert_eq!(events.len(), 2);
    assert_eq!(assembler.position(), Lsn(60));
}

#[test]
fn no_cut_and_no_noise_makes_the_assembler_panic() {
    let mut noise = Noise(0xf1_0e);
    for messages in corpus().values() {
        for broken in 0..messages.len() {
            for cut in 0..messages[broken].len() {
                let mut some = messages.clone();
                some[broken].truncate(cut);
                let _ = run(table(), Lsn::ZERO, &some);
            }
            for _ in 0..300 {
                let mut some = messages.clone();
                for _ in 0..=noise.below(3) {
                    let at = noise.below(some[broken].len());
                    if let Some(byte) = some[broken].get_mut(at) {
                        *byte = if noise.below(2) == 0 { 0xff } else { noise.next() as u8 };
                    }
                }
                let _ = run(table(), Lsn::ZERO, &some);
            }
        }
    }
}

#[test]
fn a_copy_is_the_same_however_it_is_cut_and_broken_ones_are_errors() {
    let table = table();
    let mut wire = b"PGCOPY\n\xff\r\n\0".to_vec();
    wire.extend_from_slice(&[0; 8]);
    for id in 0..3 {
        wire.extend_from_slice(&[0, 4, 0, 0, 0, 4, 0, 0, 0, id]);
        wire.extend_from_slice(&[0, 0, 0, 1, b'x', 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff]);
    }
    wire.extend_from_slice(&[0xff, 0xff]);
    let decode = |wire: &[u8], step: usize| -> Result<Vec<Vec<u8>>, SourceError> {
        let mut decoder = CopyDecoder::new(&table);
        let mut rows = Vec::new();
        let mut on_row = |row: &[u8]| -> Result<(), SourceError> {
            rows.push(row.to_vec());
            Ok(())
        };
        for piece in wire.chunks(step) {
            decoder.take(piece, &mut on_row)?;
        }
        let count = decoder.finish()?;
        assert_eq!(count, rows.len() as u64);
        Ok(rows)
    };
    let whole = decode(&wire, wire.len()).expect("well-formed");
    assert_eq!(whole.len(), 3);
    for step in 1..wire.len() {
        assert_eq!(decode(&wire, step).expect("well-formed"), whole, "step {step}");
        assert!(decode(&wire[..step], step).is_err(), "cut at {step}");
    }
    let mut noise = Noise(0xc0_de);
    for _ in 0..20_000 {
        let mut broken = wire.clone();
        let at = noise.below(broken.len());
        broken[at] = noise.next() as u8;
        let _ = decode(&broken, 1 + noise.below(40));
    }
}
