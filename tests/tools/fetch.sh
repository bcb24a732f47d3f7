#!/usr/bin/env bash
# Fills the cache with what the service tests need, so that no test has to download.
#
#   fetch.sh MAJOR…      PostgreSQL of these majors, and the readers
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
for major in "$@"; do "$here/pg.sh" fetch "$major"; done
"$here/readers.sh" >/dev/null
