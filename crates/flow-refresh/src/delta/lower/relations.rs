//! Tables, constants, and the first rows of an order.

use std::sync::Arc;

use arrow_array::{RecordBatch, RecordBatchOptions};
use arrow_schema::{Schema, SortOptions};
use datafusion::catalog::default_table_source::source_as_provider;
use datafusion::common::{DFSchema, Result, ScalarValue};
use datafusion::logical_expr::{EmptyRelation, FetchType, Limit, LogicalPlan, SkipType, Sort, TableScan, Values};

use super::super::arrangement::Arrangement;
use super::super::top::Top;
use super::super::{Operator, rows};
use super::{Lowering, loose};
use crate::source::SnapshotTable;

impl Lowering<'_> {
    pub(super) fn scan(&mut self, scan: &TableScan) -> Result<Option<usize>> {
        let provider = source_as_provider(&scan.source)?;
        let table = provider.as_any().downcast_ref::<SnapshotTable>();
        let Some(table) = table.filter(|_| scan.filters.is_empty() && scan.fetch.is_none()) else {
            return Ok(self.refuse("UNSUPPORTED_OPERATOR", "TableScan", &[], None));
        };
        let all = 0..table.schema.fields().len();
        let columns = scan.projection.clone().unwrap_or_else(|| all.collect());
        let read = self.inputs.entry(table.name.clone()).or_default();
        for at in columns {
            read.insert(at, table.schema.field(at).name().clone());
        }
        let schema = loose(&scan.projected_schema);
        let operator = Operator::Input(table.name.clone());
        Ok(Some(self.push_as(operator, Vec::new(), schema)))
    }

    pub(super) fn empty(&mut self, empty: &EmptyRelation) -> Result<Option<usize>> {
        let schema = loose(&empty.schema);
        let count = usize::from(empty.produce_one_row);
        if count > 0 && !schema.fields().is_empty() {
            return Ok(self.refuse("UNSUPPORTED_OPERATOR", "EmptyRelation", &[], None));
        }
        let rows = match schema.fields().is_empty() {
            true => rows::batch(&schema, Vec::new(), count)?,
            false => RecordBatch::new_empty(schema.clone()),
        };
        Ok(Some(self.push_as(Operator::Constant(rows), Vec::new(), schema)))
    }

    pub(super) fn values(&mut self, values: &Values) -> Result<Option<usize>> {
        let schema = loose(&values.schema);
        let nothing = DFSchema::empty();
        let options = RecordBatchOptions::new().with_row_count(Some(1));
        let one = RecordBatch::try_new_with_options(Arc::new(Schema::empty()), Vec::new(), &options)?;
        let mut columns = vec![Vec::new(); schema.fields().len()];
        for row in &values.values {
            for (column, cell) in columns.iter_mut().zip(row) {
                let cell = self.expression(cell, &nothing)?.evaluate(&one)?.into_array(1)?;
                column.push(ScalarValue::try_from_array(&cell, 0)?);
            }
        }
        let typed = columns.into_iter().zip(schema.fields()).map(|(cells, field)| {
            let cells = cells.into_iter().map(|cell| cell.cast_to(field.data_type()));
            ScalarValue::iter_to_array(cells.collect::<Result<Vec<_>>>()?)
        });
        let typed = typed.collect::<Result<Vec<_>>>()?;
        let rows = rows::batch(&schema, typed, values.values.len())?;
        Ok(Some(self.push_as(Operator::Constant(rows), Vec::new(), schema)))
    }

    pub(super) async fn limit(&mut self, limit: &Limit) -> Result<Option<usize>> {
        let (skip, fetch) = match (limit.get_skip_type()?, limit.get_fetch_type()?) {
            (SkipType::Literal(skip), FetchType::Literal(Some(fetch))) => (skip as u64, fetch as u64),
            (_, FetchType::Literal(None)) => {
                return Ok(self.refuse("OFFSET_WITHOUT_LIMIT", "OFFSET", &["OFFSET"], None));
            }
            _ => return Ok(self.refuse("UNSUPPORTED_OPERATOR", "LIMIT", &["LIMIT"], None)),
        };
        self.first_of(&limit.input, skip, fetch).await
    }

    /// Makes the first rows of a plan: a projection above the order is computed after them.
    async fn first_of(&mut self, plan: &LogicalPlan, skip: u64, fetch: u64) -> Result<Option<usize>> {
        match plan {
            LogicalPlan::Sort(sort) if sort.fetch.is_none() => self.top(sort, skip, fetch).await,
            LogicalPlan::SubqueryAlias(alias) => Box::pin(self.first_of(&alias.input, skip, fetch)).await,
            LogicalPlan::Projection(projection) => {
                let input = Box::pin(self.first_of(&projection.input, skip, fetch)).await?;
                self.project(plan, &projection.expr, input)
            }
            _ => Ok(self.refuse("LIMIT_WITHOUT_ORDER", "LIMIT", &["LIMIT"], None)),
        }
    }

    async fn top(&mut self, sort: &Sort, skip: u64, fetch: u64) -> Result<Option<usize>> {
        let Some(input) = self.lower(&sort.input).await? else {
            return Ok(None);
        };
        let below = sort.input.schema();
        let mut keys = Vec::with_capacity(sort.expr.len());
        for key in &sort.expr {
            let options = SortOptions {
                descending: !key.asc,
                nulls_first: key.nulls_first,
            };
            keys.push((self.expression(&key.expr, below)?, options));
        }
        let number = self.next_number()?;
        let schema = loose(below);
        let operator = Operator::Top(Top {
            arrangement: Arrangement::new((number, 0), "LIMIT", schema.clone(), keys)?,
            skip,
            fetch,
            schema: schema.clone(),
        });
        self.feed(number, 0, &sort.input);
        Ok(Some(self.push_as(operator, vec![input], schema)))
    }
}
