# shellcheck shell=sh disable=SC2034,SC2154
# Shell functions shared by ./rooftile and ./test: packages and builds. Sourced with $cd_to set to the root of the source tree. POSIX sh.

say() { printf '%s\n' "$*" >&2; }

root=$(CDPATH="" cd -- "$cd_to" && pwd)
build=$root/build/release

# Debian 12 and Ubuntu 24.04 name these alike.
build_packages="g++ cmake ninja-build libyaml-cpp-dev libfmt-dev nlohmann-json3-dev libcli11-dev libexpected-dev libeigen3-dev zlib1g-dev"
test_packages="libgtest-dev python3 python3-jsonschema"
full_packages="clang libclang-rt-dev libbenchmark-dev"

# The packages of the list "$@" that are not installed.
missing_packages() {
  for package in "$@"; do
    state=$(dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null)
    [ "$state" = installed ] || printf '%s ' "$package"
  done
}

# Makes sure that the packages are there: installs when root, when ROOFTILE_INSTALL=1, or after a yes on a terminal; else lists them and returns 5.
need_packages() {
  if ! command -v dpkg-query >/dev/null 2>&1; then
    return 0 # not a Debian: cmake says what it misses
  fi
  missing=$(missing_packages "$@")
  missing=${missing% }
  [ -n "$missing" ] || return 0
  sudo=
  [ "$(id -u)" = 0 ] || sudo=sudo
  install=${ROOFTILE_INSTALL:-}
  [ "$(id -u)" = 0 ] && [ "$install" != 0 ] && install=1
  if [ "$install" != 1 ] && [ "$install" != 0 ] && [ -t 0 ] && [ -t 2 ]; then
    printf 'rooftile needs these packages to build: %s\nInstall them now with %sapt-get? [Y/n] ' "$missing" "${sudo:+sudo }" >&2
    read -r answer
    case $answer in '' | y | Y | yes | Yes) install=1 ;; esac
  fi
  if [ "$install" != 1 ]; then
    say "rooftile: these packages are missing: $missing"
    say "  install them with: ${sudo:+sudo }apt-get install --no-install-recommends $missing"
    say "  or let this script do it: ROOFTILE_INSTALL=1 $0"
    return 5
  fi
  say "rooftile: installing $missing"
  # The package lists are fetched only where the installed ones do not have everything.
  # shellcheck disable=SC2086
  if ! DEBIAN_FRONTEND=noninteractive $sudo apt-get install -y -qq --no-install-recommends $missing </dev/null >"$root/build/packages.log" 2>&1; then
    if ! { $sudo apt-get update -qq </dev/null && DEBIAN_FRONTEND=noninteractive $sudo apt-get install -y -qq --no-install-recommends $missing </dev/null; } >"$root/build/packages.log" 2>&1; then
      tail -n 15 "$root/build/packages.log" >&2
      say "rooftile: could not install: $missing"
      return 5
    fi
  fi
}

jobs() {
  if [ -n "${ROOFTILE_JOBS:-}" ]; then echo "$ROOFTILE_JOBS"; else nproc 2>/dev/null || echo 2; fi
}

# Configures and builds one preset: build_preset PRESET TARGET... Talk to stderr; the compiler's own only when it fails.
build_preset() {
  preset=$1
  shift
  folder=$root/build/$preset
  mkdir -p "$folder"
  # Kernels that measure are built where there is a GPU to measure; without one they would only make the first table late.
  cuda=OFF
  [ -e /proc/driver/nvidia/version ] && cuda=AUTO
  launcher=
  command -v ccache >/dev/null 2>&1 && launcher=-DCMAKE_CXX_COMPILER_LAUNCHER=ccache
  if ! (cd "$root" && cmake --preset "$preset" "-DROOFTILE_CUDA=${ROOFTILE_CUDA:-$cuda}" $launcher) >"$folder/configure.log" 2>&1; then
    tail -n 30 "$folder/configure.log" >&2
    say "rooftile: cmake could not configure; the whole log is $folder/configure.log"
    return 5
  fi
  if ! cmake --build "$folder" --parallel "$(jobs)" --target "$@" >"$folder/build.log" 2>&1; then
    grep -E -A 12 'error|FAILED' "$folder/build.log" | head -n 60 >&2
    say "rooftile: the build failed; the whole log is $folder/build.log"
    return 70
  fi
}

# Runs a function under the lock of the build folder, so that parallel starts wait for each other.
with_lock() {
  if ! mkdir -p "$root/build" 2>/dev/null || ! { : >>"$root/build/lock"; } 2>/dev/null; then
    say "rooftile: cannot write to $root/build, which is needed to build"
    return 5
  fi
  if command -v flock >/dev/null 2>&1; then
    (
      flock 9 || exit 70
      "$@"
    ) 9>"$root/build/lock"
  else
    "$@"
  fi
}

is_current() {
  [ -f "$build/stamp" ] && [ -x "$build/bin/rooftile" ] && [ -z "$(find "$root/CMakeLists.txt" "$root/cmake" "$root/estimator" "$root/frontends" "$root/report" "$root/validate" \
    "$root/kernels" "$root/cli" -newer "$build/stamp" ! -name '*.md' -print -quit 2>/dev/null)" ]
}

build_release_locked() {
  is_current && return 0 # another start has built it while this one waited
  # shellcheck disable=SC2086
  need_packages $build_packages || return $?
  mkdir -p "$build"
  say "rooftile: building (once; about a minute on two cores)"
  # The stamp carries the time before the build, so that an edit during it is seen.
  : >"$build/stamp.new"
  build_preset release rooftile || return $?
  mv "$build/stamp.new" "$build/stamp"
}

build_release() { with_lock build_release_locked; }
