//! The end of an operation beside others that change table records.

use std::sync::mpsc;

use flow_core::clock::Clock;
use flow_core::schedule::EpochLimits;
use flow_core::{Epoch, Generation, Lsn, OperationId, TableId, TableName, TableSchema};
use flow_lake::{Lake, LakeOptions};
use flow_store::{Hot, Kind, NewShare, Store, StoreOptions, TableRecord, TableState};
use flow_testkit::clock::ManualClock;

use super::*;
use crate::board::Board;
use crate::options::{AckMode, EngineOptions, Limits};

const TABLE: TableId = TableId(1);

fn options(dir: &std::path::Path) -> EngineOptions {
    EngineOptions {
        state_dir: dir.join("state"),
        source_id: None,
        connection: flow_source::ConnInfo::parse("postgresql://nobody@127.0.0.1:1/none").expect("parses"),
        slot: "slot".to_owned(),
        publication: "publication".to_owned(),
        ack_mode: AckMode::Materialized,
        heartbeat: Duration::from_secs(10),
        retry_for: Duration::from_secs(10),
        copy_sessions: 1,
        warehouse: dir.join("warehouse"),
        catalog_path: dir.join("warehouse/catalog.db"),
        publish: EpochLimits {
            interval: Duration::from_secs(1),
            max_rows: 1000,
            max_bytes: 1 << 20,
        },
        keep_for: Duration::from_secs(3600),
        keep_snapshots: 200,
        limits: Limits {
            memory_bytes: 64 << 20,
            min_free_bytes: 0,
            blocked_journal_max_bytes: 1 << 20,
        },
        tables: Vec::new(),
        transformations: dir.join("transformations"),
    }
}

fn shared(dir: &std::path::Path) -> Arc<Shared> {
    let options = options(dir);
    let clock: Arc<dyn Clock> = Arc::new(ManualClock::at(1));
    let store = Store::open(StoreOptions {
        dir: options.state_dir.clone(),
        memory_bytes: 16 << 20,
    });
    let lake = Lake::open(LakeOptions::new(&options.warehouse), clock.clone());
    let board = Board::new(clock.clone(), Arc::default());
    Arc::new(Shared::new(
        options,
        clock,
        store.expect("opens"),
        lake.expect("opens"),
        Arc::default(),
        board,
        crate::compute::Compute::start().expect("threads start"),
        "shop".to_owned(),
    ))
}

fn record() -> TableRecord {
    TableRecord {
        id: TABLE,
        source: TableName::new("public", "t"),
        relation_oid: 1,
        target: TableName::new("public", "t"),
        target_uuid: None,
        schema: TableSchema {
            columns: Vec::new(),
            key: Vec::new(),
        },
        generation: Generation(1),
        append_only: true,
        hot: Hot::None,
        settings: serde_json::Value::Null,
        start_lsn: Some(Lsn(5)),
        state: TableState::Streaming,
        published_lsn: Lsn(10),
        published_epoch: Epoch(1),
        snapshot_id: None,
    }
}

/// Moves the table's epoch when it completes, while the heartbeat gives the table up.
struct Racing {
    shared: Arc<Shared>,
    give_up: Option<tokio::task::JoinHandle<Result<(), EngineError>>>,
}

#[async_trait]
impl Work for Racing {
    async fn write(
        &mut self,
        _: &Arc<Shared>,
        _: &OperationRecord,
        _: Attempt,
    ) -> Result<Vec<Option<Draft>>, EngineError> {
        Ok(vec![None])
    }

    fn progress(&self, _: &Shared, _: &OperationRecord) -> Progress {
        unreachable!("nothing is committed")
    }

