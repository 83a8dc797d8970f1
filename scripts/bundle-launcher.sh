#!/usr/bin/env bash
# attune on a machine with nothing but g++ and a torch:
#   ./attune doctor                      any attune command
#   ./attune node program.js             a program of your own with this Node and this attune
#   ./attune test                        the tests of the engine and of CUDA, or those of the files that follow
#   ./attune bench engine                a benchmark
set -euo pipefail
here=$(cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")" && pwd)
version=$(cat "$here/version")

# Everything is unpacked beside the launcher, or in the cache where that folder cannot be written.
home=$here/app
if ! [ -w "$home" ]; then
  home=${XDG_CACHE_HOME:-$HOME/.cache}/attune/bundle-$version
  if ! [ -d "$home" ]; then
    mkdir -p "$(dirname "$home")"
    cp -r "$here/app" "$home.$$" && chmod -R u+w "$home.$$" && { mv -T "$home.$$" "$home" 2>/dev/null || rm -rf "$home.$$"; }
  fi
fi

unxz_to_stdout() {
  if command -v xz >/dev/null; then xz -dc "$1"
  else python3 -c 'import lzma, shutil, sys; shutil.copyfileobj(lzma.open(sys.argv[1]), sys.stdout.buffer)' "$1"
  fi
}

if [ "$(cat "$home/.unpacked" 2>/dev/null)" != "$version" ]; then
  echo 'attune: unpacking Node and packages (first use) …' >&2
  work=$(mktemp -d "$home/.unpacking.XXXXXX")
  trap 'rm -rf "$work"' EXIT
  unxz_to_stdout "$here/node.xz" >"$work/node"
  chmod +x "$work/node"
  unxz_to_stdout "$here/packages.tar.xz" | tar -C "$work" -xf -
  rm -rf "$home/node_modules"
  mv -T "$work/node_modules" "$home/node_modules" 2>/dev/null || true
  mv -f "$work/node" "$home/node"
  echo "$version" >"$home/.unpacked"
fi

case ${1-} in
node | bench | test)
  # Programs find the addon by build/addon.json, so it has to be there before they start.
  "$home/node" "$home/scripts/native.mjs" --quiet
  [ "$1" = node ] && exec "$home/node" "${@:2}"
  if [ "$1" = test ]; then
    tests=("${@:2}")
    [ ${#tests[@]} -gt 0 ] || tests=("$home/src/tensor/**/*.test.js" "$home/src/nn/**/*.test.js" "$home/tests/cuda/**/*.test.js")
    # Each file is a process of its own and shares the GPU with the others: not more at once than it has room for,
    # and a share of the cores for each.
    export ATTUNE_THREADS=${ATTUNE_THREADS:-$(( ($(nproc) + 3) / 4 ))}
    exec "$home/node" --no-warnings --test --test-concurrency=4 --test-timeout=600000 --test-reporter=spec "${tests[@]}"
  fi
  exec "$home/node" "$home/benchmarks/run.js" "${@:2}"
  ;;
*) ATTUNE_TYPED=$0 exec "$home/node" "$home/bin/attune.mjs" "$@" ;;
esac
