#!/bin/sh
# Process 1 of a guest that is the kernel's NFS server (knfsd), by NFSv3, with the disk `ubda`. The root is the host's
# (hostfs): what is written outside /run and /var/lib/nfs lands there. The guest ends by being killed, which is a crash
# of its kernel: what only its memory had is gone.
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
export HOME=/run LANG=C

mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t tmpfs -o mode=755 tmpfs /run
mount -t tmpfs tmpfs /var/lib/nfs
mount -t devtmpfs devtmpfs /dev 2>/dev/null
mkdir -p /run/export /run/rpcbind /var/lib/nfs/sm /var/lib/nfs/sm.bak

ended() {
    echo "failed: $*" >>"$CONTROL/results"
    busybox poweroff -f
}

# Nothing becomes stable by the passing of time: neither data nor names that nobody has asked to be.
echo 0 >/proc/sys/vm/dirty_writeback_centisecs
mount -t ext4 -o commit=1000 /dev/ubda /run/export || ended mount
touch /var/lib/nfs/etab /var/lib/nfs/rmtab
modprobe nfsd || ended modprobe
mount -t nfsd nfsd /proc/fs/nfsd || ended "mount of nfsd"
ip link set lo up
ip addr add "$GUEST_ADDRESS" dev vec0
ip link set vec0 up
rpcbind -w || ended rpcbind
rpc.mountd --port 20048 || ended rpc.mountd
exportfs -o rw,sync,no_root_squash,no_subtree_check,insecure '*:/run/export' || ended exportfs
rpc.nfsd --no-nfs-version 4 --nfs-version 3 4 || ended rpc.nfsd
echo serving >>"$CONTROL/results"
# What the host wants to be run here.
while :; do
    if [ -e "$CONTROL/run" ]; then
        mv "$CONTROL/run" "$CONTROL/running"
        bash "$CONTROL/running" >"$CONTROL/told.part" 2>&1
        mv "$CONTROL/told.part" "$CONTROL/told"
    fi
    sleep 0.1
done
