# shellcheck shell=bash
# What the scripts of this folder share.

NUMA_VM=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
ROOT=$(cd "$NUMA_VM/../.." && pwd)
# Where everything that is made goes; git ignores it.
# shellcheck disable=SC2034 # read by the scripts
OUT=${NUMA_VM_OUT:-$ROOT/target/numa-vm}
# shellcheck disable=SC2034
KERNEL=$OUT/kernel

die() {
    echo "numa-vm: $*" >&2
    exit 125
}

# Packs a directory as the kernel wants its first file system; equal trees give equal bytes.
archive() {
    (cd "$1" && find . | LC_ALL=C sort | cpio -o -H newc --quiet --reproducible)
}

# Sets `arclight` and `check` to the paths of the programs: those in NUMA_VM_PROGRAMS, or new ones.
build_programs() {
    local programs=${NUMA_VM_PROGRAMS:-}
    if [ -z "$programs" ]; then
        cargo build --release --quiet -p arclight -p arclight-numa-check
        programs=${CARGO_TARGET_DIR:-$ROOT/target}/release
    fi
    arclight=$programs/arclight check=$programs/arclight-numa-check
    [ -x "$arclight" ] && [ -x "$check" ] || die "arclight and arclight-numa-check are not both in $programs"
}

# Prints the path of a synthetic model, which it makes if it is not there.
synth() { # shape:type
    local name=${1//\//-}
    local file=$OUT/models/${name/:/-}.gguf
    if [ ! -s "$file" ]; then
        mkdir -p "$OUT/models"
        "$arclight" synth "$1" -o "$file" >&2
    fi
    echo "$file"
}

# Builds the access-counting plugin, a workspace of its own, where `vm --count` looks for it.
build_plugin() {
    cargo build --release --quiet --manifest-path "$NUMA_VM/numacount/Cargo.toml" \
        --target-dir "$OUT/numacount"
}
