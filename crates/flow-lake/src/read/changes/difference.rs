//! Which files two snapshots do not share, from manifests alone.
//!
//! A manifest that both list says nothing about the difference and is not read. Of what only the
//! older one lists, nothing is read either where counts prove that all its files are still there.

use std::collections::{BTreeSet, HashMap, HashSet};

use iceberg::spec::{ManifestContentType, ManifestFile};

use super::course::Step;
use crate::error::LakeError;
use crate::lake::Shared;
use crate::read::plan::{self, Content, PlannedFile};
use crate::table::Table;

/// Is the files in which a step's ends differ.
#[derive(Debug, Default)]
pub(super) struct Difference {
    /// Holds the data files that came and went.
    pub(super) added: Vec<PlannedFile>,
    pub(super) removed: Vec<PlannedFile>,
    /// Holds the delete files that came and went.
    pub(super) deletes_added: Vec<PlannedFile>,
    pub(super) deletes_removed: Vec<PlannedFile>,
    /// Holds all that stands at both ends; `None` where it does not matter.
    pub(super) kept: Option<Kept>,
}

/// Is the files that both ends of a step have.
#[derive(Debug, Default)]
pub(super) struct Kept {
    /// Maps data files to their sequence numbers.
    pub(super) data: HashMap<String, i64>,
    pub(super) deletes: Vec<PlannedFile>,
}

impl Difference {
    /// Counts the rows that came and those that went, before any cancel.
    pub(super) fn counts(&self) -> (u64, u64) {
        let sum = |files: &[PlannedFile]| files.iter().map(|file| file.rows).sum::<u64>();
        (
            sum(&self.added) + sum(&self.deletes_removed),
            sum(&self.removed) + sum(&self.deletes_added),
        )
    }

    fn changed(&self) -> impl Iterator<Item = &PlannedFile> {
        let data = self.added.iter().chain(&self.removed);
        data.chain(&self.deletes_added).chain(&self.deletes_removed)
    }

    /// Says whether a file of the content bears on what changed.
    pub(super) fn has(&self, content: Content) -> bool {
        let kept = self.kept.iter().flat_map(|kept| &kept.deletes);
        self.changed().chain(kept).any(|file| file.content == content)
    }
}

/// Is what one end of a step lists and the other does not.
struct Ends<'a> {
    before: Vec<&'a ManifestFile>,
    after: Vec<&'a ManifestFile>,
    both: Vec<&'a ManifestFile>,
}

impl<'a> Ends<'a> {
    fn of(before: &'a [ManifestFile], after: &'a [ManifestFile], content: ManifestContentType) -> Ends<'a> {
        let of_content = |manifest: &&ManifestFile| manifest.content == content && may_have_live_files(manifest);
        let known: HashSet<&str> = before.iter().map(|manifest| &manifest.manifest_path[..]).collect();
        let (both, after): (Vec<_>, Vec<_>) = after
            .iter()
            .filter(of_content)
            .partition(|manifest| known.contains(&manifest.manifest_path[..]));
        let shared: HashSet<&str> = both.iter().map(|manifest| &manifest.manifest_path[..]).collect();
        let before = before.iter().filter(of_content);
        Ends {
            before: before.filter(|m| !shared.contains(&m.manifest_path[..])).collect(),
            after,
            both,
        }
    }
}

fn may_have_live_files(manifest: &ManifestFile) -> bool {
    live_files(manifest) != Some(0)
}

/// Counts a manifest's live files; `None` if the list does not say.
fn live_files(manifest: &ManifestFile) -> Option<u64> {
    let added = u64::from(manifest.added_files_count?);
    Some(added + u64::from(manifest.existing_files_count?))
}

/// Is the files of one content that came, went and stayed, without those in shared manifests.
#[derive(Default)]
struct Moved {
    added: Vec<PlannedFile>,
    removed: Vec<PlannedFile>,
    stayed: Vec<PlannedFile>,
}

