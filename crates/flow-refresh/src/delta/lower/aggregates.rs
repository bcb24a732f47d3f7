//! GROUP BY, DISTINCT and windows.

use std::sync::Arc;

use arrow_row::SortField;
use arrow_schema::{DataType, SchemaRef, SortOptions};
use datafusion::common::{DFSchema, Result};
use datafusion::logical_expr::expr::{AggregateFunction, WindowFunction};
use datafusion::logical_expr::{Aggregate as PlanAggregate, Distinct, Expr, LogicalPlan, Window as PlanWindow};
use datafusion::physical_expr::PhysicalExpr;

use super::super::Operator;
use super::super::again::Again;
use super::super::aggregate::{Aggregate, Function, Kind};
use super::super::arrangement::Arrangement;
use super::super::engine::Template;
use super::super::rows::RowCodec;
use super::{Lowering, loose};
use crate::aggregates::ExactAggregate;

/// Is how many aggregates one node can number in its state keys.
const FUNCTIONS_MAX: usize = 250;

impl Lowering<'_> {
    pub(super) async fn aggregate(&mut self, plan: &LogicalPlan, aggregate: &PlanAggregate) -> Result<Option<usize>> {
        let Some(input) = self.lower(&aggregate.input).await? else {
            return Ok(None);
        };
        let below = aggregate.input.schema();
        let mut functions = Vec::with_capacity(aggregate.aggr_expr.len());
        for (at, expr) in aggregate.aggr_expr.iter().enumerate() {
            let place = plan.schema().fields().len() - aggregate.aggr_expr.len() + at;
            let result = plan.schema().field(place).data_type();
            match self.function(expr, below, result)? {
                Some(function) => functions.push(function),
                None => return self.aggregate_again(plan, aggregate, expr, input).await,
            }
        }
        if functions.len() > FUNCTIONS_MAX {
            return Ok(self.refuse("TOO_MANY_AGGREGATES", "GROUP BY", &["GROUP"], None));
        }
        let keys = self.expressions(&aggregate.group_expr, below)?;
        self.grouped(plan, &aggregate.input, input, keys, functions)
    }

    pub(super) async fn distinct(&mut self, plan: &LogicalPlan, distinct: &Distinct) -> Result<Option<usize>> {
        let Distinct::All(below) = distinct else {
            return Ok(self.refuse("DISTINCT_ON", "DISTINCT ON", &["DISTINCT"], None));
        };
        let Some(input) = self.lower(below).await? else {
            return Ok(None);
        };
        let columns: Vec<Expr> = below.schema().columns().into_iter().map(Expr::Column).collect();
        let keys = self.expressions(&columns, below.schema())?;
        if keys.is_empty() {
            return self.unsupported(plan);
        }
        self.grouped(plan, below, input, keys, Vec::new())
    }

    fn grouped(
        &mut self,
        plan: &LogicalPlan,
        below: &LogicalPlan,
        input: usize,
        keys: Vec<Arc<dyn PhysicalExpr>>,
        functions: Vec<Function>,
    ) -> Result<Option<usize>> {
        let (from, schema) = (loose(below.schema()), loose(plan.schema()));
        let mut key_types = Vec::with_capacity(keys.len());
        for key in &keys {
            key_types.push(key.data_type(&from)?);
        }
        let of_functions = functions.iter().map(|function| function.result.clone());
        let given: Vec<DataType> = key_types.iter().cloned().chain(of_functions).collect();
        if !given.iter().eq(schema.fields().iter().map(|field| field.data_type())) {
            return self.unsupported(plan);
        }
        let number = self.next_number()?;
        let operator = Operator::Aggregate(Aggregate {
            node: number,
            keys,
            key: RowCodec::new(key_types.into_iter().map(SortField::new).collect())?,
            functions,
            schema,
        });
        self.feed(number, 0, below);
        Ok(Some(self.push(operator, vec![input], plan)))
    }

    /// Finds how an aggregate takes rows back; `None` if it does not.
    fn function(&self, expr: &Expr, below: &DFSchema, result: &DataType) -> Result<Option<Function>> {
        let expr = expr.clone().unalias_nested().data;
        let Expr::AggregateFunction(AggregateFunction { func, params }) = expr else {
            return Ok(None);
        };
        let mut arguments = self.expressions(&params.args, below)?;
        let descending = |descending| SortOptions {
            descending,
            nulls_first: true,
        };
        let exact = ExactAggregate::of(&func);
        let (kind, order) = match (exact, func.name(), params.distinct) {
            (Some(exact), _, distinct) => match exact.extreme() {
                Some(greatest) => (Kind::First, Some(descending(greatest))),
                None if distinct => (Kind::ExactDistinct(exact.clone()), Some(descending(false))),
                None => (Kind::Exact(exact.clone()), None),
            },
            (None, "min" | "max", _) => (Kind::First, Some(descending(func.name() == "max"))),
            (None, "bool_and" | "bool_or", _) => {
                let all = func.name() == "bool_and";
                (Kind::Logical { all }, None)
            }
            (None, "count", false) => {
                let given = |expr: &Expr| matches!(expr, Expr::Literal(value, _) if !value.is_null());
                let mut constant = params.args.iter().map(given);
                arguments.retain(|_| !constant.next().unwrap_or(false));
                (Kind::Count, None)
            }
            (None, "count", true) if arguments.len() == 1 => (Kind::CountDistinct, Some(descending(false))),
            _ => return Ok(None),
        };
        let argument = arguments.first().map(|argument| argument.data_type(below.as_arrow()));
        let argument = argument.transpose()?;
        let other_type = match kind {
            Kind::First => argument.as_ref() != Some(result),
            Kind::Logical { .. } => argument != Some(DataType::Boolean),
            _ => false,
        };
        if other_type {
            return Ok(None);
        }
        let values = order.zip(argument);
        let values = values.map(|(options, value)| SortField::new_with_options(value, options));
        let filter = params.filter.as_ref().map(|filter| self.expression(filter, below));
        Ok(Some(Function {
            kind,
            arguments,
            filter: filter.transpose()?,
            values: RowCodec::new(values.into_iter().collect())?,
            result: result.clone(),
        }))
    }

    /// Makes an aggregate that is computed again for the groups that changed.
    async fn aggregate_again(
        &mut self,
        plan: &LogicalPlan,
        aggregate: &PlanAggregate,
        because: &Expr,
        input: usize,
    ) -> Result<Option<usize>> {
        let called = match because.clone().unalias_nested().data {
            Expr::AggregateFunction(function) => function.func.name().to_owned(),
            other => other.schema_name().to_string(),
        };
        match &aggregate.group_expr[..] {
            [] => Ok(self.refuse("AGGREGATE_WITHOUT_GROUP", called.clone(), &[&called], Some(because))),
            keys => {
                let keys = self.expressions(keys, aggregate.input.schema())?;
                self.again(plan, &aggregate.input, input, keys, "an aggregate").await
            }
        }
    }

    pub(super) async fn window(&mut self, plan: &LogicalPlan, window: &PlanWindow) -> Result<Option<usize>> {
        let Some(input) = self.lower(&window.input).await? else {
            return Ok(None);
        };
        let mut keys: Option<Vec<Expr>> = None;
        for expr in &window.window_expr {
            let expr = expr.clone().unalias_nested().data;
            let Expr::WindowFunction(function) = &expr else {
                return self.unsupported(plan);
            };
            let WindowFunction { fun, params } = function.as_ref();
            let own: Vec<Expr> = params
                .partition_by
                .iter()
                .filter(|key| key.as_literal().is_none())
                .cloned()
                .collect();
            // Rows that share all keys of all functions are evaluated together.
            let shared = match keys.take() {
                None => own,
                Some(keys) => keys.into_iter().filter(|key| own.contains(key)).collect(),
            };
            if shared.is_empty() {
                let name = fun.name().to_owned();
                return Ok(self.refuse("WINDOW_WITHOUT_PARTITION", name.clone(), &[&name], Some(&expr)));
            }
            keys = Some(shared);
        }
        let keys = self.expressions(&keys.unwrap_or_default(), window.input.schema())?;
        self.again(plan, &window.input, input, keys, "a window function").await
    }

    async fn again(
        &mut self,
        plan: &LogicalPlan,
        below: &LogicalPlan,
        input: usize,
        keys: Vec<Arc<dyn PhysicalExpr>>,
        operator: &'static str,
    ) -> Result<Option<usize>> {
        let number = self.next_number()?;
        let keys = keys.into_iter().map(|key| (key, SortOptions::default())).collect();
        let from: SchemaRef = loose(below.schema());
        let template = Template::new(plan, self.state).await?;
        let operator = Operator::Again(Again {
            arrangement: Arrangement::new((number, 0), operator, from, keys)?,
            template,
            schema: loose(plan.schema()),
        });
        self.feed(number, 0, below);
        Ok(Some(self.push(operator, vec![input], plan)))
    }
}
