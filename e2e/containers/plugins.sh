#!/bin/sh
# compose and buildx for an engine that came without: `plugins.sh FOLDER` unpacks Debian 13's packages of them into
# FOLDER/cli-plugins, which is to be DOCKER_CONFIG. Once; nothing is installed.
set -eu
folder=$1
pool=${DEBIAN_MIRROR:-http://deb.debian.org/debian}
if [ -x "$folder/cli-plugins/docker-compose" ] && [ -x "$folder/cli-plugins/docker-buildx" ]; then exit 0; fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
arch=$(dpkg --print-architecture)
curl -fsS "$pool/dists/trixie/main/binary-$arch/Packages.xz" | xz -d >"$work/Packages"
mkdir -p "$folder/cli-plugins"
for package in docker-compose docker-buildx; do
    # Of the package's paragraph: where it lies and what it must hash to.
    set -- $(awk -v package="$package" '
        $1 == "Package:" { here = $2 == package }
        here && $1 == "Filename:" { file = $2 }
        here && $1 == "SHA256:" { sum = $2 }
        END { print file, sum }' "$work/Packages")
    curl -fsS -o "$work/$package.deb" "$pool/$1"
    echo "$2  $work/$package.deb" | sha256sum --check --quiet
    dpkg-deb -x "$work/$package.deb" "$work/$package"
    find "$work/$package" -path '*/cli-plugins/*' -type f -exec cp {} "$folder/cli-plugins/" \;
done