    fn completion(
        &mut self,
        shared: &Shared,
        _: &OperationRecord,
        _: &[Option<SharePlan>],
    ) -> Result<CompletionWrites, EngineError> {
        let mut record = shared.table(TABLE).expect("is there");
        record.published_lsn = Lsn(20);
        record.published_epoch = Epoch(2);
        let (begin, began) = mpsc::sync_channel::<()>(1);
        let (ended, end) = mpsc::sync_channel::<()>(1);
        let others = self.shared.clone();
        self.give_up = Some(tokio::spawn(async move {
            began.recv().expect("the completion lives");
            let block = crate::block::Block {
                code: "F0121".to_owned(),
                reason: "rows may be lost".to_owned(),
                hold_lsn: Lsn(10),
            };
            let outcome = crate::block::require_resync(&others, TABLE, block).await;
            // Nobody waits any more if it had to wait itself, as it should.
            let _ = ended.send(());
            outcome
        }));
        begin.send(()).expect("the task lives");
        // Long enough for it to get through if nothing holds it.
        let _ = end.recv_timeout(Duration::from_millis(500));
        Ok(CompletionWrites {
            tables: vec![record],
            ..CompletionWrites::default()
        })
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_table_given_up_while_its_epoch_completes_stays_given_up() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let shared = shared(dir.path());
    shared.store.tables().put(&record()).expect("written");
    shared.note_table(record());
    let share = NewShare {
        target: record().target,
        table: Some(TABLE),
        generation: Generation(1),
        base_snapshot: None,
    };
    let kind = Kind::Epoch {
        epoch: Epoch(2),
        from: Lsn(10),
        to: Lsn(20),
        commit_time_us: 1,
    };
    let operation = shared
        .store
        .operations()
        .begin(|_| OperationId::new("e2"), kind, vec![share]);
    let mut work = Racing {
        shared: shared.clone(),
        give_up: None,
    };
    publish(&shared, operation.expect("begins"), &mut work)
        .await
        .expect("completes");
    let give_up = work.give_up.expect("begun").await.expect("no panic");
    give_up.expect("given up");
    let stored = shared.store.tables().get(TABLE).expect("readable").expect("there");
    assert!(matches!(stored.state, TableState::ResyncRequired { .. }), "{stored:?}");
    assert_eq!((stored.published_epoch, stored.published_lsn), (Epoch(2), Lsn(20)));
    assert_eq!(shared.table(TABLE), Some(stored));
}

mod retrying {
    use flow_source::SourceError;
    use flow_testkit::clock::ManualClock;

    use super::super::*;
    use crate::status::ServiceState;

    fn lake() -> EngineError {
        let source = std::io::ErrorKind::Interrupted.into();
        let path = "/lake/x".into();
        let action = "write";
        flow_lake::LakeError::File { action, path, source }.into()
    }

    /// Runs an attempt that fails with each error in turn and then succeeds. Gives the state that
    /// was shown while each was waited for.
    async fn waited(errors: Vec<EngineError>) -> (Result<(), EngineError>, Vec<ServiceState>, [bool; 2]) {
        let clock = Arc::new(ManualClock::at(0));
        let board = Board::new(clock.clone(), Arc::default());
        board.write().state = ServiceState::Streaming;
        board.write().connected = true;
        let mut errors = errors.into_iter();
        let (mut states, mut away) = (Vec::new(), [false; 2]);
        let ended = retry(
            &board,
            clock.as_ref(),
            || Duration::from_secs(60),
            "PostgreSQL",
            || {
                states.push(board.post().state);
                clock.advance(3600 * 1_000_000 * i64::from(states.len() == 1));
                let now = board.away();
                away = [away[0] || now[0], away[1] || now[1]];
                std::future::ready(errors.next().map_or(Ok(()), Err))
            },
        )
        .await;
        assert_eq!(board.away(), [false; 2], "nobody waits any more");
        (ended, states, away)
    }

    #[tokio::test]
    async fn what_is_away_is_what_failed() {
        use ServiceState::{Degraded, Streaming};
        let (ended, states, away) = waited(vec![SourceError::Ended.into()]).await;
        assert!(ended.is_ok());
        assert_eq!(
            (states, away),
            (vec![Streaming, Degraded], [true, false]),
            "not the catalog"
        );
        // Work on PostgreSQL also meets the catalog.
        let (ended, states, away) = waited(vec![lake(), SourceError::Ended.into()]).await;
        assert!(ended.is_ok());
        assert_eq!((states, away), (vec![Streaming, Degraded, Degraded], [true, true]));
        let unavailable = EngineError::Unavailable {
            what: "the catalog",
            seconds: 60,
            source: Box::new(lake()),
        };
        let (ended, states, _) = waited(vec![unavailable]).await;
        assert!(
            matches!(
                ended,
                Err(EngineError::Unavailable {
                    what: "the catalog",
                    ..
                })
            ),
            "{ended:?}"
        );
        assert_eq!(states, [Streaming], "its time is over");
    }
}
