# How the blocks of a page are run, which follow this text. Each failure is told, and the others are run all the same.
failed=0

# Arguments: where the block stands, its kind, a file with its commands.
block() {
    local status=0
    echo "== $1"
    case $2 in
    # What has findings tells them by its exit status; 3 and more is a failure, and so is wrong usage.
    sh)
        bash -xeuo pipefail "$3" </dev/null || status=$?
        ;;
    findings)
        bash -xeuo pipefail "$3" </dev/null 2>/tmp/told || status=$?
        cat /tmp/told >&2
        [ "$status" -gt 2 ] || status=0
        ! grep -q '^Usage: ' /tmp/told || status=2
        ;;
    # Each line is interrupted after a while, unless it ends before.
    endless)
        while IFS= read -r line; do
            echo "+ $line"
            timeout --signal INT --kill-after 20 2 bash -euo pipefail -c "$line" </dev/null >/tmp/out 2>&1 || status=$?
            [ "$status" -ne 124 ] || status=0
            tail -n 5 /tmp/out
            [ "$status" -eq 0 ] || break
        done <"$3"
        ;;
    esac
    if [ "$status" -ne 0 ]; then
        echo "FAILED: $1 ended with $status"
        failed=1
    fi
}

serve
