//! Joins: which kind, by which key, under which condition.

use std::sync::Arc;

use arrow_schema::{Schema, SortOptions};
use datafusion::common::{JoinType, NullEquality, Result, ScalarValue};
use datafusion::logical_expr::{Expr, Join as PlanJoin, LogicalPlan};

use super::super::Operator;
use super::super::arrangement::{Arrangement, KeyColumn};
use super::super::join::{Join, JoinKind, NotIn};
use super::{Lowering, loose};

/// Says what a plan's join is here, and whether its sides are exchanged.
fn kind(join_type: JoinType) -> Option<(JoinKind, bool)> {
    Some(match join_type {
        JoinType::Inner => (JoinKind::Inner, false),
        JoinType::Left => (JoinKind::Left, false),
        JoinType::Right => (JoinKind::Left, true),
        JoinType::Full => (JoinKind::Full, false),
        JoinType::LeftSemi => (JoinKind::Semi, false),
        JoinType::RightSemi => (JoinKind::Semi, true),
        JoinType::LeftAnti => (JoinKind::Anti, false),
        JoinType::RightAnti => (JoinKind::Anti, true),
        JoinType::LeftMark => (JoinKind::Mark, false),
        JoinType::RightMark => return None,
    })
}

impl Lowering<'_> {
    pub(super) async fn join(&mut self, plan: &LogicalPlan, join: &PlanJoin) -> Result<Option<usize>> {
        let (left, right) = (self.lower(&join.left).await?, self.lower(&join.right).await?);
        let (Some(left), Some(right)) = (left, right) else {
            return Ok(None);
        };
        let Some((kind, exchanged)) = kind(join.join_type) else {
            return self.unsupported(plan);
        };
        let condition = join.filter.as_ref().filter(|filter| !is_true(filter));
        let about = join.on.first().map(|(left, _)| left).or(condition);
        if join.null_aware && (kind != JoinKind::Anti || join.on.len() != 1 || condition.is_some()) {
            return Ok(self.refuse("NOT_IN_SHAPE", "NOT IN", &["NOT", "IN"], about));
        }
        let number = self.next_number()?;
        let mut sides = [(join.left.as_ref(), left), (join.right.as_ref(), right)];
        let mut on: Vec<(&Expr, &Expr)> = join.on.iter().map(|(left, right)| (left, right)).collect();
        if exchanged {
            sides.swap(0, 1);
            on.iter_mut().for_each(|pair| *pair = (pair.1, pair.0));
        }
        let [(left, left_node), (right, right_node)] = sides;
        let left_keys = self.keys(on.iter().map(|(key, _)| *key), left)?;
        let right_keys = self.keys(on.iter().map(|(_, key)| *key), right)?;
        let (left_schema, right_schema) = (loose(left.schema()), loose(right.schema()));
        for (l, r) in left_keys.iter().zip(&right_keys) {
            if l.0.data_type(&left_schema)? != r.0.data_type(&right_schema)? {
                return Ok(self.refuse("JOIN_KEY_TYPES", "JOIN", &["JOIN"], about));
            }
        }
        let residual = match condition {
            None => None,
            Some(condition) => Some(self.expression(condition, &left.schema().join(right.schema())?)?),
        };
        let fields = left_schema.fields().iter().chain(right_schema.fields()).cloned();
        let both = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
        let join_here = Join {
            kind,
            left: Arrangement::new((number, 0), "a join", left_schema, left_keys)?,
            right: Arrangement::new((number, 1), "a join", right_schema, right_keys)?,
            null_equal: join.null_equality == NullEquality::NullEqualsNull,
            residual,
            both,
            schema: loose(plan.schema()),
            exchanged,
        };
        if join_here.has_no_key() {
            let note = "a join without an equality reads one side whole when the other changes";
            self.notes.push(note.to_owned());
        }
        self.feed(number, 0, left);
        self.feed(number, 1, right);
        let [high, low] = number.to_be_bytes();
        let operator = match join.null_aware {
            true => Operator::NotIn(NotIn {
                join: join_here,
                counts_key: [high, low, 2],
            }),
            false => Operator::Join(join_here),
        };
        Ok(Some(self.push(operator, vec![left_node, right_node], plan)))
    }

    fn keys<'e>(&self, keys: impl Iterator<Item = &'e Expr>, side: &LogicalPlan) -> Result<Vec<KeyColumn>> {
        keys.map(|key| Ok((self.expression(key, side.schema())?, SortOptions::default())))
            .collect()
    }
}

fn is_true(expr: &Expr) -> bool {
    matches!(expr, Expr::Literal(ScalarValue::Boolean(Some(true)), _))
}
