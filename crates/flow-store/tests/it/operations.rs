//! Operations from begin to complete, and what a restart finds between.

use flow_core::operation::{Event, Phase};
use flow_core::{Attempt, Epoch, Generation, Lsn, TableId};
use flow_store::{
    CompletionWrites, HotChange, IndexDelta, Kind, LedgerPosition, OperationRecord, RefreshCompletion, Store,
};

use crate::records::{refresh, run};
use crate::support::{at, epoch, id, open, row_at, share, table, temp};

const G: Generation = Generation(1);

/// Stages `blocks` blocks of ten keys each and seals the share.
fn seal(store: &Store, operation: &mut OperationRecord, share: usize, blocks: u64) {
    for block in 0..blocks {
        let mut delta = IndexDelta::new();
        for n in 0..10 {
            let key = block * 10 + n;
            delta.put(
                &key.to_be_bytes(),
                at(operation.seq(), key),
                HotChange::Keep(&[block as u8; 100]),
            );
        }
        store
            .operations()
            .stage_block(operation.seq(), share, block, &delta)
            .expect("written");
    }
    operation.shares[share].plan = Some(vec![0xab; 1000]);
    operation.shares[share].blocks = blocks;
    operation.step(share, Event::Seal).expect("allowed");
}

fn rows(store: &Store, table: u32, keys: u64) -> usize {
    let keys: Vec<_> = (0..keys).map(u64::to_be_bytes).collect();
    let keys: Vec<&[u8]> = keys.iter().map(|key| &key[..]).collect();
    let found = store.index().locate(TableId(table), G, &keys).expect("readable");
    let hot = store.index().hot(TableId(table), G, &keys).expect("readable");
    assert!(
        found
            .iter()
            .zip(&hot)
            .all(|(found, hot)| found.is_some() == hot.is_some())
    );
    found.iter().flatten().count()
}

fn only(store: &Store) -> OperationRecord {
    let mut open = store.operations().open_operations().expect("readable");
    assert_eq!(open.len(), 1);
    open.remove(0)
}

#[test]
fn an_epoch_of_two_tables_survives_a_restart_at_every_step() {
    let dir = temp();
    let mut store = open(dir.path());
    let begun = store
        .operations()
        .begin(id, epoch(1), vec![share(1), share(2)])
        .expect("written");
    let reopen = |store: Store| {
        drop(store);
        open(dir.path())
    };
    store = reopen(store);
    let mut operation = only(&store);
    assert_eq!(operation, begun);
    assert_eq!((operation.id().as_str(), operation.kind()), ("op-1", &epoch(1)));
    assert_eq!(operation.shares[1].phase(), Phase::Building { attempt: Attempt(1) });

    seal(&store, &mut operation, 0, 3);
    seal(&store, &mut operation, 1, 1);
    store.operations().seal(&operation).expect("durable");
    operation.step(0, Event::Lost).expect("allowed");
    store.operations().proof(&operation).expect("written");
    store = reopen(store);
    let mut operation = only(&store);
    assert_eq!(
        operation.shares[0].phase(),
        Phase::Sealed { attempt: Attempt(1) },
        "unknown is sealed on disk"
    );
    assert_eq!(operation.shares[0].plan.as_deref(), Some(&[0xab; 1000][..]));

    for share in 0..2 {
        operation.step(share, Event::MarkerFound).expect("allowed");
    }
    store.operations().proof(&operation).expect("written");
    assert!(store.operations().apply_block(&mut operation, 0).expect("applied"));
    store = reopen(store);
    let mut operation = only(&store);
    let applied = |operation: &OperationRecord| match operation.shares[0].phase() {
        Phase::Committed { applied, .. } => applied,
        phase => panic!("{phase:?}"),
    };
    assert_eq!(applied(&operation), 1, "the cursor moved with the block");
    assert_eq!(rows(&store, 1, 30), 10);
    assert!(store.operations().apply_block(&mut operation, 0).expect("applied"));
    assert!(store.operations().apply_block(&mut operation, 0).expect("applied"));
    assert!(!store.operations().apply_block(&mut operation, 0).expect("at the end"));
    assert!(store.operations().apply_block(&mut operation, 1).expect("applied"));
    assert_eq!((rows(&store, 1, 50), rows(&store, 2, 50)), (30, 10));

    let position = LedgerPosition {
        last_epoch: Epoch(1),
        published_lsn: Lsn(200),
    };
    let writes = CompletionWrites {
        tables: vec![table(1), table(2)],
        ledger: Some(position),
        refresh: None,
    };
    store.operations().complete(operation, &writes).expect("written");
    store = reopen(store);
    assert_eq!(store.operations().open_operations().expect("readable"), []);
    assert_eq!(store.facts().ledger().expect("readable"), position);
    assert_eq!(store.tables().all().expect("readable"), [table(1), table(2)]);
    let next = store.operations().begin(id, epoch(2), vec![]).expect("written");
    assert_eq!(next.seq(), 2, "a number is never given twice");
}

