#!/usr/bin/env bash
# Shows that `make demo` and `make test` work on a fresh machine: a minimal system made by debootstrap holds only git and
# make, clones the project and runs the tasks, timed. Needs root, debootstrap and a package mirror.
#   scripts/verify_fresh_machine.sh [options] [TASK...]
#     TASK              demo, offline-demo (without network, after demo), or any make target; default: demo offline-demo test
#     --suite NAME      Debian or Ubuntu release (default bookworm)
#     --mirror URL      package mirror (default http://deb.debian.org/debian)
#     --components LIST of the mirror (default main; Ubuntu needs main,universe)
#     --repository DIR  what is cloned (default: this one; only what is committed counts)
#     --folder DIR      where the system is made and removed again (default: a new one in /var/tmp)
#     --logs DIR        where the logs go (default build/fresh-machine)
set -euo pipefail
project=$(realpath "$(dirname "$0")/..")

suite=bookworm mirror=http://deb.debian.org/debian components=main repository=$project folder="" logs="" tasks=()
while [[ $# -gt 0 ]]; do
  case $1 in
    --suite) suite=$2; shift ;;
    --mirror) mirror=$2; shift ;;
    --components) components=$2; shift ;;
    --repository) repository=$(realpath "$2"); shift ;;
    --folder) folder=$2; shift ;;
    --logs) logs=$2; shift ;;
    -*) sed -n '2,12p' "$0"; exit 2 ;;
    *) tasks+=("$1") ;;
  esac
  shift
done
[[ ${#tasks[@]} -gt 0 ]] || tasks=(demo offline-demo test)
logs=${logs:-$project/build/fresh-machine}
folder=${folder:-$(mktemp -d /var/tmp/isoflash-fresh.XXXXXX)}
[[ $(id -u) -eq 0 ]] || { echo "verify_fresh_machine.sh needs root (debootstrap, chroot, mount)" >&2; exit 2; }
command -v debootstrap >/dev/null || { echo "debootstrap is missing: apt-get install debootstrap" >&2; exit 2; }

mounts=()
clean_up() {
  for point in "${mounts[@]}"; do umount "$point" || true; done
  rm -rf --one-file-system "$folder"
}
trap clean_up EXIT

mkdir -p "$logs"
echo "fresh machine: debootstrap $suite"
debootstrap --variant=minbase --components="$components" --include=git,make "$suite" "$folder" "$mirror" >"$logs/$suite-debootstrap.log" 2>&1 ||
  { tail -n 5 "$logs/$suite-debootstrap.log" >&2; echo "debootstrap failed" >&2; exit 1; }
for kind in proc sysfs tmpfs; do
  declare -A points=([proc]=proc [sysfs]=sys [tmpfs]=dev/shm)
  mkdir -p "$folder/${points[$kind]}"
  mount -t "$kind" "$kind" "$folder/${points[$kind]}" && mounts=("$folder/${points[$kind]}" "${mounts[@]}")
done

# The network as this machine reaches it: name servers, certificates, proxy and pip settings. Nothing else comes along.
cp -L /etc/resolv.conf "$folder/etc/resolv.conf"
environment=(PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/tmp CI=true LANG=C.UTF-8)
if [[ -f /etc/ssl/certs/ca-certificates.crt ]]; then
  cp -L /etc/ssl/certs/ca-certificates.crt "$folder/etc/host-certificates.crt"
  environment+=(PIP_CERT=/etc/host-certificates.crt)
fi
for name in http_proxy https_proxy no_proxy PIP_INDEX_URL PIP_TRUSTED_HOST; do
  if [[ -n ${!name:-} ]]; then environment+=("$name=${!name}"); fi
done

mkdir -p "$folder/srv"
git clone --quiet --no-hardlinks "$repository" "$folder/srv/isoflash"
echo "fresh machine: $suite, $(nproc) cores, commit $(git -C "$folder/srv/isoflash" rev-parse --short HEAD)"

status=0
for task in "${tasks[@]}"; do
  case $task in
    offline-demo)
      rm -rf "$folder/srv/isoflash/build/data" "$folder/srv/isoflash/build/demo"
      run=(unshare --net env -i "${environment[@]}" chroot "$folder" make -C /srv/isoflash demo) ;;
    *) run=(env -i "${environment[@]}" chroot "$folder" make -C /srv/isoflash "$task") ;;
  esac
  result=passed
  TIMEFORMAT="%0R s, %0U s of processor time"
  spent=$({ time "${run[@]}" </dev/null >"$logs/$suite-$task.log" 2>&1; } 2>&1) || { result=FAILED; status=1; }
  echo "fresh machine: $suite, make $task: $result after $spent ($logs/$suite-$task.log)"
  if [[ $task == *demo ]] && [[ ! -s $folder/srv/isoflash/build/demo/index.html ]]; then
    echo "fresh machine: $task wrote no build/demo/index.html"
    status=1
  fi
done
exit $status
