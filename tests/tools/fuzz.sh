#!/usr/bin/env bash
# cargo-fuzz and the nightly toolchain it needs.
#
#   fuzz.sh          installs what is missing, cargo-fuzz into TOOLS_CACHE, and prints its path
set -euo pipefail
. "$(dirname "$0")/lib.sh"
VERSION=0.13.2
F="$CACHE/cargo-fuzz"
fuzz() {
  [ "$("$F/bin/cargo-fuzz" --version 2>/dev/null)" = "cargo-fuzz $VERSION" ] && return 0
  say "building cargo-fuzz"
  cargo install --quiet --locked cargo-fuzz --version "$VERSION" --root "$F" >&2
}
rustup run nightly rustc --version >/dev/null 2>&1 || rustup toolchain install nightly --profile minimal >&2
with_lock cargo-fuzz fuzz
echo "$F/bin/cargo-fuzz"