#[test]
fn removes_and_puts_without_a_copy_take_the_copy_away() {
    let dir = temp();
    let store = open(dir.path());
    let operations = store.operations();
    let apply = |delta: &IndexDelta| {
        let mut operation = operations.begin(id, epoch(1), vec![share(1)]).expect("written");
        operations.stage_block(operation.seq(), 0, 0, delta).expect("written");
        operation.shares[0].blocks = 1;
        operation.shares[0].plan = Some(vec![]);
        operation.step(0, Event::Seal).expect("allowed");
        operations.seal(&operation).expect("durable");
        operation.step(0, Event::Committed).expect("allowed");
        while operations.apply_block(&mut operation, 0).expect("applied") {}
        operations
            .complete(operation, &CompletionWrites::default())
            .expect("written");
    };
    let keys: [&[u8]; 3] = [b"a", b"b", b"c"];
    let mut delta = IndexDelta::new();
    for key in keys {
        delta.put(key, at(1, 0), HotChange::Keep(key));
    }
    apply(&delta);
    delta.clear();
    delta.remove(b"a", true);
    delta.put(b"b", at(2, 5), HotChange::Drop);
    delta.remove(b"c", true);
    delta.put(b"c", at(2, 6), HotChange::Keep(b"again"));
    apply(&delta);
    let found = store.index().locate(TableId(1), G, &keys).expect("readable");
    assert_eq!(
        found,
        [None, Some(row_at(at(2, 5), false)), Some(row_at(at(2, 6), true))]
    );
    let hot = store.index().hot(TableId(1), G, &keys).expect("readable");
    assert_eq!(hot, [None, None, Some(b"again".as_slice().into())]);
}

#[test]
fn a_replanned_share_forgets_its_plan_and_its_longer_delta() {
    let dir = temp();
    let store = open(dir.path());
    let mut operation = store.operations().begin(id, epoch(1), vec![share(1)]).expect("written");
    seal(&store, &mut operation, 0, 4);
    store.operations().seal(&operation).expect("durable");
    operation.step(0, Event::Conflict).expect("allowed");
    operation.shares[0].base_snapshot = Some(77);
    store.operations().update(&operation, true).expect("durable");
    drop(store);
    let store = open(dir.path());
    let mut operation = only(&store);
    assert_eq!(operation.shares[0].phase(), Phase::Building { attempt: Attempt(2) });
    assert_eq!((&operation.shares[0].plan, operation.shares[0].blocks), (&None, 0));
    assert_eq!(operation.shares[0].base_snapshot, Some(77));
    seal(&store, &mut operation, 0, 2);
    store.operations().seal(&operation).expect("durable");
    operation.step(0, Event::Committed).expect("allowed");
    store.operations().proof(&operation).expect("written");
    while store.operations().apply_block(&mut operation, 0).expect("applied") {}
    assert_eq!(rows(&store, 1, 40), 20);
    store
        .operations()
        .complete(operation, &CompletionWrites::default())
        .expect("written");
    let blocks = store.operations().open_operations().expect("readable");
    assert_eq!(blocks, []);
}

#[test]
fn operations_of_all_kinds_stay_open_in_order() {
    let dir = temp();
    let store = open(dir.path());
    let operations = store.operations();
    let copy = Kind::Copy {
        table: TableId(1),
        lsn: Lsn(5),
    };
    let kinds = [copy, epoch(1), Kind::Refresh { name: "gold.a".into() }, epoch(2)];
    let begun: Vec<_> = kinds
        .into_iter()
        .map(|kind| operations.begin(id, kind, vec![share(1), share(2)]).expect("written"))
        .collect();
    assert_eq!(operations.open_operations().expect("readable"), begun);

    let mut refreshed = begun[2].clone();
    for share in 0..2 {
        refreshed.step(share, Event::SetAside).expect("allowed");
    }
    let writes = CompletionWrites {
        refresh: Some(RefreshCompletion {
            name: "gold.a".into(),
            record: refresh(1),
            run: Some(run(1)),
        }),
        ..CompletionWrites::default()
    };
    operations.complete(refreshed, &writes).expect("written");
    let open = operations.open_operations().expect("readable");
    assert_eq!(open, [begun[0].clone(), begun[1].clone(), begun[3].clone()]);
    assert_eq!(store.refreshes().get("gold.a").expect("readable"), Some(refresh(1)));
    assert_eq!(store.refreshes().history("gold.a").expect("readable"), [run(1)]);
}

#[test]
#[should_panic(expected = "cannot complete")]
fn an_unapplied_share_cannot_complete() {
    let dir = temp();
    let store = open(dir.path());
    let mut operation = store.operations().begin(id, epoch(1), vec![share(1)]).expect("written");
    seal(&store, &mut operation, 0, 2);
    operation.step(0, Event::Committed).expect("allowed");
    let _ = store.operations().complete(operation, &CompletionWrites::default());
}

#[test]
#[should_panic(expected = "only a committed share is applied")]
fn an_unproved_share_is_not_applied() {
    let dir = temp();
    let store = open(dir.path());
    let mut operation = store.operations().begin(id, epoch(1), vec![share(1)]).expect("written");
    seal(&store, &mut operation, 0, 2);
    let _ = store.operations().apply_block(&mut operation, 0);
}
