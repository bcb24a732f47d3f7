//! Which definitions come first: duplicates and cycles out, inputs before those that read them.

use std::collections::{BTreeMap, BTreeSet};

use arrow_schema::SchemaRef;
use flow_core::TableName;

use super::{Parsed, problem};
use crate::definition::Problem;
use crate::tokens::Fault;

/// Orders definitions so that inputs come first, by file and place where that leaves a choice.
/// Those that stand twice, or read themselves through others, become problems.
pub(super) fn arrange<'a>(
    parsed: Vec<Parsed<'a>>,
    declared: &BTreeMap<TableName, SchemaRef>,
    problems: &mut Vec<Problem>,
) -> Vec<Parsed<'a>> {
    let mut waiting: Vec<Parsed<'a>> = Vec::new();
    for definition in parsed {
        let name = &definition.definition.name;
        let place = (0, 0);
        if let Some(first) = waiting.iter().find(|other| other.definition.name == *name) {
            let first = &first.definition;
            let message = format!(
                "{name} is defined twice: first in {}:{}",
                first.file.display(),
                first.line
            );
            problems.push(definition.definition.problem(place, "F0405", message));
        } else if declared.contains_key(name) {
            let message = format!("{name} is already the target of a captured table");
            problems.push(definition.definition.problem(place, "F0405", message));
        } else {
            waiting.push(definition);
        }
    }
    let mut arranged = Vec::with_capacity(waiting.len());
    loop {
        let names: BTreeSet<TableName> = waiting.iter().map(|parsed| parsed.definition.name.clone()).collect();
        let free = |parsed: &Parsed<'_>| {
            !parsed
                .references
                .iter()
                .any(|reference| names.contains(&reference.name))
        };
        let (mut ready, rest): (Vec<_>, Vec<_>) = waiting.into_iter().partition(free);
        waiting = rest;
        if ready.is_empty() {
            break;
        }
        arranged.append(&mut ready);
    }
    // What is left reads itself, or reads a table that does.
    let reads: BTreeMap<&TableName, Vec<&TableName>> = waiting
        .iter()
        .map(|parsed| {
            let inputs = parsed.references.iter().map(|reference| &reference.name);
            (&parsed.definition.name, inputs.collect())
        })
        .collect();
    for parsed in &waiting {
        let name = &parsed.definition.name;
        let (message, through) = match cycle(name, &reads) {
            Some(path) => {
                let steps: Vec<String> = path.iter().map(ToString::to_string).collect();
                (
                    format!("{name} reads itself in a cycle: {}", steps.join(" <- ")),
                    path.get(1).cloned(),
                )
            }
            None => {
                let above = parsed
                    .references
                    .iter()
                    .find(|reference| reads.contains_key(&reference.name));
                let above = above.map(|reference| reference.name.clone());
                let named = above.as_ref().map_or(String::new(), ToString::to_string);
                (format!("input {named} cannot be planned itself"), above)
            }
        };
        let reference = parsed
            .references
            .iter()
            .find(|reference| Some(&reference.name) == through.as_ref());
        let place = reference.map(|reference| reference.place).unwrap_or_default();
        problems.push(problem(parsed.definition, Fault::new(place, "F0406", message)));
    }
    arranged
}

/// Finds a shortest way from a table through its inputs back to itself.
fn cycle(start: &TableName, reads: &BTreeMap<&TableName, Vec<&TableName>>) -> Option<Vec<TableName>> {
    let mut paths: Vec<Vec<TableName>> = vec![vec![start.clone()]];
    let mut seen = BTreeSet::new();
    while !paths.is_empty() {
        let mut longer = Vec::new();
        for path in paths {
            let inputs = path.last().and_then(|last| reads.get(last));
            for input in inputs.into_iter().flatten() {
                let mut path = path.clone();
                path.push((*input).clone());
                if *input == start {
                    return Some(path);
                }
                if seen.insert(*input) {
                    longer.push(path);
                }
            }
        }
        paths = longer;
    }
    None
}
