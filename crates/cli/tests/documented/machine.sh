#!/bin/bash
# A machine for one page of the documentation, made of the namespaces that this runs in: the host's programs and kernel,
# which cannot be changed, and everything else new. Then the page's commands are run on it.
#
# Arguments: where its root is to be, a directory for its disks, the program, the page's commands, the repository.
set -euo pipefail
root=$1 disks=$2 program=$3 commands=$4 repository=$5

mount -t tmpfs -o mode=755 documented "$root"
cd "$root"
for name in bin lib lib32 lib64 libx32 sbin usr; do
    if [ -L "/$name" ]; then
        cp -P "/$name" .
    elif [ -d "/$name" ]; then
        mkdir "$name"
        mount --bind "/$name" "$name"
        mount -o remount,bind,ro "$name"
    fi
done
mount -t tmpfs -o mode=755 local usr/local
mkdir usr/local/bin usr/local/lib usr/local/sbin
touch usr/local/bin/steadfast
mount --bind "$program" usr/local/bin/steadfast

mkdir dev proc sys etc home mnt repository root run
mkdir -m 1777 tmp
mount -t tmpfs -o mode=755 dev dev
mkdir dev/shm dev/pts
ln -s /proc/self/fd dev/fd
for name in null zero full random urandom tty fuse; do
    touch "dev/$name"
    mount --bind "/dev/$name" "dev/$name"
done
mount -t proc proc proc
# Settings of the network are this machine's own, the others are the host's.
mount --bind proc/sys proc/sys
mount --bind proc/sys/net proc/sys/net
mount -o remount,bind,ro proc/sys
mount -t sysfs -o ro sysfs sys
mount --bind "$repository" repository
mount -o remount,bind,ro repository
cp -r "$commands" commands

for name in srv tank var; do
    mkdir "$name"
    truncate -s 1G "$disks/$name"
    mkfs.ext4 -q "$disks/$name"
    mount -o loop "$disks/$name" "$name"
done
# For sizes of shares. Where the kernel has no btrfs, only their commands fail.
mkdir pool
truncate -s 1G "$disks/pool"
if mkfs.btrfs -q "$disks/pool" >/dev/null; then
    mount -o loop "$disks/pool" pool || true
fi
mkdir -p var/lib/steadfast var/log var/tmp

cp -a /etc/. etc/
rm -rf etc/exports etc/exports.d etc/steadfast etc/hosts etc/resolv.conf etc/nsswitch.conf etc/sysctl.d
mkdir -p etc/exports.d etc/steadfast etc/sysctl.d
touch etc/exports etc/resolv.conf
cp "$repository/packaging/installed.toml" etc/steadfast/steadfast.toml
printf '%s: files\n' passwd group hosts netgroup >etc/nsswitch.conf
cat >etc/hosts <<'END'
127.0.0.1 localhost server nas
10.0.0.7 client.example
10.0.0.8 admin.example
10.0.0.9 backup.example
END
echo 'staff (client.example,,) (admin.example,,)' >etc/netgroup
echo 'ann:x:61000:61000::/home/ann:/bin/sh' >>etc/passwd

ip link set lo up
ip link add eth0 type veth peer name far
ip link set eth0 up
ip link set far up
ip address add 192.0.2.1/24 dev eth0
ip address add 192.0.2.10/24 dev eth0

# What starts the server, as the service would.
cat >usr/local/sbin/serve <<'END'
#!/bin/bash
setsid steadfast serve --log stderr >>/var/log/steadfast.log 2>&1 </dev/null &
echo $! >/run/server
for _ in $(seq 600); do
    steadfast statistics >/dev/null 2>&1 && exit
    sleep 0.1
done
echo 'the server does not answer:' >&2
cat /var/log/steadfast.log >&2
exit 1
END
cat >usr/local/sbin/systemctl <<'END'
#!/bin/bash
[ "$2" = steadfast ] || exit 1
case $1 in stop | start | restart) ;; *) exit 1 ;; esac
if [ "$1" != start ]; then
    server=$(cat /run/server)
    kill "$server"
    while readlink "/proc/$server/exe" >/dev/null; do sleep 0.05; done
fi
[ "$1" = stop ] || exec serve
END
chmod 755 usr/local/sbin/serve usr/local/sbin/systemctl

# A status that tells of a failure is one.
echo fail >root/.curlrc
export HOME=/root LC_ALL=C.UTF-8
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
exec chroot . /bin/bash -c 'cd /root && exec bash /commands/page.sh'
