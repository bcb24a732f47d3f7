#!/usr/bin/env bash
# Installs what is missing and runs the tests.
#
#   tests/run.sh                 the gate: format, tidy, build, clippy, unit and service tests
#   tests/run.sh --slow LANE     one long lane: majors, crash, random, soak, spark or fuzz
#
# Works on a fresh Debian 12 with git and the Rust toolchain of rust-toolchain.toml. Build output and
# downloads go to CARGO_TARGET_DIR and TOOLS_CACHE, by default below ~/.cache/embrasure-flow.
set -euo pipefail
cd "$(dirname "$0")/.."
cache=${XDG_CACHE_HOME:-$HOME/.cache}/embrasure-flow
export CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-$cache/target}
export TOOLS_CACHE=${TOOLS_CACHE:-$cache/tools}

case ${1:-} in
  "") set -- ci ;;
  --slow) [ $# -eq 2 ] || { echo "usage: tests/run.sh [--slow LANE]" >&2; exit 2; }; set -- slow "$2" ;;
  *) echo "usage: tests/run.sh [--slow LANE]" >&2; exit 2 ;;
esac
tests/tools/install.sh tests
ROCKSDB_LIB_DIR=$(tests/tools/rocksdb.sh)
export ROCKSDB_LIB_DIR ROCKSDB_STATIC=1
exec cargo xtask "$@"
