//! Snapshot reads.

use async_trait::async_trait;
use flow_core::TableName;
use flow_core::lake::{BatchStream, LakeReadError, LakeTable, LocatedStream, SnapshotReader};

use crate::lake::Lake;

#[async_trait]
impl SnapshotReader for Lake {
    async fn load(&self, _name: &TableName) -> Result<Option<LakeTable>, LakeReadError> {
        Ok(None)
    }

    async fn list(&self) -> Result<Vec<TableName>, LakeReadError> {
        Ok(Vec::new())
    }

    async fn scan(
        &self,
        _name: &TableName,
        _snapshot_id: i64,
        _projection: Option<Vec<usize>>,
    ) -> Result<BatchStream, LakeReadError> {
        Ok(Box::pin(futures::stream::empty()))
    }

    async fn scan_located(&self, _name: &TableName, _snapshot_id: i64) -> Result<LocatedStream, LakeReadError> {
        Ok(Box::pin(futures::stream::empty()))
    }
}
