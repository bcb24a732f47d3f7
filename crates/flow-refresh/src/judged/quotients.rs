//! Values that are PostgreSQL's only as far as a column of the result holds them.
//!
//! PostgreSQL divides decimals to at least 16 significant digits and its AVG of numbers without a
//! point is a decimal. A *quotient* has the fewer digits of its column's type, or is a double; so it
//! may become a column of the result, or be cast at once, and go into no other expression.
//! PostgreSQL's `sum(bigint)` and `extract` are decimals. Such a *whole* number is a long here, and
//! must not be divided by an integer.

use arrow_schema::DataType;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, DFSchema, DFSchemaRef, Result};
use datafusion::logical_expr::utils::grouping_set_to_exprlist;
use datafusion::logical_expr::{
    BinaryExpr, Expr, ExprSchemable, Join, LogicalPlan, Operator, WindowFunctionDefinition, expr::ScalarFunction,
};

use super::kind_of;
use crate::determinism::Finding;
use crate::kind::Kind;
use crate::meeting::is_epoch;

/// Says how a value differs from PostgreSQL's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Differs {
    quotient: bool,
    whole: bool,
}

impl Differs {
    const QUOTIENT: Differs = Differs {
        quotient: true,
        whole: false,
    };
    const WHOLE: Differs = Differs {
        quotient: false,
        whole: true,
    };

    fn or(self, other: Differs) -> Differs {
        Differs {
            quotient: self.quotient || other.quotient,
            whole: self.whole || other.whole,
        }
    }
}

/// Names the quotients that go into another expression, and the integer divisions that PostgreSQL
/// does with decimals.
pub(super) fn check(plan: &LogicalPlan, findings: &mut Vec<Finding>) -> Result<()> {
    Walk { findings }.node(plan, false).map(|_| ())
}

struct Walk<'a> {
    findings: &'a mut Vec<Finding>,
}

/// Holds the columns an expression reads, input by input.
struct Columns {
    schema: DFSchema,
    inputs: Vec<(DFSchemaRef, Vec<Differs>)>,
}

impl Columns {
    fn new(inputs: Vec<(DFSchemaRef, Vec<Differs>)>) -> Columns {
        let mut schema = DFSchema::empty();
        for (input, _) in &inputs {
            schema.merge(input);
        }
        Columns { schema, inputs }
    }

    fn get(&self, column: &Column) -> Differs {
        let mut found = self.inputs.iter().filter_map(|(schema, differ)| {
            let at = schema.maybe_index_of_column(column)?;
            differ.get(at).copied()
        });
        found.next().unwrap_or_default()
    }

    /// Says for each column of a union how any of the inputs differs in it.
    fn united(&self, width: usize) -> Vec<Differs> {
        let mut differ = vec![Differs::default(); width];
        for (at, one) in self.inputs.iter().flat_map(|(_, differ)| differ.iter().enumerate()) {
            differ[at] = differ[at].or(*one);
        }
        differ
    }

    fn all(&self) -> Vec<Differs> {
        self.inputs.iter().flat_map(|(_, differ)| differ.clone()).collect()
    }
}

