#!/bin/bash
# Process 1 of the guest of `cargo xtask watch`: a mix of operations on one mount. The host begins to
# capture when the mount is there, and ends before it goes; both times the client tells its own
# counts. The root is the host's (hostfs): what is written outside /run lands there.
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
export HOME=/run LANG=C

mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t tmpfs -o mode=755 tmpfs /run
mount -t devtmpfs devtmpfs /dev 2>/dev/null
mkdir -p /run/nfs
modprobe nfsv3
modprobe nfsv4
ip link set lo up
ip addr add "$GUEST_ADDRESS" dev vec0
ip link set vec0 up
hostname steadfast-guest

tell() { echo "$*" >>"$CONTROL/results"; }
ended() {
    tell "$@"
    busybox poweroff -f
}
# Tells the client's counts, and waits until the host has begun or ended its capture.
meet() {
    cat /proc/self/mountstats >"$CONTROL/mountstats-$1"
    tell "$1"
    for _ in $(seq 600); do
        [ -e "$CONTROL/answer-$1" ] && return
        sleep 0.1
    done
    ended "failed the host does not answer"
}

mount -t nfs -o "$NFS_OPTIONS" "$NFS_SERVER:/export" /run/nfs || ended "failed mount"
work=/run/nfs/work
mkdir -p $work || ended "failed mkdir"
sync
meet before

cd $work || ended "failed cd"
for index in $(seq "$NFS_FILES"); do
    mkdir "d$index"
    printf 'some text of file %s\n' "$index" >"d$index/file"
    ln -s file "d$index/symbolic"
    ln "d$index/file" "d$index/hard"
done
dd if=/dev/zero of=large bs=64k count="$((NFS_FILES * 4))" conv=fsync status=none || ended "failed dd"
sync
# What the client remembers is not asked for again.
echo 3 >/proc/sys/vm/drop_caches
ls -lR . >/dev/null
cat d*/file large >/dev/null || ended "failed cat"
chmod 600 d*/file
touch d*/hard
truncate -s 5 d*/file
for index in $(seq "$NFS_FILES"); do
    mv "d$index/file" "d$index/moved"
done
if [ "$NFS_LOCKS" = yes ]; then
    for index in $(seq "$NFS_FILES"); do
        flock "d$index/moved" true || ended "failed flock"
    done
fi
ls not-there-* 2>/dev/null
df . >/dev/null
sync
echo 3 >/proc/sys/vm/drop_caches
cat d*/moved >/dev/null || ended "failed cat"
rm -r d* large || ended "failed rm"
cd /
sync
meet after
umount /run/nfs
ended done
