//! Tables, dynamic tables and singletons.

use flow_core::frontier::Frontier;
use flow_core::{Epoch, Generation, Lsn, Remedial, Remedy, TableId};
use flow_store::{
    Hot, InitState, LedgerPosition, NO_DATA, RUNS_MAX, RefreshBlocked, RefreshRecord, RefreshRun, StateId, StateStamp,
    TableState,
};

use crate::support::{open, table, temp};

pub(crate) fn run(n: u64) -> RefreshRun {
    RefreshRun {
        run_id: format!("run-{n}"),
        mode: "FULL".into(),
        reason: "first refresh".into(),
        started_us: n as i64,
        predicted_ms: None,
        rows_changed: Some(n),
        duration_ms: 7,
        rows_read: 100,
        rows_inserted: 10,
        rows_deleted: 1,
        frontier: Frontier([("bronze.orders".to_owned(), Some(i64::MAX))].into()),
        data_lsn: Lsn(n),
        at_us: None,
        runs: 1,
    }
}

/// Is a run that found nothing to do.
fn no_data(n: u64) -> RefreshRun {
    RefreshRun {
        mode: NO_DATA.into(),
        at_us: Some(-5),
        ..run(n)
    }
}

/// Is the stamp of a state in generation `n` of table 7.
pub(crate) fn stamp(n: u64) -> StateStamp {
    StateStamp {
        id: StateId {
            number: 7,
            generation: Generation(n as u32),
        },
        frontier: run(n).frontier,
        layout: "abc".into(),
        built_ms: None,
    }
}

pub(crate) fn refresh(n: u64) -> RefreshRecord {
    RefreshRecord {
        uuid: "6f1b9a3e-8d8e-4f57-9a59-1f6f2f6f2f6f".into(),
        query_hash: "abc".into(),
        frontier: run(n).frontier,
        data_lsn: Lsn(n),
        at_us: None,
        epoch: n,
        last: Some(run(n)),
        suspended: true,
        blocked: Some(RefreshBlocked {
            code: "F0501".into(),
            reason: "integer overflow".into(),
            since_us: 5,
            query_hash: "def".into(),
        }),
        snapshot_id: Some(-1),
        full_ms: Some(40),
        row_us: None,
        state: n.is_multiple_of(2).then(|| stamp(n)),
    }
}

#[test]
fn tables_return_in_every_state() {
    let dir = temp();
    let store = open(dir.path());
    let states = [
        TableState::Copying,
        TableState::Streaming,
        table(1).state,
        TableState::ResyncRequired {
            code: "F0101".into(),
            reason: "journal limit".into(),
            since_us: 1,
        },
        TableState::Paused {
            since_us: 1,
            hold_lsn: Lsn(2),
        },
    ];
    let mut expected = Vec::new();
    for (state, hot) in states
        .into_iter()
        .zip([Hot::None, Hot::All, Hot::Columns(vec![]), Hot::None, Hot::All])
    {
        let id = store.tables().next_id().expect("a number");
        let record = flow_store::TableRecord {
            state,
            hot,
            ..table(id.0)
        };
        store.tables().put(&record).expect("written");
        expected.push(record);
    }
    let mut changed = expected[2].clone();
    changed.generation = Generation(2);
    store.tables().put(&changed).expect("written");
    expected[2] = changed;
    drop(store);
    let store = open(dir.path());
    assert_eq!(store.tables().all().expect("readable"), expected);
    assert_eq!(
        store.tables().get(TableId(4)).expect("readable"),
        Some(expected[3].clone())
    );
    assert_eq!(store.tables().get(TableId(9)).expect("readable"), None);
    assert_eq!(store.tables().next_id().expect("a number"), TableId(6));
}

