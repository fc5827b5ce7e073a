# Has exportfs(8) judge files, in namespaces of its own: $1/in/NAME becomes $1/out/NAME.{rc,err,etab}.
# Nothing of this machine is read or changed: /etc, /var/lib/nfs and /mnt are other ones here.
set -eu
mkdir -p "$1/etc" "$1/out"
cp "$1/hosts" "$1/etc/hosts"
echo 'hosts: files' > "$1/etc/nsswitch.conf"
: > "$1/etc/exports"
mount --bind "$1/etc" /etc
mount -t tmpfs none /var/lib/nfs
mount -t tmpfs none /mnt
mkdir -p /mnt/a '/mnt/b c' /mnt/d /mnt/e
ln -s a /mnt/link
cd /
for file in "$1"/in/*; do
    name=${file##*/}
    cp "$file" /etc/exports
    rm -f /var/lib/nfs/etab
    status=0
    exportfs -ra 2> "$1/out/$name.err" || status=$?
    echo "$status" > "$1/out/$name.rc"
    cp /var/lib/nfs/etab "$1/out/$name.etab" 2> /dev/null || : > "$1/out/$name.etab"
done
