#!/usr/bin/env bash
# Shows the whole way: PostgreSQL → bronze → silver → gold, on this machine alone.
#
#   demo/run.sh            a tour, then a trickle of late reports until Ctrl-C; everything is removed at the end
#   demo/run.sh --keep     the tour, then everything keeps running for your own SQL
#
# Installs what is missing (Debian packages, PostgreSQL from npm), builds the program, and works in a
# temporary folder with ports of its own.
set -euo pipefail
cd "$(dirname "$0")/.."
root=$PWD
keep=
case ${1:-} in
  "") ;;
  --keep) keep=1 ;;
  *) echo "usage: demo/run.sh [--keep]" >&2; exit 2 ;;
esac
cache=${XDG_CACHE_HOME:-$HOME/.cache}/embrasure-flow
export CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-$cache/target}
export TOOLS_CACHE=${TOOLS_CACHE:-$cache/tools}
major=18

say() { printf '\n\033[1m%s\033[0m\n' "$*"; }
free_port() { python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'; }

say "Installing what is missing, building embrasure-flow (the first build takes long)"
tests/tools/install.sh build
tests/tools/install.sh services
ROCKSDB_LIB_DIR=$(tests/tools/rocksdb.sh)
export ROCKSDB_LIB_DIR ROCKSDB_STATIC=1
cargo build --locked --workspace --bin embrasure-flow
bin=$CARGO_TARGET_DIR/debug/embrasure-flow

dir=$(mktemp -d "${TMPDIR:-/tmp}/flow-demo-XXXXXX")
chmod 755 "$dir"
pg_port=$(free_port)
http_port=$(free_port)
http=http://127.0.0.1:$http_port
export FLOW_POSTGRES_URL=postgresql://postgres@127.0.0.1:$pg_port/postgres
flow_pid=
cleanup() {
  trap - EXIT INT TERM
  if [ -n "$flow_pid" ]; then kill "$flow_pid" 2>/dev/null || true; wait "$flow_pid" 2>/dev/null || true; fi
  "$root/tests/tools/pg.sh" stop "$major" "$dir/pg" >/dev/null 2>&1 || true
  rm -rf "$dir"
  say "Stopped and removed everything"
}
trap cleanup EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

say "Starting a private PostgreSQL $major with the delivery database"
tests/tools/pg.sh start "$major" "$dir/pg" "$pg_port" >/dev/null
sql() { psql -X -q -v ON_ERROR_STOP=1 -d "$FLOW_POSTGRES_URL" "$@"; }
sql -f demo/schema.sql

say "Starting embrasure-flow run --init: copies what is there, then follows"
cp -r demo/transformations "$dir/transformations"
sed "s/HTTP_PORT/$http_port/" demo/flow.toml > "$dir/flow.toml"
# setsid: Ctrl-C reaches this script only, which then ends the service in order.
setsid "$bin" --config "$dir/flow.toml" run --init >"$dir/flow.log" 2>&1 </dev/null &
flow_pid=$!
python3 demo/follow.py "$http" ready || { tail -20 "$dir/flow.log" >&2; exit 1; }

flow() { "$bin" --config "$dir/flow.toml" "$@"; }
follow() { # follow [SECONDS]: waits until all that is committed is shown; counts from now or from that time
  local from=${1:-$(date +%s.%N)}
  python3 demo/follow.py "$http" "$(sql -A -t -c 'SELECT pg_current_wal_flush_lsn()')" "$from"
}
change() { # change TITLE SQL…: runs the SQL in PostgreSQL and waits for the lake
  say "$1"; shift
  local one
  for one in "$@"; do printf '  %s;\n' "$one"; sql -c "$one"; done
  follow "$(date +%s.%N)"
}
daily() { flow query "SELECT station, day, deliveries, late, with_defects FROM gold.delivery_quality_daily ORDER BY day, station LIMIT 6"; }

follow
say "The dynamic tables and their inputs"
flow dag
say "gold.delivery_quality_daily"
daily
change "Insert: 200 packages are delivered" \
  "INSERT INTO deliveries SELECT id, 1 + id % 8, promised_at - interval '1 hour', 'delivered' FROM packages WHERE id BETWEEN 1501 AND 1700"
change "Late reports arrive for deliveries of days ago" \
  "INSERT INTO defect_reports (package_id, kind, reported_at) SELECT package_id, 'damaged', now() FROM deliveries WHERE package_id % 50 = 1"
daily
change "Update: one associate is renamed; a package's route is corrected (its large label is not sent again)" \
  "UPDATE associates SET name = 'Ada Lovelace' WHERE id = 1" \
  "UPDATE packages SET route_id = 2 WHERE id = 7"
change "Delete: a report was a mistake" "DELETE FROM defect_reports WHERE package_id = 29"
change "Key change: a package gets another number, its delivery and reports with it" \
  "UPDATE packages SET id = 100058 WHERE id = 58"
flow query "SELECT package_id, associate, station, late, defects FROM silver.delivery WHERE package_id IN (58, 100058)"
change "Both at once: two packages swap their numbers in one transaction" \
  "BEGIN; UPDATE packages SET id = -1 WHERE id = 1; UPDATE packages SET id = 1 WHERE id = 2; UPDATE packages SET id = 2 WHERE id = -1; COMMIT"
say "gold.associate_quality, and the same question asked of PostgreSQL"
flow query "SELECT associate, deliveries, late, defects FROM gold.associate_quality ORDER BY associate"
sql -c "SELECT a.name AS associate, count(DISTINCT d.package_id) AS deliveries,
          count(DISTINCT d.package_id) FILTER (WHERE d.delivered_at > p.promised_at) AS late, count(f.id) AS defects
        FROM deliveries d JOIN packages p ON p.id = d.package_id JOIN associates a ON a.id = d.associate_id
        LEFT JOIN defect_reports f ON f.package_id = d.package_id GROUP BY a.name ORDER BY a.name"
flow status

if [ -n "$keep" ]; then
  trap - EXIT INT TERM
  cat <<EOF

Still running. In another terminal:
  psql '$FLOW_POSTGRES_URL'
  $bin --config $dir/flow.toml query "SELECT * FROM gold.delivery_quality_daily"
  $bin --config $dir/flow.toml status
  curl $http/status            log: $dir/flow.log
  catalog: $dir/warehouse/catalog.db (PyIceberg SqlCatalog, name flow)
Stop it with:
  kill $flow_pid; $root/tests/tools/pg.sh stop $major $dir/pg; rm -rf $dir
EOF
  exit 0
fi
[ -t 1 ] || exit 0
say "A report trickles in every two seconds. Ctrl-C ends."
while sleep 2; do
  sql -c "INSERT INTO defect_reports (package_id, kind, reported_at) SELECT package_id, 'damaged', now() FROM deliveries ORDER BY random() LIMIT 1"
  follow
  flow query "SELECT sum(deliveries) AS deliveries, sum(with_defects) AS with_defects FROM gold.delivery_quality_daily"
done