impl Walk<'_> {
    /// Says for each column of a node how it differs; `limited` if a LIMIT cuts its rows.
    fn node(&mut self, plan: &LogicalPlan, limited: bool) -> Result<Vec<Differs>> {
        let limits = match plan {
            LogicalPlan::Limit(_) => true,
            LogicalPlan::Projection(_) | LogicalPlan::SubqueryAlias(_) | LogicalPlan::Sort(_) => limited,
            _ => false,
        };
        let mut inputs = Vec::new();
        for input in plan.inputs() {
            inputs.push((input.schema().clone(), self.node(input, limits)?));
        }
        let columns = Columns::new(inputs);
        let width = plan.schema().fields().len();
        Ok(match plan {
            LogicalPlan::Projection(projection) => {
                let each = projection.expr.iter().map(|expr| self.expr(expr, &columns));
                each.collect::<Result<_>>()?
            }
            LogicalPlan::Aggregate(aggregate) => {
                let mut differ = vec![Differs::default(); width];
                for (at, key) in grouping_set_to_exprlist(&aggregate.group_expr)?.into_iter().enumerate() {
                    differ[at] = self.used(key, &columns)?;
                }
                let first = width - aggregate.aggr_expr.len();
                for (at, expr) in aggregate.aggr_expr.iter().enumerate() {
                    differ[first + at] = self.expr(expr, &columns)?;
                }
                differ
            }
            LogicalPlan::Window(window) => {
                let mut differ = columns.all();
                for expr in &window.window_expr {
                    differ.push(self.expr(expr, &columns)?);
                }
                differ
            }
            LogicalPlan::Union(_) => columns.united(width),
            LogicalPlan::Distinct(_) => {
                let differ = columns.all();
                for at in (0..differ.len()).filter(|at| differ[*at].quotient) {
                    self.quotient(&Expr::from(columns.schema.qualified_field(at)));
                }
                differ
            }
            LogicalPlan::Join(join) => {
                self.join_keys(join, &columns)?;
                let mut differ = columns.all();
                differ.resize(width, Differs::default());
                differ
            }
            LogicalPlan::Sort(_) if !limited => columns.all(),
            _ => {
                plan.apply_expressions(|expr| {
                    self.used(expr, &columns)?;
                    Ok(TreeNodeRecursion::Continue)
                })?;
                let mut differ = columns.all();
                differ.resize(width, Differs::default());
                differ
            }
        })
    }

    fn join_keys(&mut self, join: &Join, columns: &Columns) -> Result<()> {
        let [left, right] = [0, 1].map(|side| Columns::new(vec![columns.inputs[side].clone()]));
        for (l, r) in &join.on {
            self.used(l, &left)?;
            self.used(r, &right)?;
        }
        if let Some(filter) = &join.filter {
            self.used(filter, columns)?;
        }
        Ok(())
    }

    fn quotient(&mut self, expr: &Expr) {
        let message = "a quotient of decimals or an AVG stands inside another expression, where PostgreSQL has more digits: \
                       CAST the quotient at once, CAST(a / b AS numeric(p, s)), and write an AVG as \
                       CAST(CAST(sum(x) AS numeric(38, s)) / count(x) AS numeric(p, s))";
        self.findings
            .push(Finding::new("QUOTIENT_NOT_CAST", &[], message).about(expr));
    }

    /// Looks at an expression whose value decides or enters another: it must be no quotient.
    fn used(&mut self, expr: &Expr, columns: &Columns) -> Result<Differs> {
        let differs = self.expr(expr, columns)?;
        if differs.quotient {
            self.quotient(expr);
        }
        Ok(Differs {
            quotient: false,
            ..differs
        })
    }

    fn all_used<'e>(&mut self, exprs: impl IntoIterator<Item = &'e Expr>, columns: &Columns) -> Result<Differs> {
        let mut differs = Differs::default();
        for expr in exprs {
            differs = differs.or(self.used(expr, columns)?);
        }
        Ok(differs)
    }

    fn expr(&mut self, expr: &Expr, columns: &Columns) -> Result<Differs> {
        Ok(match expr {
            Expr::Column(column) => columns.get(column),
            Expr::Alias(alias) => self.expr(&alias.expr, columns)?,
            Expr::Negative(inner) => self.used(inner, columns)?,
            Expr::Cast(cast) => {
                let at_once = matches!(Kind::of(&cast.data_type), Kind::Decimal | Kind::Integer);
                self.at_once(&cast.expr, at_once, columns)?;
                Differs::default()
            }
            Expr::BinaryExpr(binary) => self.binary(binary, expr, columns)?,
            Expr::Case(case) => {
                let conditions = case.when_then_expr.iter().map(|(when, _)| when.as_ref());
                self.all_used(conditions.chain(case.expr.as_deref()), columns)?;
                let results = case.when_then_expr.iter().map(|(_, then)| then.as_ref());
                let mut differs = Differs::default();
                for result in results.chain(case.else_expr.as_deref()) {
                    differs = differs.or(self.expr(result, columns)?);
                }
                differs
            }
            Expr::ScalarFunction(function) => self.function(function, columns)?,
            Expr::AggregateFunction(function) => {
                let params = &function.params;
                let sorted = params.order_by.iter().map(|key| &key.expr);
                self.all_used(sorted.chain(params.filter.as_deref()), columns)?;
                let arguments = self.all_used(&params.args, columns)?;
                aggregate(function.func.name(), &params.args, arguments, &columns.schema)
            }
            Expr::WindowFunction(window) => {
                let params = &window.params;
                let sorted = params.order_by.iter().map(|key| &key.expr);
                self.all_used(
                    sorted.chain(&params.partition_by).chain(params.filter.as_deref()),
                    columns,
                )?;
                let arguments = self.all_used(&params.args, columns)?;
                match &window.fun {
                    WindowFunctionDefinition::AggregateUDF(function) => {
                        aggregate(function.name(), &params.args, arguments, &columns.schema)
                    }
                    WindowFunctionDefinition::WindowUDF(_) => arguments,
                }
            }
            Expr::ScalarSubquery(_) | Expr::InSubquery(_) | Expr::Exists(_) => self.subquery(expr, columns)?,
            Expr::IsNull(inner) | Expr::IsNotNull(inner) => {
                self.expr(inner, columns)?;
                Differs::default()
            }
            other => {
                let mut parts = Vec::new();
                other.apply_children(|part| {
                    parts.push(part.clone());
                    Ok(TreeNodeRecursion::Continue)
                })?;
                self.all_used(&parts, columns)?;
                Differs::default()
            }
        })
    }

    fn subquery(&mut self, expr: &Expr, columns: &Columns) -> Result<Differs> {
        match expr {
            Expr::ScalarSubquery(subquery) => {
                let differ = self.node(&subquery.subquery, false)?;
                return Ok(differ.first().copied().unwrap_or_default());
            }
            Expr::InSubquery(inside) => {
                self.used(&inside.expr, columns)?;
                let differ = self.node(&inside.subquery.subquery, false)?;
                if differ.iter().any(|one| one.quotient) {
                    self.quotient(&inside.expr);
                }
            }
            Expr::Exists(exists) => {
                self.node(&exists.subquery.subquery, false)?;
            }
            _ => {}
        }
        Ok(Differs::default())
    }

    /// Looks at an expression that is cast or rounded: a division may stand there, and nothing else
    /// that is a quotient.
    fn at_once(&mut self, expr: &Expr, allowed: bool, columns: &Columns) -> Result<()> {
        match expr {
            Expr::BinaryExpr(binary) if allowed && binary.op == Operator::Divide => {
                self.binary(binary, expr, columns)?;
            }
            other => {
                self.used(other, columns)?;
            }
        }
        Ok(())
    }

    fn binary(&mut self, binary: &BinaryExpr, expr: &Expr, columns: &Columns) -> Result<Differs> {
        let left = self.used(&binary.left, columns)?;
        let right = self.used(&binary.right, columns)?;
        let kinds = [
            kind_of(&binary.left, &columns.schema),
            kind_of(&binary.right, &columns.schema),
        ];
        let either = left.or(right);
        Ok(match binary.op {
            Operator::Divide if kinds == [Kind::Integer; 2] => {
                if either.whole {
                    let message = "a division of integers is refused where PostgreSQL's sum(bigint) or extract is a numeric \
                                   and keeps the digits after the point: CAST the dividend to numeric(38, 0), or to bigint \
                                   for whole numbers";
                    self.findings
                        .push(Finding::new("INTEGER_DIVISION", &[], message).about(expr));
                }
                Differs::default()
            }
            Operator::Divide if kinds.contains(&Kind::Decimal) && !kinds.contains(&Kind::Float) => Differs::QUOTIENT,
            Operator::Plus | Operator::Minus | Operator::Multiply | Operator::Modulo => either,
            _ => Differs::default(),
        })
    }

    fn function(&mut self, function: &ScalarFunction, columns: &Columns) -> Result<Differs> {
        Ok(match (function.name(), &function.args[..]) {
            ("coalesce", arguments) => {
                let mut differs = Differs::default();
                for argument in arguments {
                    differs = differs.or(self.expr(argument, columns)?);
                }
                differs
            }
            ("date_part", arguments) => {
                self.all_used(arguments, columns)?;
                if is_epoch(function) {
                    Differs::default()
                } else {
                    Differs::WHOLE
                }
            }
            ("round", [value, _]) => {
                self.at_once(value, is_rounded_at_once(function, &columns.schema), columns)?;
                Differs::default()
            }
            ("nullif" | "greatest" | "least" | "abs", arguments) => self.all_used(arguments, columns)?,
            (_, arguments) => {
                self.all_used(arguments, columns)?;
                Differs::default()
            }
        })
    }
}

/// Says whether `round(a / b, n)` becomes a cast of the division.
pub(crate) fn is_rounded_at_once(function: &ScalarFunction, schema: &DFSchema) -> bool {
    crate::meeting::rounded_quotient(function, schema).is_some()
}

fn aggregate(name: &str, arguments: &[Expr], used: Differs, schema: &DFSchema) -> Differs {
    let Some(first) = arguments.first() else {
        return Differs::default();
    };
    let kind = kind_of(first, schema);
    let long = matches!(first.get_type(schema), Ok(DataType::Int64 | DataType::UInt64));
    match name {
        "sum" if kind == Kind::Integer && (long || used.whole) => Differs::WHOLE,
        "sum" | "count" => Differs::default(),
        "min" | "max" | "first_value" | "last_value" | "nth_value" => used,
        _ if name == "avg" || name.starts_with("var") || name.starts_with("stddev") => match kind {
            Kind::Integer | Kind::Decimal => Differs::QUOTIENT,
            _ => Differs::default(),
        },
        _ => Differs::default(),
    }
}
