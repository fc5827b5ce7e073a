#!/bin/sh
# Process 1 of the guest. The root is the host's (hostfs): everything written outside the
# tmpfs on /run lands on the host, so work happens under /run and on NFS mounts only.
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
export HOME=/run TMPDIR=/run/tmp LANG=C

mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t tmpfs -o mode=755 tmpfs /run
mount -t devtmpfs devtmpfs /dev 2>/dev/null
mkdir -p /run/tmp /run/nfs /run/lock
chmod 1777 /run/tmp

modprobe nfsv3
modprobe nfsv2 2>/dev/null
modprobe nfs_acl 2>/dev/null
ip link set lo up
ip addr add "$GUEST_ADDRESS" dev vec0
ip link set vec0 up
modprobe ipv6 && ip addr add fd77::2/64 dev vec0 nodad
# Locks over NFSv3: the server's lock manager finds the guest's by rpcbind.
mkdir -p /run/rpcbind /run/statd/sm /run/statd/sm.bak
# By which NFSv4 and NLM tell clients apart.
hostname "${GUEST_NAME:-steadfast-guest}"
rpcbind -w || echo "rpcbind does not run"
rpc.statd --no-notify -P /run/statd || echo "rpc.statd does not run"
# "server not responding" goes to the console, which the host keeps as a log.
dmesg -n 7

# A copy that unprivileged users can run also when the checkout is in a private directory.
cp "$GUEST_PROGRAM" /run/guest-tests
chmod 755 /run/guest-tests
/run/guest-tests run "$GUEST_PLAN"
echo "guest program ended with $?"
busybox poweroff -f
