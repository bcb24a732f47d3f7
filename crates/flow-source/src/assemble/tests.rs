//! Messages in, events out: transactions whole, tables blocked one by one.

use std::collections::BTreeMap;

use flow_core::transaction::{Change, ChunkReader};

use super::*;
use crate::fuzzing::tests::{COPY_END, COPY_HEAD, corpus, join};
use crate::fuzzing::{check_stream, copy, messages, table};
use crate::value::tests::Noise;

/// Reads the kept inputs, each cut into its messages.
fn inputs() -> BTreeMap<String, Vec<Vec<u8>>> {
    let cut = |bytes: Vec<u8>| messages(&bytes).into_iter().map(<[u8]>::to_vec).collect();
    corpus("corpus")
        .into_iter()
        .map(|(name, bytes)| (name, cut(bytes)))
        .collect()
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
    for (name, messages) in inputs() {
        let result = run(table(), Lsn::ZERO, &messages);
        match name.as_str() {
            "changes" => assert_eq!(changes(&result.expect("well-formed")).len(), 5),
            // These are for other tables, and judged where they are made.
            typed if typed.starts_with("type-") => {}
            "full-identity" => assert_eq!(changes(&result.expect("well-formed")).len(), 1),
            _ => assert!(matches!(result, Err(SourceError::Protocol(_))), "{name}: {result:?}"),
        }
    }
}

#[test]
fn transactions_before_the_start_are_dropped_and_for_a_later_table_skipped() {
    let messages = &inputs()["changes"];
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

/// A block is a transaction's own. Later ones may belong to a copy that takes the blocked one's place.
#[test]
fn a_block_lasts_for_its_transaction_only() {
    let begin = |commit: u64| [&b"B"[..], &commit.to_be_bytes()[..], &[0u8; 12][..]].concat();
    let commit = |commit: u64| {
        let lsns = [commit.to_be_bytes(), (commit + 10).to_be_bytes()].concat();
        [&b"C\0"[..], &lsns[..], &[0u8; 8][..]].concat()
    };
    let kept = &inputs()["changes"];
    let kind = |kind: u8| kept.iter().find(|message| message[0] == kind).expect("is kept").clone();
    let (relation, insert) = (kind(b'R'), kind(b'I'));
    // A key that is NULL does not fit its column.
    let oid = table().oid.to_be_bytes();
    let columns = u16::try_from(table().columns.len()).expect("few").to_be_bytes();
    let nulls = vec![b'n'; table().columns.len()];
    let unfit = [&b"I"[..], &oid[..], &b"N"[..], &columns[..], &nulls[..]].concat();
    let messages = [
        begin(100),
        relation,
        insert.clone(),
        unfit,
        insert.clone(),
        commit(100),
        begin(120),
        insert,
        commit(120),
    ];
    let got = changes(&run(table(), Lsn::ZERO, &messages).expect("well-formed"));
    let kinds: Vec<&str> = got
        .iter()
        .map(|change| match change {
            Change::Insert { .. } => "insert",
            Change::Block { .. } => "block",
            _ => "other",
        })
        .collect();
    assert_eq!(kinds, ["insert", "block", "insert"]);
}

#[test]
fn a_keepalive_counts_between_transactions_only_and_only_forward() {
    let messages = &inputs()["changes"];
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
    for messages in inputs().values() {
        for broken in 0..messages.len() {
            for cut in 0..messages[broken].len() {
                let mut some = messages.clone();
                some[broken].truncate(cut);
                let _ = check_stream(&join(&some));
            }
            for _ in 0..300 {
                let mut some = messages.clone();
                for _ in 0..=noise.below(3) {
                    let at = noise.below(some[broken].len());
                    if let Some(byte) = some[broken].get_mut(at) {
                        *byte = if noise.below(2) == 0 { 0xff } else { noise.next() as u8 };
                    }
                }
                let _ = check_stream(&join(&some));
            }
        }
    }
}

#[test]
fn a_copy_is_the_same_however_it_is_cut_and_broken_ones_are_errors() {
    let table = table();
    let mut wire = COPY_HEAD.to_vec();
    for id in 0..3 {
        wire.extend_from_slice(&[0, 4, 0, 0, 0, 4, 0, 0, 0, id]);
        wire.extend_from_slice(&[0, 0, 0, 1, b'x', 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff]);
    }
    wire.extend_from_slice(&COPY_END);
    let decode = |wire: &[u8], step: usize| {
        let (rows, end) = copy(&table, wire, step);
        end.map(|()| rows)
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
