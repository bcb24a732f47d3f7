//! RocksDB's options, per family and use.
//!
//! All memory comes from one budget: block cache and write buffers are charged to one cache.

use rocksdb::{
    BlockBasedIndexType, BlockBasedOptions, Cache, ColumnFamilyDescriptor, DBCompressionType, DBRecoveryMode,
    DataBlockIndexType, LogLevel, Options, WriteBufferManager,
};

use crate::layout::Family;
use crate::weights;

const KIB: usize = 1024;
const MIB: usize = 1024 * KIB;

/// Is the least memory the store works with, in bytes: below it write buffers would be flushed as
/// tiny files.
pub(crate) const MEMORY_BYTES_MIN: usize = 32 * MIB;
/// Bounds the log that has to be read at start, in bytes. Reaching it flushes the families that
/// still need its oldest part; a quarter gigabyte is read in about a second.
const LOG_BYTES_MAX: u64 = 256 * MIB as u64;
/// Is the size from which a row copy stands in a blob file, in bytes. Smaller ones cost less inside
/// the tree than the reference to a blob.
const BLOB_BYTES_MIN: u64 = 64;

/// Holds what the families share.
pub(crate) struct Memory {
    cache: Cache,
    buffers: WriteBufferManager,
    bytes: usize,
}

impl Memory {
    /// Divides `bytes`: at most half of it for write buffers, the rest caches blocks.
    pub(crate) fn new(bytes: usize) -> Memory {
        let bytes = bytes.max(MEMORY_BYTES_MIN);
        let cache = Cache::new_lru_cache(bytes);
        let buffers = WriteBufferManager::new_write_buffer_manager_with_cache(bytes / 2, false, cache.clone());
        Memory { cache, buffers, bytes }
    }

    /// Is the part `1 / share` of the budget, within limits that keep files of sensible size.
    fn buffer(&self, share: usize) -> usize {
        (self.bytes / share).clamp(MIB, 64 * MIB)
    }
}

/// Makes the options of the whole database.
pub(crate) fn database(memory: &Memory) -> Options {
    let mut options = Options::default();
    options.create_if_missing(true);
    options.create_missing_column_families(true);
    options.set_paranoid_checks(true);
    // What survives a crash is a prefix of what was written.
    options.set_wal_recovery_mode(DBRecoveryMode::PointInTime);
    options.set_max_total_wal_size(LOG_BYTES_MAX);
    options.set_write_buffer_manager(&memory.buffers);
    options.set_max_background_jobs(3);
    options.set_max_open_files(512);
    // Files are written back as they grow, so that a sync finds little left to do.
    options.set_bytes_per_sync(MIB as u64);
    options.set_wal_bytes_per_sync(MIB as u64);
    options.set_log_level(LogLevel::Warn);
    options.set_keep_log_file_num(2);
    options.set_max_log_file_size(4 * MIB);
    options.set_stats_dump_period_sec(0);
    options.set_stats_persist_period_sec(0);
    options.set_is_fd_close_on_exec(true);
    options
}

/// Makes the descriptors of all families.
pub(crate) fn families(memory: &Memory) -> Vec<ColumnFamilyDescriptor> {
    let described = Family::ALL
        .iter()
        .map(|family| ColumnFamilyDescriptor::new(family.name(), family_options(*family, memory)));
    described.collect()
}

/// Makes the options of a table file that a family takes in whole.
pub(crate) fn incoming(family: Family) -> Options {
    // Nothing is read through these options: the least cache there is.
    family_options(family, &Memory::new(0))
}

fn blocks(memory: &Memory, block_bytes: usize) -> BlockBasedOptions {
    let mut blocks = BlockBasedOptions::default();
    blocks.set_block_cache(&memory.cache);
    blocks.set_block_size(block_bytes);
    blocks.set_format_version(6);
    blocks.set_cache_index_and_filter_blocks(true);
    blocks.set_cache_index_and_filter_blocks_with_high_priority(true);
    blocks.set_pin_l0_filter_and_index_blocks_in_cache(true);
    blocks
}

fn family_options(family: Family, memory: &Memory) -> Options {
    let mut options = Options::default();
    options.set_compression_type(DBCompressionType::Lz4);
    options.set_level_compaction_dynamic_level_bytes(true);
    match family {
        Family::JournalChunk => journal(&mut options, memory, memory.buffer(8)),
        Family::JournalTxn => journal(&mut options, memory, memory.buffer(64).min(4 * MIB)),
        Family::Index => point_lookups(&mut options, memory, memory.buffer(16)),
        Family::Hot => {
            point_lookups(&mut options, memory, memory.buffer(8));
            options.set_enable_blob_files(true);
            options.set_min_blob_size(BLOB_BYTES_MIN);
            options.set_blob_file_size(64 * MIB as u64);
            options.set_blob_compression_type(DBCompressionType::Lz4);
            options.set_enable_blob_gc(true);
            options.set_blob_gc_age_cutoff(0.5);
            options.set_blob_gc_force_threshold(0.5);
        }
        Family::State => {
            point_lookups(&mut options, memory, memory.buffer(8));
            options.set_merge_operator_associative(weights::NAME, weights::add);
        }
        Family::OperationBlock => {
            // A block is deleted soon after it is written: most never leave the write buffer.
            options.set_write_buffer_size(memory.buffer(8));
            options.set_block_based_table_factory(&blocks(memory, 64 * KIB));
        }
        Family::Facts | Family::Files | Family::Operation | Family::Refresh | Family::RefreshRun | Family::Tables => {
            options.set_write_buffer_size(2 * MIB);
            options.set_block_based_table_factory(&blocks(memory, 8 * KIB));
        }
    }
    options
}

/// Written once in key order, read once, dropped by range: files move down the levels as they are
/// and are unlinked whole.
fn journal(options: &mut Options, memory: &Memory, buffer_bytes: usize) {
    options.set_write_buffer_size(buffer_bytes);
    options.set_level_zero_file_num_compaction_trigger(1);
    options.set_target_file_size_base(buffer_bytes as u64);
    options.set_block_based_table_factory(&blocks(memory, 64 * KIB));
}

/// Looked up by whole key, often for keys that are not there; or read in short runs of neighbours,
/// for which blocks stay small.
fn point_lookups(options: &mut Options, memory: &Memory, buffer_bytes: usize) {
    options.set_write_buffer_size(buffer_bytes);
    options.set_max_write_buffer_number(3);
    options.set_memtable_prefix_bloom_ratio(0.05);
    options.set_memtable_whole_key_filtering(true);
    let mut blocks = blocks(memory, 4 * KIB);
    blocks.set_bloom_filter(10.0, false);
    blocks.set_whole_key_filtering(true);
    blocks.set_optimize_filters_for_memory(true);
    // Filters and indexes of a large table are cached in parts, so that they fit any budget.
    blocks.set_index_type(BlockBasedIndexType::TwoLevelIndexSearch);
    blocks.set_partition_filters(true);
    blocks.set_metadata_block_size(8 * KIB);
    blocks.set_pin_top_level_index_and_filter(true);
    blocks.set_data_block_index_type(DataBlockIndexType::BinaryAndHash);
    options.set_block_based_table_factory(&blocks);
}
