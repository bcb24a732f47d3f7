//! The singletons: whose directory this is, how far the source as a whole has come.

use std::sync::Arc;

use flow_core::{Epoch, Lsn};
use rocksdb::WriteBatch;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::database::{Database, Durability};
use crate::error::StoreError;
use crate::layout::{FactKey, Family};
use crate::record;

/// Says whose changes a state directory holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// Names the source in metadata.
    pub source_id: String,
    /// Is PostgreSQL's own random number for the cluster.
    pub system_identifier: u64,
    /// Names the replication slot.
    pub slot: String,
    /// Names the database.
    pub database: String,
    /// Is 16 random hexadecimal digits made at `init`: two directories of one slot differ by it.
    pub source_uid: String,
}

impl Identity {
    /// Checks that `wanted` names the same source, system, database and slot. The random part is
    /// not compared: only the directory knows it.
    ///
    /// # Errors
    /// [`StoreError::Foreign`] (reconfigure) naming the first difference.
    pub fn require(&self, wanted: &Identity) -> Result<(), StoreError> {
        let (found_system, wanted_system) = (self.system_identifier.to_string(), wanted.system_identifier.to_string());
        let fields = [
            ("system identifier", &found_system, &wanted_system),
            ("database", &self.database, &wanted.database),
            ("slot", &self.slot, &wanted.slot),
            ("source id", &self.source_id, &wanted.source_id),
        ];
        match fields.iter().find(|(_, found, wanted)| found != wanted) {
            None => Ok(()),
            Some((field, found, wanted)) => Err(StoreError::Foreign {
                field,
                found: (*found).clone(),
                wanted: (*wanted).clone(),
            }),
        }
    }
}

/// Says how far `init` has come. Absent before it began.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "state")]
pub enum InitState {
    /// The slot is about to be created: one that exists is from this attempt or was never asked for.
    Intended,
    /// The slot exists; tables are being copied.
    SlotCreated {
        /// Is the slot's consistent point: streaming begins here.
        consistent_point: Lsn,
    },
    /// Every table has its first content.
    Done,
}

/// Says from where epochs continue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LedgerPosition {
    /// Is the last epoch that completed; epoch 0 if none has.
    pub last_epoch: Epoch,
    /// Is the published prefix: where the next epoch's range begins.
    pub published_lsn: Lsn,
}

/// Reads and writes the singletons.
#[derive(Clone, Debug)]
pub struct Facts {
    database: Arc<Database>,
}

impl Facts {
    pub(crate) fn new(database: Arc<Database>) -> Self {
        Facts { database }
    }

    fn read<T: DeserializeOwned>(&self, key: FactKey) -> Result<Option<T>, StoreError> {
        self.database.get_json(Family::Facts, key.bytes())
    }

    fn write<T: Serialize>(&self, key: FactKey, value: &T) -> Result<(), StoreError> {
        let mut batch = WriteBatch::default();
        stage(&self.database, &mut batch, key, value);
        self.database.write(batch, Durability::Synced)
    }

    /// Says whose directory this is; `None` before `init`.
    pub(crate) fn identity(&self) -> Result<Option<Identity>, StoreError> {
        self.read(FactKey::Identity)
    }

    /// Gives the directory an owner; the same one again changes nothing.
    pub(crate) fn set_identity(&self, identity: &Identity) -> Result<(), StoreError> {
        let _held = self.database.exclusive();
        if let Some(found) = self.identity()? {
            found.require(identity)?;
            if found.source_uid != identity.source_uid {
                return Err(StoreError::Foreign {
                    field: "source uid",
                    found: found.source_uid,
                    wanted: identity.source_uid.clone(),
                });
            }
            return Ok(());
        }
        self.write(FactKey::Identity, identity)
    }

    /// Says how far `init` has come; `None` before it began.
    ///
    /// # Errors
    /// Crash if the record cannot be read.
    pub fn init(&self) -> Result<Option<InitState>, StoreError> {
        self.read(FactKey::Init)
    }

    /// Records how far `init` has come.
    ///
    /// # Durability
    /// Synced.
    ///
    /// # Errors
    /// Crash if the write fails.
    pub fn set_init(&self, state: &InitState) -> Result<(), StoreError> {
        self.write(FactKey::Init, state)
    }

    /// Says from where epochs continue; epoch 0 at LSN 0/0 before the first.
    ///
    /// # Errors
    /// Crash if the record cannot be read.
    pub fn ledger(&self) -> Result<LedgerPosition, StoreError> {
        Ok(self.read(FactKey::Ledger)?.unwrap_or_default())
    }

    /// Records from where epochs continue, outside an operation: the start after `init`, or an epoch
    /// in which no table changed.
    ///
    /// # Durability
    /// Synced.
    ///
    /// # Errors
    /// Crash if the write fails, or the position goes back.
    pub fn set_ledger(&self, position: &LedgerPosition) -> Result<(), StoreError> {
        let _held = self.database.exclusive();
        let mut batch = WriteBatch::default();
        self.stage_ledger(&mut batch, position)?;
        self.database.write(batch, Durability::Synced)
    }

    /// Adds the ledger's position to a batch, unless it would go back. The caller is exclusive.
    pub(crate) fn stage_ledger(&self, batch: &mut WriteBatch, position: &LedgerPosition) -> Result<(), StoreError> {
        let stands = self.ledger()?;
        if position.last_epoch < stands.last_epoch || position.published_lsn < stands.published_lsn {
            return Err(StoreError::OutOfOrder {
                what: "published position",
                at: position.published_lsn,
                stands: stands.published_lsn,
            });
        }
        stage(&self.database, batch, FactKey::Ledger, position);
        Ok(())
    }

    /// Is what the publication looked like when it was last compared; `None` if it never was.
    ///
    /// # Errors
    /// Crash if the record cannot be read.
    pub fn publication(&self) -> Result<Option<serde_json::Value>, StoreError> {
        self.read(FactKey::Publication)
    }

    /// Records what the publication looks like.
    ///
    /// # Durability
    /// Synced.
    ///
    /// # Errors
    /// Crash if the write fails.
    pub fn set_publication(&self, publication: &serde_json::Value) -> Result<(), StoreError> {
        self.write(FactKey::Publication, publication)
    }
}

/// Adds a singleton to a batch.
pub(crate) fn stage<T: Serialize>(database: &Database, batch: &mut WriteBatch, key: FactKey, value: &T) {
    let key = key.bytes();
    batch.put_cf(database.family(Family::Facts), key, record::seal_json(key, value));
}
