//! GROUP BY, DISTINCT and aggregates over a whole table, from the change of their input alone.
//!
//! Each group keeps one entry: its number of rows and one state for each aggregate, all of which can
//! take rows back. MIN, MAX and DISTINCT keep their values beside it, ordered, with counts.
//!
//! 1. [`gather`] folds changed rows into what is added to each group.
//! 2. [`groups`] reads the touched groups, adds, and writes them.
//! 3. The old row of a group goes and its new row comes, if they differ.
//!
//! Part 0 holds the groups: `[node][0] ‖ key` → rows and states. Part 1 + i holds the values of the
//! i-th aggregate: `[node][1 + i] ‖ key ‖ value` → weight.

mod cells;
mod gather;
mod groups;

use std::sync::Arc;

use arrow_schema::{DataType, SchemaRef};
use datafusion::common::Result;
use datafusion::physical_expr::PhysicalExpr;
use flow_core::changes::ChangeBatch;
use flow_core::state::StateBuilder;

pub(super) use gather::{Gathered, Share};

use super::access::Access;
use super::rows::RowCodec;
use crate::aggregates::ExactAggregate;

/// Says what an aggregate computes.
#[derive(Debug)]
pub(super) enum Kind {
    /// Counts rows whose arguments are all there.
    Count,
    /// Is a sum, mean, variance or deviation.
    Exact(ExactAggregate),
    /// Is BOOL_AND or BOOL_OR.
    Logical {
        /// Says whether all must be true.
        all: bool,
    },
    /// Is MIN or MAX: the first of the values in the codec's order.
    First,
    /// Counts different values.
    CountDistinct,
    /// Is an exact aggregate of different values.
    ExactDistinct(ExactAggregate),
}

/// Is one aggregate of a node.
#[derive(Debug)]
pub(super) struct Function {
    pub(super) kind: Kind,
    pub(super) arguments: Vec<Arc<dyn PhysicalExpr>>,
    pub(super) filter: Option<Arc<dyn PhysicalExpr>>,
    /// Encodes values where they are kept; a codec without columns where they are not.
    pub(super) values: RowCodec,
    pub(super) result: DataType,
}

/// Is GROUP BY.
#[derive(Debug)]
pub(super) struct Aggregate {
    pub(super) node: u16,
    pub(super) keys: Vec<Arc<dyn PhysicalExpr>>,
    pub(super) key: RowCodec,
    pub(super) functions: Vec<Function>,
    pub(super) schema: SchemaRef,
}

impl Aggregate {
    /// Says whether there is one group, always.
    fn is_global(&self) -> bool {
        self.keys.is_empty()
    }

    /// Computes the change of the groups from the change of the rows.
    pub(super) fn step(&self, changes: &ChangeBatch, access: &mut Access<'_>) -> Result<ChangeBatch> {
        let mut gathered = Gathered::default();
        self.gather(changes, None, &mut gathered)?;
        if self.is_global() && access.beginning {
            gathered.group(self, &[]);
        }
        access.grow(gathered.bytes)?;
        self.merge(gathered, access)
    }

    /// Writes groups that are built from nothing.
    pub(super) fn fill(&self, gathered: Gathered, builder: &mut dyn StateBuilder) -> Result<()> {
        self.put_all(gathered, builder)
    }
}
