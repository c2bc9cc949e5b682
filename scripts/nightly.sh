#!/bin/sh
# The long forms of the tests: many kills and resumes, a thousand slips in each configuration, wide
# nets of many rows and classes, three steps of the larger known architectures, the score of a published ResNet-20 (where WOOTZ_RESNET20
# and WOOTZ_CIFAR10 name its files), and what the shipped configurations promise: 98% of the digits
# for three seeds, and a loss below 2.0 for char-gpt (on the text that WOOTZ_TEXT names, or the
# shipped one).
set -eu
cd "$(dirname "$0")/.."
export WOOTZ_SOAK=1
cargo test --release --test resume --test configs --test config_mutations --test convolutions --test peers \
    --test golden_models --test weights
runs=$(mktemp -d)
trap 'rm -rf "$runs"' EXIT

# train NAME CONFIG METRIC TEST BOUND [OPTIONS…]: trains, and holds the last value against a bound.
train() {
    name=$1 config=$2 metric=$3 test=$4 bound=$5
    shift 5
    cargo run -q --release -- train --config "$config" --json --run-dir "$runs/$name" "$@" >"$runs/$name.json"
    value=$(sed -n "s|.*\"$metric\":\([0-9.]*\).*|\1|p" "$runs/$name.json")
    echo "$name: $metric $value"
    awk "BEGIN { exit !($value $test $bound) }" || { echo "$name: $metric must be $test $bound" >&2; exit 1; }
}

for seed in 1 2 3; do
    train "digits-$seed" configs/digits-cnn.yaml valid/accuracy '>=' 0.98 --set seed=$seed
done
train char-gpt configs/char-gpt.yaml valid/loss '<' 2.0 \
    --set data.train.text.path="${WOOTZ_TEXT:-datasets/shakespeare/hamlet.txt}"
