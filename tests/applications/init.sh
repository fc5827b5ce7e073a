#!/bin/sh
# Process 1 of the guest of `cargo xtask durability --section applications`: puts SQLite and
# PostgreSQL to work on DISK, which is `direct` (the guest's own block device with FILE_SYSTEM),
# `mount` (SHARE of the server at SERVER) or `memory` (of the guest). The root is the host's (hostfs):
# what is written outside of /run and /dev/shm lands on the host, so only CONTROL is written to, where
# both sides talk.
#
# The disk is fast until this asks for `slow WORK`, and again after `fast WORK`; what a work says is
# in CONTROL/WORK.
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
export HOME=/run TMPDIR=/run/tmp LANG=C PYTHONDONTWRITEBYTECODE=1

say() {
    echo "$*" >>"$CONTROL/results"
}

asked=0
ask() {
    asked=$((asked + 1))
    say "request $asked $*"
    while [ ! -e "$CONTROL/answer-$asked" ]; do sleep 0.02; done
}

finish() {
    say "$@"
    busybox poweroff -f
}

or_fail() {
    "$@" || finish "failed $*"
}

# Runs a work while the disk is slow.
work() {
    name=$1
    shift
    sync
    ask slow "$name"
    or_fail "$@" >"$CONTROL/$name"
    ask fast "$name"
}

as_postgres() {
    setpriv --reuid=postgres --regid=postgres --clear-groups -- "$@"
}

mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t tmpfs -o mode=755 tmpfs /run
mkdir -p /dev/shm
mount -t tmpfs -o mode=1777 tmpfs /dev/shm
mkdir -p /run/tmp /run/work /run/postgres
chmod 1777 /run/tmp
chown postgres /run/postgres
ip link set lo up
dmesg -n 7
exec 2>&1

case $DISK in
direct)
    modprobe "$FILE_SYSTEM"
    # User-mode Linux's first block device.
    mknod /run/disk b 98 0
    or_fail mount -t "$FILE_SYSTEM" -o noatime /run/disk /run/work
    ;;
mount)
    modprobe nfsv3
    ip addr add "$GUEST_ADDRESS" dev vec0
    ip link set vec0 up
    options=vers=3,tcp,hard,nolock,noatime,port=$PORT,mountport=$PORT,mountproto=tcp
    or_fail mount -t nfs -o "$options" "$SERVER:$SHARE" /run/work
    ;;
memory)
    mount -t tmpfs tmpfs /run/work
    ;;
esac
cd /run/work || finish "failed cd"

for journal in delete wal; do
    or_fail python3 "$TOOLS/sqlite.py" make "sqlite-$journal.db" "$journal"
    work "sqlite-$journal" python3 "$TOOLS/sqlite.py" insert "sqlite-$journal.db" "$SECONDS_EACH"
done

postgresql=$(ls -d /usr/lib/postgresql/*/bin | sort -V | tail -n 1)
PATH=$PATH:$postgresql
export PGHOST=/run/postgres PGDATABASE=postgres
mkdir -m 700 postgresql
chown postgres postgresql
# Its own defaults in all that concerns what is stable: fsync, synchronous_commit, full_page_writes.
or_fail as_postgres initdb --pgdata=postgresql --no-sync --auth=trust --locale=C --encoding=UTF8
or_fail as_postgres pg_ctl start --wait --pgdata=postgresql --log=/run/postgres/log \
    --options="-c listen_addresses= -c unix_socket_directories=$PGHOST"
or_fail as_postgres pgbench --initialize --quiet --scale=1
or_fail as_postgres psql --quiet --command=CHECKPOINT
work pgbench as_postgres pgbench --client=4 --time="$SECONDS_EACH"
as_postgres pg_ctl stop --wait --pgdata=postgresql --mode=fast
cd /
umount /run/work
finish done
