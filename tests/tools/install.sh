#!/usr/bin/env bash
# Installs what building, testing and the demo need on Debian 12. Quiet when there is nothing to do.
#
#   install.sh build     compiler and libraries for RocksDB and its bindings
#   install.sh services  programs that fetch and drive PostgreSQL and the readers
#   install.sh tests     cargo-nextest, and both of the above
set -euo pipefail
. "$(dirname "$0")/lib.sh"

build() { apt_install build-essential clang libclang-dev cmake pkg-config; }
services() {
  local packages=(ca-certificates curl openssl postgresql-client-15)
  command -v python3 >/dev/null || packages+=(python3)
  python3 -c 'import ensurepip, venv' 2>/dev/null || packages+=(python3-venv python3-pip)
  command -v npm >/dev/null || packages+=(npm)
  apt_install "${packages[@]}"
}
nextest() {
  cargo nextest --version >/dev/null 2>&1 && return 0
  say "building cargo-nextest"
  cargo install --quiet --locked cargo-nextest --version 0.9.143
}
case ${1:-} in
  build) build ;;
  services) services ;;
  tests) build; services; nextest ;;
  *) usage ;;
esac
