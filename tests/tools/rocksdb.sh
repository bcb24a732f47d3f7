#!/usr/bin/env bash
# Builds RocksDB's static library from the very sources that Cargo.lock names, and prints its folder.
#
#   rocksdb.sh       builds it once in TOOLS_CACHE; a second call prints at once
#
# Why: librocksdb-sys compiles 343 files one by one and spends most of that reading the same headers.
# Taken together in a few dozen units (RocksDB's own Makefile tests one single unit) the same code
# compiles in a fraction of the time. Callers export what it prints:
#
#   export ROCKSDB_LIB_DIR=$(tests/tools/rocksdb.sh) ROCKSDB_STATIC=1
#
# Without these variables cargo builds RocksDB itself: slower, the same library.
set -euo pipefail
. "$(dirname "$0")/lib.sh"
UNITS=32
FLAGS="-O2 -g0 -std=c++20 -w -include cstdint -fPIC -ffunction-sections -fdata-sections -fno-omit-frame-pointer \
 -DNDEBUG -DLZ4=1 -DZSTD=1 -DHAVE_ALIGNED_NEW -DHAVE_UINT128_EXTENSION -DOS_LINUX -DROCKSDB_PLATFORM_POSIX \
 -DROCKSDB_LIB_IO_POSIX -DROCKSDB_SCHED_GETCPU_PRESENT -DROCKSDB_AUXV_GETAUXVAL_PRESENT \
 -DROCKSDB_FALLOCATE_PRESENT -DROCKSDB_RANGESYNC_PRESENT"

# source_of CRATE: the folder of the version that Cargo.lock names
source_of() {
  (cd "$HERE/../.." && cargo metadata --locked --format-version 1 --filter-platform x86_64-unknown-linux-gnu) | python3 -c '
import json, os, sys
want = sys.argv[1]
print(next(os.path.dirname(p["manifest_path"]) for p in json.load(sys.stdin)["packages"] if p["name"] == want))' "$1"
}
build() { # build OUT SRC
  local out=$1 src=$2 t zstd lz4
  [ -f "$out/librocksdb.a" ] && return 0
  say "building RocksDB ($(basename "$src")) in $UNITS units"
  zstd=$(source_of zstd-sys)/zstd/lib lz4=$(source_of lz4-sys)/liblz4/lib
  mkdir -p "$CACHE"; t=$(mktemp -d "$CACHE/tmp.XXXXXX")
  python3 - "$src" "$t" "$UNITS" <<'PY'
import sys
src, out, units = sys.argv[1], sys.argv[2], int(sys.argv[3])
names = [line.strip() for line in open(f"{src}/rocksdb_lib_sources.txt")]
names = [n for n in names if n and n != "util/build_version.cc"]
# round the list: heavy files stand together in it, so each unit takes every UNITS-th
for unit in range(units):
    with open(f"{out}/unit{unit:02}.cc", "w") as f:
        f.writelines(f'#include "rocksdb/{n}"\n' for n in names[unit::units])
PY
  cp "$src/build_version.cc" "$t/version.cc"
  local includes="-I$zstd -I$lz4 -I$src/rocksdb/include -I$src/rocksdb -I$src"
  find "$t" -name '*.cc' | sort | xargs -P"$(nproc)" -I{} sh -c "g++ $FLAGS $includes -c {} -o {}.o"
  ar rcs "$t/librocksdb.a" "$t"/*.o
  rm -f "$t"/*.cc "$t"/*.o
  mkdir -p "$out"; mv "$t/librocksdb.a" "$out/librocksdb.a"; rmdir "$t"
}
# CACHE must outlive cargo's own cleaning, and the name must change with sources and flags.
command -v g++ >/dev/null || apt_install g++
SRC=$(source_of librocksdb-sys)
OUT="$CACHE/rocksdb-$(basename "$SRC")-$(printf '%s' "$FLAGS $UNITS" | sha256sum | cut -c1-8)"
with_lock rocksdb build "$OUT" "$SRC" 9>&1
echo "$OUT"
