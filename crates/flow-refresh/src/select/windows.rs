//! Named windows, written out where they are used: the engine forgets the partition of a window that
//! another one adds an order to.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    Expr, Ident, NamedWindowExpr, Query, Select, SetExpr, VisitMut, VisitorMut, WindowSpec, WindowType,
};

use super::spelled;
use crate::tokens::{Fault, Place};

/// Writes out the windows that a query's own SELECTs name.
pub(super) fn write_out(query: &mut Query) -> ControlFlow<Fault> {
    let mut known = BTreeMap::new();
    selects(&mut query.body, &mut known)?;
    if let Some(order) = &mut query.order_by {
        VisitMut::visit(
            order,
            &mut Uses {
                known: &known,
                depth: 0,
            },
        )?;
    }
    ControlFlow::Continue(())
}

type Windows = BTreeMap<String, WindowSpec>;

fn selects(body: &mut SetExpr, known: &mut Windows) -> ControlFlow<Fault> {
    match body {
        SetExpr::Select(select) => one_select(select, known),
        SetExpr::SetOperation { left, right, .. } => {
            selects(left, &mut Windows::new())?;
            selects(right, &mut Windows::new())
        }
        _ => ControlFlow::Continue(()),
    }
}

fn one_select(select: &mut Select, known: &mut Windows) -> ControlFlow<Fault> {
    for definition in &mut select.named_window {
        let spec = match &definition.1 {
            NamedWindowExpr::NamedWindow(name) => find(name, known)?,
            NamedWindowExpr::WindowSpec(spec) => merged(spec, known)?,
        };
        known.insert(spelled(&definition.0), spec.clone());
        definition.1 = NamedWindowExpr::WindowSpec(spec);
    }
    let mut uses = Uses { known, depth: 0 };
    VisitMut::visit(&mut select.projection, &mut uses)?;
    VisitMut::visit(&mut select.qualify, &mut uses)
}

fn find(name: &Ident, known: &Windows) -> ControlFlow<Fault, WindowSpec> {
    match known.get(&spelled(name)) {
        Some(spec) => ControlFlow::Continue(spec.clone()),
        None => refused(name, "is not defined before it is used"),
    }
}

fn refused<T>(name: &Ident, why: &str) -> ControlFlow<Fault, T> {
    let place = Place::from(name.span.start);
    ControlFlow::Break(Fault::new(place, "F0409", format!("window '{name}' {why}")))
}

/// Is a window with what it takes from the one it names: its partition, and its order if it has none.
fn merged(spec: &WindowSpec, known: &Windows) -> ControlFlow<Fault, WindowSpec> {
    let Some(name) = &spec.window_name else {
        return ControlFlow::Continue(spec.clone());
    };
    let base = find(name, known)?;
    if !spec.partition_by.is_empty() {
        return refused(name, "has a partition already, as in PostgreSQL");
    }
    if !base.order_by.is_empty() && !spec.order_by.is_empty() {
        return refused(name, "has an order already, as in PostgreSQL");
    }
    if base.window_frame.is_some() {
        return refused(
            name,
            "has a frame and cannot be copied, as in PostgreSQL: write OVER without parentheses",
        );
    }
    let order_by = match spec.order_by.is_empty() {
        true => base.order_by,
        false => spec.order_by.clone(),
    };
    ControlFlow::Continue(WindowSpec {
        window_name: None,
        partition_by: base.partition_by,
        order_by,
        window_frame: spec.window_frame.clone(),
    })
}

/// Finds the uses outside subqueries, which have windows of their own.
struct Uses<'a> {
    known: &'a Windows,
    depth: usize,
}

impl VisitorMut for Uses<'_> {
    type Break = Fault;

    fn pre_visit_query(&mut self, _query: &mut Query) -> ControlFlow<Fault> {
        self.depth += 1;
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, _query: &mut Query) -> ControlFlow<Fault> {
        self.depth -= 1;
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<Fault> {
        if let Expr::Function(function) = expr
            && let Some(WindowType::WindowSpec(spec)) = &mut function.over
            && self.depth == 0
        {
            *spec = merged(spec, self.known)?;
        }
        ControlFlow::Continue(())
    }
}
