#!/bin/sh
# Everything that must hold before a change lands: installs what the tests need where it can, then
# format, lints, all tests on the CPU and on a GPU (software Vulkan where there is no better one),
# the Apple type-check, the documentation, and the shipped configurations for a few steps.
set -eu
cd "$(dirname "$0")/.."

say() { printf '\n== %s\n' "$1"; }

say "what the tests need"
if ! command -v cargo >/dev/null 2>&1; then
    echo "cargo is not installed: see https://rustup.rs" >&2
    exit 1
fi
if [ -z "${WOOTZ_TEST_DEVICE:-}" ] && [ "$(uname -s)" = Linux ] && ! ls /usr/share/vulkan/icd.d/lvp_icd*.json >/dev/null 2>&1; then
    if command -v apt-get >/dev/null 2>&1; then
        root=""
        [ "$(id -u)" = 0 ] || root=sudo
        $root apt-get update -qq
        $root apt-get install -y -qq mesa-vulkan-drivers libvulkan1
    else
        echo "software Vulkan (Mesa llvmpipe) is not installed; the GPU tests will fail without it" >&2
    fi
fi
rustup component add rustfmt clippy
rustup target add aarch64-apple-darwin

say "format"
cargo fmt --check
say "lints"
cargo clippy --all-targets -- -D warnings
say "tests"
cargo test
say "the Apple build"
# Types only: C sources of crates (SQLite, zstd) need Apple's SDK, so their compiler is a no-op here.
CC_aarch64_apple_darwin=true AR_aarch64_apple_darwin=true cargo check --target aarch64-apple-darwin
say "documentation"
RUSTDOCFLAGS="-D warnings" cargo doc --no-deps
say "shipped configurations"
runs=$(mktemp -d)
trap 'rm -rf "$runs"' EXIT
gpu=${WOOTZ_TEST_DEVICE:-llvmpipe}
for config in configs/*.yaml; do
    name=$(basename "$config" .yaml)
    for device in cpu "$gpu"; do
        echo "$name on $device"
        cargo run -q -- train --config "$config" --device "$device" --steps 3 --run-dir "$runs/$name-$device" 2>/dev/null
    done
done
say "all passed"
