#!/bin/bash
# Process 1 of the guest of `cargo xtask doctor`: a client with one mount, on which `steadfast doctor`
# looks for what is wrong; or, with WORKS, one that works until $CONTROL/stop is there. The root is the host's (hostfs): what is written outside /run lands there.
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
# The server's clock is the host's.
[ -n "$CLOCK_AHEAD_S" ] && date -s "@$(($(date +%s) + CLOCK_AHEAD_S))" >/dev/null

ended() {
    echo "$*" >>"$CONTROL/results"
    busybox poweroff -f
}

mount -t nfs -o "$NFS_OPTIONS" "$NFS_SERVER:/export" /run/nfs || ended "failed mount"
echo "some text" >/run/nfs/file || ended "failed write"
if [ -n "$WORKS" ]; then
    dd if=/dev/zero of=/run/nfs/file bs=1M count=4 status=none || ended "failed write"
    # One in a hurry: it sends its calls again after 0.2 s.
    mkdir /run/hurry
    mount -t nfs -o "vers=3,tcp,port=2049,mountport=20048,mountproto=tcp,nolock,timeo=2" "$NFS_SERVER:/export" /run/hurry ||
        ended "failed mount by NFSv3"
    for i in 1 2 3 4; do
        while [ ! -e "$CONTROL/stop" ]; do
            pause=1
            if [ -e "$CONTROL/hurry" ]; then
                dd if=/dev/zero of="/run/hurry/file$i" bs=4k count=1 conv=fsync status=none
                pause=0.1
            fi
            sleep "$pause"
        done &
    done
    while [ ! -e "$CONTROL/stop" ]; do
        if [ -e "$CONTROL/look" ]; then
            seconds=$(cat "$CONTROL/look")
            rm "$CONTROL/look"
            "$STEADFAST" doctor --json --no-names --seconds "${seconds:-5}" >"$CONTROL/doctor.part" 2>"$CONTROL/doctor.err"
            mv "$CONTROL/doctor.part" "$CONTROL/doctor.json"
        fi
        sleep 0.3
    done &
    echo working >>"$CONTROL/results"
    until [ -e "$CONTROL/stop" ]; do
        # From the server, not from memory, and with pauses, also in the loops above: this guest has one slow CPU, and
        # what a busy one does to the network is no fault of it.
        dd if=/run/nfs/file of=/dev/null bs=1M iflag=direct status=none || ended "failed read"
        dd if=/dev/zero of=/run/nfs/other bs=64k count=1 conv=fsync status=none || ended "failed write"
        sleep 0.3
    done
    # Without an umount, which would wait for a server that has died.
    ended done
fi
"$STEADFAST" doctor --json --no-names --seconds 5 >"$CONTROL/doctor.json" 2>"$CONTROL/doctor.err"
rm /run/nfs/file
umount /run/nfs
ended done
