//! An operation as its owner holds it. Its phases move by [`flow_core::operation::step`] only.

use flow_core::operation::{Event, Illegal, Phase, step};
use flow_core::{Attempt, Epoch, Generation, Lsn, OperationId, TableId, TableName};
use serde::{Deserialize, Serialize};

use crate::state::StateId;

/// Says what an operation publishes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "kind")]
pub enum Kind {
    /// A source-wide range of transactions.
    Epoch {
        /// Is its number.
        epoch: Epoch,
        /// Is where the range begins, exclusive.
        from: Lsn,
        /// Is where it ends, inclusive.
        to: Lsn,
        /// Is when its last transaction committed, in microseconds since 1970.
        commit_time_us: i64,
    },
    /// A table's content at an exported snapshot.
    Copy {
        /// Is the table.
        table: TableId,
        /// Is the snapshot's consistent point.
        lsn: Lsn,
    },
    /// A dynamic table's change.
    Refresh {
        /// Names the dynamic table.
        name: String,
    },
}

/// Asks for one table's part of an operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewShare {
    /// Names the table in the lake.
    pub target: TableName,
    /// Is the captured table; `None` for a dynamic table, which has no row index.
    pub table: Option<TableId>,
    /// Is the content whose row index the delta changes.
    pub generation: Generation,
    /// Is the target's current snapshot; `None` if it has none.
    pub base_snapshot: Option<i64>,
}

/// Is one table's part of an operation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Share {
    /// Names the table in the lake.
    pub target: TableName,
    /// Is the captured table; `None` for a dynamic table.
    pub table: Option<TableId>,
    /// Is the content whose row index the delta changes.
    pub generation: Generation,
    pub(super) phase: Phase,
    /// Is the snapshot the attempt builds on; `None` if the target has none.
    pub base_snapshot: Option<i64>,
    /// Is the lake's sealed plan, opaque here. Stored apart from the rest, which changes often.
    #[serde(skip)]
    pub plan: Option<Vec<u8>>,
    /// Counts the blocks of the delta.
    pub blocks: u64,
    /// Is the dynamic table's state that the blocks change; set before the seal. `None` if they change
    /// the row index, or there are none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<StateId>,
}

impl Share {
    /// Says where the share stands.
    pub fn phase(&self) -> Phase {
        self.phase
    }

    /// Is the physical try the share is at; `None` once it has ended.
    pub fn attempt(&self) -> Option<Attempt> {
        match self.phase {
            Phase::Building { attempt }
            | Phase::Sealed { attempt }
            | Phase::Unknown { attempt }
            | Phase::Committed { attempt, .. } => Some(attempt),
            Phase::Completed | Phase::SetAside => None,
        }
    }
}

/// Is an operation that has begun and not completed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OperationRecord {
    pub(super) seq: u64,
    pub(super) id: OperationId,
    pub(super) kind: Kind,
    /// Holds the parts in the order in which they were asked for.
    pub shares: Vec<Share>,
}

impl OperationRecord {
    /// Is the operation's place in the order of beginning; never given twice.
    pub fn seq(&self) -> u64 {
        self.seq
    }

    /// Is the operation's id.
    pub fn id(&self) -> &OperationId {
        &self.id
    }

    /// Says what it publishes.
    pub fn kind(&self) -> &Kind {
        &self.kind
    }

    /// Moves one share. In memory: the next write of the record makes it durable.
    ///
    /// A share that goes back to `Building` loses its plan and its blocks.
    ///
    /// # Errors
    /// [`Illegal`] if the event must not happen in the share's phase.
    ///
    /// # Panics
    /// If there is no such share.
    pub fn step(&mut self, share: usize, event: Event) -> Result<Phase, Illegal> {
        let share = &mut self.shares[share];
        share.phase = step(share.phase, event)?;
        if matches!(share.phase, Phase::Building { .. } | Phase::SetAside) {
            share.plan = None;
            share.blocks = 0;
            share.state = None;
        }
        Ok(share.phase)
    }
}