/// Is what makes a file the same at both ends.
fn identity(file: &PlannedFile) -> (&str, Option<i64>) {
    (&file.path, file.offset)
}

fn compare(step: &Step, ends: &Ends<'_>) -> Result<Moved, LakeError> {
    let after = plan::live_files(ends.after.iter().copied())?;
    if let Some(moved) = by_counts(step, ends, &after) {
        return Ok(moved);
    }
    let before = plan::live_files(ends.before.iter().copied())?;
    let known: HashSet<_> = before.iter().map(identity).collect();
    let (stayed, added): (Vec<_>, Vec<_>) = after.into_iter().partition(|file| known.contains(&identity(file)));
    let still: HashSet<_> = stayed.iter().map(identity).collect();
    let removed = before.iter().filter(|file| !still.contains(&identity(file)));
    Ok(Moved {
        added,
        removed: removed.cloned().collect(),
        stayed: stayed.clone(),
    })
}

/// Tells what came by the sequence numbers alone, if nothing went.
///
/// On an unbroken way a file as old as its start stood there too. So if as many such files are
/// listed after as were listed before, they are the same.
fn by_counts(step: &Step, ends: &Ends<'_>, after: &[PlannedFile]) -> Option<Moved> {
    let start = step.from.sequence_number();
    // Tables of format 1 have no sequence numbers.
    if !step.unbroken || start == 0 {
        return None;
    }
    let before = ends.before.iter().map(|manifest| live_files(manifest));
    let before = before.sum::<Option<u64>>()?;
    let mut moved = Moved::default();
    for file in after {
        match file.added_at? > start {
            true => moved.added.push(file.clone()),
            false => moved.stayed.push(file.clone()),
        }
    }
    (moved.stayed.len() as u64 == before).then_some(moved)
}

/// Compares the ends of a step. Blocks.
///
/// `trusted` says that this program alone wrote the table: it removes no data file and deletes a row
/// once, so that new deletes need no look at what they meet.
pub(super) fn between(shared: &Shared, table: &Table, step: &Step, trusted: bool) -> Result<Difference, LakeError> {
    let before = plan::manifests(shared, table, &step.from)?;
    let after = plan::manifests(shared, table, &step.to)?;
    let data_ends = Ends::of(&before, &after, ManifestContentType::Data);
    let delete_ends = Ends::of(&before, &after, ManifestContentType::Deletes);
    let data = compare(step, &data_ends)?;
    let deletes = compare(step, &delete_ends)?;
    let start = step.from.sequence_number();
    let old_again = data.added.iter().any(|file| file.sequence_number <= start);
    let plain = data.removed.is_empty() && deletes.removed.is_empty() && !old_again;
    let kept = match plain && (trusted || deletes.added.is_empty()) {
        true => None,
        false => Some(kept(&data_ends, &data, &delete_ends, &deletes)?),
    };
    Ok(Difference {
        added: data.added,
        removed: data.removed,
        deletes_added: deletes.added,
        deletes_removed: deletes.removed,
        kept,
    })
}

fn kept(data_ends: &Ends<'_>, data: &Moved, delete_ends: &Ends<'_>, deletes: &Moved) -> Result<Kept, LakeError> {
    let mut files = plan::live_files(data_ends.both.iter().copied())?;
    files.extend(data.stayed.iter().cloned());
    let mut kept = plan::live_files(delete_ends.both.iter().copied())?;
    kept.extend(deletes.stayed.iter().cloned());
    Ok(Kept {
        data: files
            .into_iter()
            .map(|file| (file.path, file.sequence_number))
            .collect(),
        deletes: kept,
    })
}

/// Lists the paths of files in ascending order, each once.
pub(super) fn ascending<'a>(paths: impl IntoIterator<Item = &'a str>) -> Vec<&'a str> {
    paths.into_iter().collect::<BTreeSet<_>>().into_iter().collect()
}
