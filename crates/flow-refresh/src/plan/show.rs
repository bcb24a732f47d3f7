//! The plan as text and as JSON.

use serde_json::{Value, json};

use super::{Plan, PlannedTable};
use crate::definition::Lag;

impl Plan {
    /// Shows the graph as text: a table a line, in the order of refreshing, inputs behind it.
    pub fn dag_text(&self) -> String {
        let lines = self.tables.iter().map(|table| {
            let inputs: Vec<String> = table.inputs.iter().map(ToString::to_string).collect();
            let inputs = if inputs.is_empty() {
                "(no input)".to_owned()
            } else {
                inputs.join(", ")
            };
            format!("{}{} <- {inputs}\n", "  ".repeat(table.level), table.name)
        });
        lines.collect()
    }

    /// Shows every table with its mode, why, its columns and notes, and every problem.
    pub fn plan_text(&self) -> String {
        let mut text = String::new();
        for table in &self.tables {
            text.push_str(&format!(
                "{}  {}  {}\n",
                table.name,
                table.mode.as_str(),
                lag_text(table.lag)
            ));
            for reason in &table.reasons {
                let place = format!("{}:{}:{}", reason.file.display(), reason.line, reason.column);
                text.push_str(&format!("  because {} ({}) at {place}\n", reason.code, reason.operator));
            }
            text.push_str(&format!("  columns {}\n", columns_text(table)));
            table
                .notes
                .iter()
                .chain(&table.drift)
                .for_each(|note| text.push_str(&format!("  note {note}\n")));
        }
        self.problems
            .iter()
            .for_each(|problem| text.push_str(&format!("{problem}\n")));
        text
    }

    /// Is the output of `plan --json`: `tables`, each with name, mode and reasons at least, and `problems`.
    pub fn to_json(&self) -> Value {
        let tables = self.tables.iter().map(|table| {
            let columns = table.output.columns[..table.user_columns].iter();
            let columns = columns.map(|column| json!({"name": column.name, "type": column.column_type.to_string()}));
            json!({
                "name": table.name.to_string(),
                "mode": table.mode,
                "reasons": table.reasons,
                "inputs": table.inputs.iter().map(ToString::to_string).collect::<Vec<_>>(),
                "level": table.level,
                "lag": lag_text(table.lag),
                "columns": columns.collect::<Vec<_>>(),
                "notes": table.notes,
                "drift": table.drift,
                "time_bound": table.time_bound,
            })
        });
        json!({"tables": tables.collect::<Vec<_>>(), "problems": self.problems})
    }
}

fn columns_text(table: &PlannedTable) -> String {
    let columns = table.output.columns[..table.user_columns].iter();
    let columns: Vec<String> = columns
        .map(|column| format!("{} {}", column.name, column.column_type))
        .collect();
    columns.join(", ")
}

fn lag_text(lag: Lag) -> String {
    match lag {
        Lag::None => "on commit".to_owned(),
        Lag::Downstream => "downstream".to_owned(),
        Lag::Duration(duration) => match duration.subsec_millis() {
            0 => format!("{}s", duration.as_secs()),
            _ => format!("{}ms", duration.as_millis()),
        },
    }
}
