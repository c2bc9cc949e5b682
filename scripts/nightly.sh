#!/bin/sh
# The long forms of the tests: many kills and resumes, a thousand slips in each configuration, and
# the accuracy that the shipped configurations promise.
set -eu
cd "$(dirname "$0")/.."
export WOOTZ_SOAK=1
cargo test --release --test resume --test configs --test config_mutations
runs=$(mktemp -d)
trap 'rm -rf "$runs"' EXIT
for seed in 1 2 3; do
    cargo run -q --release -- train --config configs/digits-cnn.yaml --set seed=$seed --run-dir "$runs/digits-$seed" 2>/dev/null
done
cargo run -q --release -- train --config configs/char-gpt.yaml --run-dir "$runs/char-gpt" "$@" 2>/dev/null
