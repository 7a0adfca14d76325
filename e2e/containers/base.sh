#!/bin/sh
# The base image where none can be pulled: `base.sh NAME` makes a small Debian 12 with its Python, by debootstrap.
# Documentation, translations and package lists stay out, and what this machine trusts comes along, so that pip
# reaches the index in the same way.
set -eu
name=$1
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
debootstrap --variant=minbase --include=ca-certificates,python3,python3-venv bookworm "$root/fs" >"$root/log" 2>&1 ||
    { tail -n 20 "$root/log" >&2; exit 1; }
cp /etc/ssl/certs/ca-certificates.crt "$root/fs/etc/ssl/certs/ca-certificates.crt"
rm -rf "$root"/fs/usr/share/doc "$root"/fs/usr/share/man "$root"/fs/usr/share/info "$root"/fs/usr/share/locale \
    "$root"/fs/var/cache/apt "$root"/fs/var/lib/apt/lists "$root"/fs/var/log
mkdir -p "$root"/fs/var/cache/apt/archives/partial "$root"/fs/var/lib/apt/lists/partial "$root"/fs/var/log/apt
printf 'APT::Install-Recommends "false";\n' >"$root/fs/etc/apt/apt.conf.d/01lean"
printf 'path-exclude /usr/share/doc/*\npath-exclude /usr/share/man/*\npath-exclude /usr/share/locale/*\n' \
    >"$root/fs/etc/dpkg/dpkg.cfg.d/01lean"
tar -C "$root/fs" --one-file-system -c . | docker import --change 'CMD ["/bin/sh"]' - "$name" >/dev/null
