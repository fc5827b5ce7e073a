#!/bin/sh
# Builds the fuzz targets with coverage instrumentation on stable Rust, and runs them.
#
#   run.sh TARGET SECONDS   one target
#   run.sh all SECONDS      the canary, then each target for so long, one on each CPU; fails if any crashes
#   run.sh built TARGET SECONDS   one target that is built already
#   run.sh canary           fails unless the planted bug is found within 20 seconds
#   run.sh repeat TARGET FILE...   runs a target on inputs that were found
#   run.sh seeds            writes corpus/ anew from the encoders
#   run.sh list             names the targets
set -eu
cd "$(dirname "$0")"

# Options of libFuzzer: memory in MB, seconds that one input may take, longest input in bytes.
limits="-rss_limit_mb=2048 -timeout=10 -max_len=8192"
host=$(rustc -vV | sed -n 's/^host: //p')
binaries="target/$host/release"

targets() {
    for source in src/bin/*.rs; do
        name=$(basename "$source" .rs)
        case $name in canary | seeds) ;; *) echo "$name" ;; esac
    done
}

# The seeds' writer is left out: it is no fuzzer, and some linkers miss the fuzzer's entry in it.
build() {
    bins="--bin canary"
    for name in $(targets); do bins="$bins --bin $name"; done
    # With --target the flags do not reach build scripts, which have no fuzzer to link with.
    # shellcheck disable=SC2086
    RUSTFLAGS="-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
-Cllvm-args=-sanitizer-coverage-trace-compares \
-Cllvm-args=-sanitizer-coverage-inline-8bit-counters \
-Cllvm-args=-sanitizer-coverage-pc-table --cfg fuzzing" \
        cargo build --release --target "$host" --target-dir target $bins
}

# What is found new goes to target/corpus, never to the seeds.
run() {
    mkdir -p "target/corpus/$1" "artifacts/$1" "corpus/$1"
    dictionary=
    if [ -f "dictionaries/$1" ]; then dictionary="-dict=dictionaries/$1"; fi
    # shellcheck disable=SC2086
    "$binaries/$1" $limits $dictionary -max_total_time="$2" -print_final_stats=1 \
        -artifact_prefix="artifacts/$1/" "target/corpus/$1" "corpus/$1" \
        >"target/$1.log" 2>&1 || {
        tail -n 40 "target/$1.log"
        echo "$1: FAILED, the input is in fuzz/artifacts/$1"
        return 1
    }
    echo "$1: $(sed -n 's/^stat::number_of_executed_units: *//p' "target/$1.log") inputs," \
        "$(grep -o 'cov: [0-9]*' "target/$1.log" | tail -n 1), no crash"
}

canary() {
    mkdir -p artifacts/canary
    # shellcheck disable=SC2086
    if "$binaries/canary" $limits -max_total_time=20 -artifact_prefix=artifacts/canary/ \
        >target/canary.log 2>&1; then
        echo "canary: NOT found within 20 seconds: this fuzzer finds nothing"
        return 1
    fi
    if ! grep -q "the canary was found" target/canary.log; then
        tail -n 40 target/canary.log
        echo "canary: failed for another reason"
        return 1
    fi
    echo "canary: found, as it must be"
}

case ${1-} in
list)
    targets
    ;;
seeds)
    cargo build --release --target-dir target --bin seeds
    target/release/seeds corpus
    ;;
canary)
    build
    canary
    ;;
repeat)
    build
    name=$2
    shift 2
    "$binaries/$name" -rss_limit_mb=2048 -timeout=10 "$@"
    ;;
all)
    seconds=${2:?how many seconds?}
    build
    failed=
    canary || failed=canary
    # Each has its own directories and says which it is, so that they may run at the same time.
    targets | xargs -P "$(nproc)" -I TARGET sh ./run.sh built TARGET "$seconds" ||
        failed="$failed (see above)"
    if [ -n "$failed" ]; then
        echo "failed: $failed"
        exit 1
    fi
    ;;
built)
    run "$2" "${3:?how many seconds?}"
    ;;
"")
    sed -n '2,/^set/{/^#/s/^# \{0,1\}//p}' run.sh
    exit 2
    ;;
*)
    seconds=${2:?how many seconds?}
    targets | grep -qx "$1" || {
        echo "no such target: $1; there are: $(targets | tr '\n' ' ')"
        exit 2
    }
    build
    run "$1" "$seconds"
    ;;
esac