#[test]
fn histories_are_bounded_and_apart() {
    let dir = temp();
    let store = open(dir.path());
    let refreshes = store.refreshes();
    for n in 0..RUNS_MAX + 10 {
        refreshes.push_run("gold.a", &run(n)).expect("written");
    }
    refreshes.push_run("gold.ab", &run(1)).expect("written");
    let history = refreshes.history("gold.a").expect("readable");
    assert_eq!(history.len() as u64, RUNS_MAX);
    assert_eq!(
        (&history[0], &history[history.len() - 1]),
        (&run(10), &run(RUNS_MAX + 9))
    );
    assert_eq!(refreshes.history("gold.ab").expect("readable"), [run(1)]);
    assert_eq!(refreshes.history("gold").expect("readable"), []);
}

#[test]
fn runs_that_found_nothing_to_do_join_and_push_nothing_out() {
    let dir = temp();
    let store = open(dir.path());
    let refreshes = store.refreshes();
    refreshes.push_run("gold.a", &run(0)).expect("written");
    for n in 1..=RUNS_MAX + 10 {
        refreshes.push_run("gold.a", &no_data(n)).expect("written");
    }
    let joined = RefreshRun {
        runs: RUNS_MAX + 10,
        data_lsn: Lsn(RUNS_MAX + 10),
        rows_changed: Some(RUNS_MAX + 10),
        ..no_data(1)
    };
    assert_eq!(refreshes.history("gold.a").expect("readable"), [run(0), joined.clone()]);
    // Others end a row of them, and so does another frontier.
    refreshes.push_run("gold.a", &run(5)).expect("written");
    refreshes.push_run("gold.a", &no_data(6)).expect("written");
    let other = RefreshRun {
        frontier: Frontier::default(),
        ..no_data(7)
    };
    refreshes.push_run("gold.a", &other).expect("written");
    let history = refreshes.history("gold.a").expect("readable");
    assert_eq!(history, [run(0), joined, run(5), no_data(6), other]);
}

#[test]
fn refresh_records_return_and_go() {
    let dir = temp();
    let store = open(dir.path());
    store.refreshes().put("gold.a", &refresh(1)).expect("written");
    store.refreshes().put("gold.b", &refresh(2)).expect("written");
    store.refreshes().push_run("gold.a", &run(1)).expect("written");
    drop(store);
    let store = open(dir.path());
    assert_eq!(store.refreshes().get("gold.b").expect("readable"), Some(refresh(2)));
    store.refreshes().remove("gold.a").expect("written");
    assert_eq!(
        store.refreshes().all().expect("readable"),
        [("gold.b".to_owned(), refresh(2))]
    );
    assert_eq!(store.refreshes().history("gold.a").expect("readable"), []);
}

#[test]
fn singletons_return_and_the_ledger_never_goes_back() {
    let dir = temp();
    let store = open(dir.path());
    let facts = store.facts();
    assert_eq!(facts.init().expect("readable"), None);
    assert_eq!(facts.ledger().expect("readable"), LedgerPosition::default());
    let states = [
        InitState::Intended,
        InitState::SlotCreated {
            consistent_point: Lsn(7),
        },
        InitState::Done,
    ];
    for state in states {
        facts.set_init(&state).expect("written");
        assert_eq!(facts.init().expect("readable"), Some(state));
    }
    let position = |epoch, lsn| LedgerPosition {
        last_epoch: Epoch(epoch),
        published_lsn: Lsn(lsn),
    };
    facts.set_ledger(&position(1, 100)).expect("written");
    for back in [position(0, 100), position(1, 99)] {
        let error = facts.set_ledger(&back).expect_err("refused");
        assert_eq!(error.remedy(), Remedy::Crash);
    }
    facts.set_publication(&serde_json::json!({"oid": 1})).expect("written");
    drop((facts, store));
    let store = open(dir.path());
    assert_eq!(store.facts().ledger().expect("readable"), position(1, 100));
    assert_eq!(
        store.facts().publication().expect("readable"),
        Some(serde_json::json!({"oid": 1}))
    );
}
