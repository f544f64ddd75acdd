#!/usr/bin/env bash
# Builds and tries the images where there is no Docker and no image registry, from Debian's packages and PyPI alone:
# the Dockerfiles' steps run as they stand, on a base image made by debootstrap, and what they make runs as
# compose.yml runs it. On Debian 12, as root:
#   apt-get install debootstrap buildah podman runc
#   deploy/build_without_docker.sh            # the gateway, a minute or two, 1 GB
#   deploy/build_without_docker.sh --engine   # and the CPU engine, about ten minutes more and 15 GB
# The machine's pip settings and certificates are lent to the build and do not get into an image.
set -euo pipefail
cd "$(dirname "$0")/.."

work=$(mktemp -d /var/tmp/sluice-images.XXXXXX)
store=(--root "$work/images" --runroot "$work/run" --storage-driver overlay)
printf '[containers]\ndefault_ulimits = []\n' >"$work/containers.conf"   # limits may only be lowered without CAP_SYS_RESOURCE
export CONTAINERS_CONF="$work/containers.conf"
podman() { command podman "${store[@]}" --runtime runc --cgroup-manager cgroupfs "$@"; }
cleanup() {
  podman rm --all --force >/dev/null 2>&1 || true
  podman rmi --all --force >/dev/null 2>&1 || true
  rm -rf "$work"
}
trap cleanup EXIT
trap "exit 130" INT TERM

say() { printf '\n== %s\n' "$*"; }
fail() { printf 'FAILED: %s\n' "$*" >&2; exit 1; }

build() {  # IMAGE DOCKERFILE
  local lent=(-v /etc/ssl/certs:/etc/ssl/certs:ro)
  # Where to find packages, by pip's files and variables alike; the variables come first, and hold.
  python3 -m pip config list | sed -nE "s/^(:env:|global)\.(cert|find-links|index-url)='(.*)'$/\2 = \3/p" |
    awk -F ' = ' 'BEGIN { print "[global]" } !seen[$1]++' >"$work/pip.conf"
  lent+=(-v "$work/pip.conf:/etc/pip.conf:ro")
  while IFS= read -r place; do
    if [ -d "$place" ]; then lent+=(-v "$place:$place:ro"); fi
  done < <(sed -n 's/^find-links = //p' "$work/pip.conf")
  buildah "${store[@]}" build --isolation chroot --network host --format docker --pull-never \
    "${lent[@]}" -f "$2" -t "localhost/$1" .
}

# As in compose.yml, but for the network: the two share one that leads nowhere.
hardened=(--detach --read-only --cap-drop ALL --security-opt no-new-privileges --ulimit host --no-healthcheck)

healthy() {  # CONTAINER DOCKERFILE SECONDS
  local check
  check=$(sed -n '/^HEALTHCHECK/{n;s/^ *CMD \[//;s/\]$//;p}' "$2" | sed -E 's/^"python", "-c", "(.*)"$/\1/')
  for _ in $(seq "$3"); do
    if podman exec "$1" python -c "$check" 2>/dev/null; then return; fi
    [ "$(podman inspect --format '{{.State.Running}}' "$1")" = true ] || break
    sleep 1
  done
  podman logs "$1" 2>&1 | tail -20
  fail "$1 does not become healthy"
}

ask() {  # KEY: the status and the body of a chat call, from inside the gateway's container
  podman exec --env KEY="$1" gateway python -c '
import http.client, json, os
call = http.client.HTTPConnection("127.0.0.1", 8080, timeout=120)
question = [{"role": "user", "content": "What is the capital of France?"}]
body = json.dumps({"model": "small", "temperature": 0, "max_tokens": 16, "messages": question})
headers = {"authorization": "Bearer " + os.environ["KEY"], "content-type": "application/json"}
call.request("POST", "/v1/chat/completions", body, headers)
answer = call.getresponse()
print(answer.status, answer.read().decode())'
}

say "A base image with Debian's own Python"
base=$(sed -n 's/^FROM \(\S*\)$/\1/p' deploy/Dockerfile)
debootstrap --variant=minbase --include=ca-certificates,python3,python3-pip,python3-venv bookworm "$work/base" >/dev/null
ln -s /usr/bin/python3 "$work/base/usr/local/bin/python"
tar -C "$work/base" -c . | podman import - "localhost/$base" >/dev/null
rm -rf "$work/base"

say "The gateway's image"
build sluice-gateway deploy/Dockerfile
podman run "${hardened[@]}" --name gateway --network none --tmpfs /tmp:size=64m,mode=1777 \
  --volume usage:/var/lib/sluice --volume "$PWD/deploy/config:/etc/sluice:ro" \
  --env SLUICE_KEY=sk-local-only --env SLUICE_ADMIN_KEY=admin-local-only --env ENGINE_URL=http://127.0.0.1:8000/v1 localhost/sluice-gateway >/dev/null
healthy gateway deploy/Dockerfile 30
[ "$(podman exec gateway id -u)" = 10001 ] || fail "it runs as another user"
podman exec gateway touch /app/x 2>/dev/null && fail "it may write to its own code"
case "$(ask wrong-key)" in 401*) ;; *) fail "a wrong key is not refused" ;; esac
case "$(ask sk-local-only)" in "503 "*upstream_unavailable*) ;; *) fail "without an engine a call is no 503" ;; esac
echo "healthy, not root, read-only; 401 for a wrong key, 503 without an engine"

if [ "${1:-}" = --engine ]; then
  say "The CPU engine's image"
  build sluice-engine deploy/Dockerfile.engine
  podman run "${hardened[@]}" --name engine --network container:gateway --tmpfs /tmp:size=1g,mode=1777 \
    --shm-size 1g localhost/sluice-engine >/dev/null
  healthy engine deploy/Dockerfile.engine 300
  answer=$(ask sk-local-only)
  case "$answer" in "200 "*Paris*) ;; *) fail "the engine does not answer: $answer" ;; esac
  echo "$answer"
fi

say "SIGTERM"
podman stop --time 60 gateway >/dev/null
[ "$(podman inspect --format '{{.State.ExitCode}}' gateway)" = 0 ] || fail "the gateway's exit status is not 0"
podman run --rm --ulimit host --no-healthcheck --volume usage:/data --entrypoint ls localhost/sluice-gateway /data | grep -qx usage.db \
  || fail "no usage file in the volume"
echo "exit status 0, the usage file is in its volume"
say "All is as it should be."
