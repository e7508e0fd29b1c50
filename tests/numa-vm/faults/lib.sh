# shellcheck shell=bash
# What the fault scripts share. They run inside of the virtual machine, as root, with
#   CHECK, ARCLIGHT   the programs
#   DEMO, REFERENCE   the demo model and its logits
#   BIG               a synthetic model of some hundred MiB

fail() {
    echo "FAILED: $*"
    exit 1
}

# KiB of a field of a node's meminfo. Processors count by themselves and report in batches of up to
# 125 pages each: they are told to report now.
node_kib() { # node field
    echo 1 >/proc/sys/vm/stat_refresh
    awk -v field="$2:" '$3 == field { print $4 }' "/sys/devices/system/node/node$1/meminfo"
}

# Waits until a condition holds, at most so many seconds.
until_true() { # seconds command...
    local end=$((SECONDS + $1))
    shift
    until "$@"; do
        [ $SECONDS -lt $end ] || return 1
        sleep 0.05
    done
}

# Whether the report in /tmp/err, which is broken into lines, has a sentence.
has() { # pattern
    tr '\n' ' ' </tmp/err | tr -s ' ' >/tmp/said
    grep -qE "$1" /tmp/said
}
says() { # what pattern
    has "$2" || { cat /tmp/err && fail "$1: no sentence has $2"; }
    echo "$1: $(grep -oE "$2" /tmp/said | head -n 1)"
}

# Runs the demo model until its report has a sentence: others on the computer below can make all processors as slow
# for a while.
says_in_time() { # what pattern
    report() {
        "$ARCLIGHT" run "$DEMO" --prompt 'Once upon a time' -n 200 --temp 0 --ctx 512 --report >/dev/null 2>/tmp/err ||
            { cat /tmp/err && fail "the run"; }
        has "$1"
    }
    until_true 120 report "$2" || true
    says "$1" "$2"
}
