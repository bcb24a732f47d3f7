//! From files that differ to rows to read: which positions of which file, with which weight.

use std::collections::HashMap;
use std::sync::Arc;

use super::difference::{Difference, Kept, ascending};
use super::placed::Places;
use crate::error::LakeError;
use crate::read::plan::{Content, PlannedFile};
use crate::read::positions::{self, DeletedPositions, Wanted};

/// Holds the rows of one file that came, or that went.
#[derive(Clone, Debug)]
pub(super) struct Part {
    pub(super) file: Arc<str>,
    positions: Vec<u64>,
    /// Says that the positions are wanted, and not all others.
    only: bool,
}

impl Part {
    pub(super) fn wanted(&self) -> Wanted<'_> {
        match self.only {
            true => Wanted::Only(&self.positions),
            false => Wanted::Except(&self.positions),
        }
    }

    /// Is rows at positions of a file, which ascend.
    pub(super) fn only(file: Arc<str>, positions: Vec<u64>) -> Part {
        Part {
            file,
            positions,
            only: true,
        }
    }

    /// Gives the places of the rows; `None` if those are all but some.
    pub(super) fn into_places(self) -> Option<Places> {
        let (file, positions) = (self.file, self.positions);
        self.only.then_some(Places { file, positions })
    }

    /// Is a file's rows but those at the positions.
    fn live(file: &PlannedFile, deleted: &mut DeletedPositions) -> Part {
        Part {
            file: file.path.as_str().into(),
            positions: deleted.remove(file.path.as_str()).unwrap_or_default(),
            only: false,
        }
    }
}

/// Is a piece of work for one reader.
#[derive(Clone, Debug)]
pub(super) enum Task {
    /// Its rows are given with the weight.
    Rows(Part, i64),
    /// Files were rewritten: what the removed and the added have in common cancels.
    Rewrite { added: Vec<Part>, removed: Vec<Part> },
}

impl Task {
    /// Names the files it reads.
    pub(super) fn files(&self) -> impl Iterator<Item = &str> {
        let (one, added, removed) = match self {
            Task::Rows(part, _) => (Some(part), &[][..], &[][..]),
            Task::Rewrite { added, removed } => (None, &added[..], &removed[..]),
        };
        let parts = one.into_iter().chain(added).chain(removed);
        parts.map(|part| &*part.file)
    }
}

/// Resolves a step's difference, reading the delete files that bear on it. Blocks.
///
/// Takes eight bytes for each deleted row of the files that are looked at.
pub(super) fn resolve(difference: &Difference) -> Result<Vec<Task>, LakeError> {
    let mut deleted = match &difference.kept {
        None => Deleted {
            after: positions::collect(&difference.deletes_added, |_, _| true)?,
            before: DeletedPositions::new(),
        },
        Some(kept) => Deleted::read(difference, kept)?,
    };
    let part = |file, side: &mut DeletedPositions| Part::live(file, side);
    let added: Vec<_> = difference
        .added
        .iter()
        .map(|file| part(file, &mut deleted.after))
        .collect();
    let removed: Vec<_> = difference
        .removed
        .iter()
        .map(|file| part(file, &mut deleted.before))
        .collect();
    let mut tasks = match removed.is_empty() {
        true => added.into_iter().map(|part| Task::Rows(part, 1)).collect(),
        false => vec![Task::Rewrite { added, removed }],
    };
    deleted.push_tasks(&mut tasks);
    Ok(tasks)
}

/// Holds deleted positions at both ends of a step, for the files that matter.
struct Deleted {
    before: DeletedPositions,
    after: DeletedPositions,
}

impl Deleted {
    fn read(difference: &Difference, kept: &Kept) -> Result<Deleted, LakeError> {
        let with = |files: &[PlannedFile]| -> HashMap<String, i64> {
            let own = files.iter().map(|file| (file.path.clone(), file.sequence_number));
            own.chain(kept.data.iter().map(|(path, number)| (path.clone(), *number)))
                .collect()
        };
        let (live_before, live_after) = (with(&difference.removed), with(&difference.added));
        let applies =
            |live: &HashMap<String, i64>, path: &str, number| live.get(path).is_some_and(|data| number >= *data);
        let came = positions::collect(&difference.deletes_added, |path, number| {
            applies(&live_after, path, number)
        })?;
        let went = positions::collect(&difference.deletes_removed, |path, number| {
            applies(&live_before, path, number)
        })?;
        // What stands at both ends matters for the files that changed, and for those whose deletes did.
        let changed = difference.added.iter().chain(&difference.removed);
        let changed = changed.map(|file| file.path.as_str());
        let touched = ascending(changed.chain(came.keys().chain(went.keys()).map(|path| &**path)));
        let matters = |path: &str| touched.binary_search(&path).is_ok();
        let named: Vec<_> = kept.deletes.iter().filter(|file| file.may_name(&touched)).collect();
        let side = |live: &HashMap<String, i64>, own: DeletedPositions| {
            let stay = positions::collect(named.iter().copied(), |path, number| {
                matters(path) && applies(live, path, number)
            });
            stay.map(|stay| united(own.clone(), stay))
        };
        let (before, after) = (side(&live_before, went.clone())?, side(&live_after, came.clone())?);
        Ok(Deleted { before, after })
    }

    /// Adds what was deleted in files that both ends have, and what came back there.
    fn push_tasks(mut self, tasks: &mut Vec<Task>) {
        let mut paths: Vec<Arc<str>> = self.after.keys().chain(self.before.keys()).cloned().collect();
        paths.sort_unstable();
        paths.dedup();
        for file in paths {
            let after = self.after.remove(&file).unwrap_or_default();
            let before = self.before.remove(&file).unwrap_or_default();
            for (positions, weight) in [(without(&after, &before), -1), (without(&before, &after), 1)] {
                if !positions.is_empty() {
                    tasks.push(Task::Rows(Part::only(file.clone(), positions), weight));
                }
            }
        }
    }
}

fn united(mut all: DeletedPositions, more: DeletedPositions) -> DeletedPositions {
    for (path, positions) in more {
        let known = all.entry(path).or_default();
        known.extend(positions);
        known.sort_unstable();
        known.dedup();
    }
    all
}

/// Lists what is in the first ascending list and not in the second.
fn without(positions: &[u64], others: &[u64]) -> Vec<u64> {
    let mut others = others.iter().peekable();
    let mut out = Vec::new();
    for position in positions {
        while others.next_if(|other| *other < position).is_some() {}
        if others.peek() != Some(&position) {
            out.push(*position);
        }
    }
    out
}

/// Says whether positions of Parquet files are all that must be read.
pub(super) fn is_plain(difference: &Difference) -> bool {
    !difference.has(Content::ForeignData) && !difference.has(Content::ForeignDeletes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_is_set_difference() {
        for set in 0..256_u64 {
            let positions: Vec<u64> = (0..4).filter(|at| set & (1 << at) != 0).collect();
            let others: Vec<u64> = (0..4).filter(|at| set & (16 << at) != 0).collect();
            let wanted: Vec<u64> = positions.iter().copied().filter(|at| !others.contains(at)).collect();
            assert_eq!(without(&positions, &others), wanted, "{positions:?} {others:?}");
        }
    }
}
