#!/usr/bin/env bash
# Adds the users of the tests to a machine that is about to boot. The managers of two run without a login, the
# third user has none.
set -euo pipefail

mkdir -p /var/lib/systemd/linger
number=30001
for name in hs-agent hs-other hs-alone; do
    groupadd --gid "$number" "$name"
    useradd --uid "$number" --gid "$number" --create-home --no-log-init --shell /bin/bash "$name"
    [ "$name" = hs-alone ] || touch "/var/lib/systemd/linger/$name"
    number=$((number + 1))
done
