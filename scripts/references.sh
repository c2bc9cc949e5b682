#!/bin/sh
# Writes the pages and schemas that are made from the types.
set -eu
cd "$(dirname "$0")/.."
wootz() { cargo run -q -- "$@"; }
wootz schema --markdown > docs/config.md
wootz schema --layers > docs/layers.md
mkdir -p configs/schema
wootz schema > configs/schema/config.json
wootz schema --section model > configs/schema/model.json
wootz schema --section optimizer > configs/schema/optimizer.json
wootz schema --section sweep > configs/schema/sweep.json
