//! The publish path's states, per table of an operation, and the one function that moves them.
//!
//! Begin → write files → seal → commit → proof → apply → complete: the order is written here and
//! nowhere else. Recovery starts from the phase the store holds and asks [`step`] too.

use serde::{Deserialize, Serialize};

use crate::ids::Attempt;

/// Is where one table of an operation stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "phase")]
pub enum Phase {
    /// Durable (D2). Set by begin and by every replan. Files of `attempt` may exist; none is visible.
    Building {
        /// The physical try whose names the files carry.
        attempt: Attempt,
    },
    /// Durable (D3). Set when every file of the attempt is synced and the plan is recorded. From
    /// here on the attempt may be committed at any moment, also by a request thought lost.
    Sealed {
        /// The try that was sealed.
        attempt: Attempt,
    },
    /// In memory only; the store says `Sealed`. The commit's outcome is not known: only a look at
    /// the catalog for the attempt's marker may decide.
    Unknown {
        /// The try whose outcome is unknown.
        attempt: Attempt,
    },
    /// Durable (D5). The catalog has the attempt. Blocks of the index delta before `applied` are in
    /// the row index.
    Committed {
        /// The try that is in the catalog.
        attempt: Attempt,
        /// Counts the index delta's blocks that are applied (D6).
        applied: u64,
    },
    /// Durable, last. The row index and the ledger have it.
    Completed,
    /// Durable, last. The table was set aside and its range stays in the journal.
    SetAside,
}

/// Is what happened to one table of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Event {
    /// Every file is synced and the plan is recorded.
    Seal,
    /// The catalog answered that the commit stands.
    Committed,
    /// The catalog answered that the base has moved: nothing of the attempt is visible.
    Conflict,
    /// No answer, or one that proves nothing.
    Lost,
    /// A look found the attempt's marker.
    MarkerFound,
    /// A look found no marker and the base unchanged: the same snapshot may be sent again.
    BaseUnchanged,
    /// A look found no marker and another base: the attempt can never be committed.
    BaseMoved,
    /// Blocks of the index delta up to this count are applied.
    Applied(u64),
    /// The last block is applied and the ledger entry complete.
    Complete,
    /// The table cannot publish; the rest go on.
    SetAside,
}

/// Says that an event must not happen in a phase: a broken invariant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{event:?} is not allowed in {phase:?}")]
pub struct Illegal {
    /// The phase.
    pub phase: Phase,
    /// The event.
    pub event: Event,
}

/// Moves a phase by an event. Everything not listed is prohibited.
///
/// IMPORTANT: `SetAside` is not allowed from `Sealed` or `Unknown`: the attempt may already be
/// visible, and only a look (`BaseMoved`) or a refusal (`Conflict`) proves that it is not.
pub fn step(phase: Phase, event: Event) -> Result<Phase, Illegal> {
    let next = |attempt: Attempt| Phase::Building {
        attempt: Attempt(attempt.0 + 1),
    };
    Ok(match (phase, event) {
        (Phase::Building { attempt }, Event::Seal) => Phase::Sealed { attempt },
        (Phase::Building { attempt }, Event::BaseMoved) => next(attempt),
        (Phase::Building { .. }, Event::SetAside) => Phase::SetAside,
        (Phase::Sealed { attempt }, Event::Committed | Event::MarkerFound) => Phase::Committed { attempt, applied: 0 },
        (Phase::Sealed { attempt }, Event::Conflict | Event::BaseMoved) => next(attempt),
        (Phase::Sealed { attempt }, Event::Lost) => Phase::Unknown { attempt },
        (Phase::Sealed { attempt }, Event::BaseUnchanged) => Phase::Sealed { attempt },
        (Phase::Unknown { attempt }, Event::MarkerFound) => Phase::Committed { attempt, applied: 0 },
        (Phase::Unknown { attempt }, Event::BaseUnchanged) => Phase::Sealed { attempt },
        (Phase::Unknown { attempt }, Event::BaseMoved) => next(attempt),
        (Phase::Unknown { attempt }, Event::Lost) => Phase::Unknown { attempt },
        (Phase::Committed { attempt, applied }, Event::Applied(count)) if count >= applied => Phase::Committed {
            attempt,
            applied: count,
        },
        (Phase::Committed { .. }, Event::Complete) => Phase::Completed,
        (phase, event) => return Err(Illegal { phase, event }),
    })
}

/// Prints the whole transition table as Markdown, for `ARCHITECTURE.md`.
pub fn transition_table() -> String {
    let first = Attempt(1);
    let phases = [
        ("Building", Phase::Building { attempt: first }),
        ("Sealed", Phase::Sealed { attempt: first }),
        ("Unknown", Phase::Unknown { attempt: first }),
        (
            "Committed",
            Phase::Committed {
                attempt: first,
                applied: 0,
            },
        ),
        ("Completed", Phase::Completed),
        ("SetAside", Phase::SetAside),
    ];
    let events = [
        ("Seal", Event::Seal),
        ("Committed", Event::Committed),
        ("Conflict", Event::Conflict),
        ("Lost", Event::Lost),
        ("MarkerFound", Event::MarkerFound),
        ("BaseUnchanged", Event::BaseUnchanged),
        ("BaseMoved", Event::BaseMoved),
        ("Applied", Event::Applied(1)),
        ("Complete", Event::Complete),
        ("SetAside", Event::SetAside),
    ];
    let mut out = String::from("| phase |");
    for (name, _) in events {
        out += &format!(" {name} |");
    }
    out += "\n|---|";
    out += &"---|".repeat(events.len());
    for (name, phase) in phases {
        out += &format!("\n| **{name}** |");
        for (_, event) in events {
            let cell = match step(phase, event) {
                Ok(Phase::Building { attempt }) if attempt > first => "Building, next attempt",
                Ok(Phase::Building { .. }) => "Building",
                Ok(Phase::Sealed { .. }) => "Sealed",
                Ok(Phase::Unknown { .. }) => "Unknown",
                Ok(Phase::Committed { .. }) => "Committed",
                Ok(Phase::Completed) => "Completed",
                Ok(Phase::SetAside) => "SetAside",
                Err(_) => "–",
            };
            out += &format!(" {cell} |");
        }
    }
    out.push('\n');
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_architecture_shows_this_table() {
        let shown = include_str!("../../../ARCHITECTURE.md");
        assert!(
            shown.contains(&transition_table()),
            "ARCHITECTURE.md should hold:\n{}",
            transition_table()
        );
    }

    #[test]
    fn nothing_leaves_a_sealed_attempt_without_proof() {
        for event in [Event::Seal, Event::Complete, Event::SetAside, Event::Applied(1)] {
            assert!(step(Phase::Sealed { attempt: Attempt(1) }, event).is_err());
            assert!(step(Phase::Unknown { attempt: Attempt(1) }, event).is_err());
        }
    }

    #[test]
    fn last_phases_are_last_and_applied_only_grows() {
        let committed = Phase::Committed {
            attempt: Attempt(1),
            applied: 5,
        };
        assert!(step(committed, Event::Applied(4)).is_err());
        for phase in [Phase::Completed, Phase::SetAside] {
            for event in [
                Event::Seal,
                Event::Committed,
                Event::Lost,
                Event::MarkerFound,
                Event::Complete,
            ] {
                assert!(step(phase, event).is_err());
            }
        }
    }
}
