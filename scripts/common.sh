# Sourced by the scripts beside it: where the checkout is, how to speak, where LibTorch lies.
# Defines $root (the checkout, which becomes the working directory) and the functions below.
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$root"

torch_version=2.15.0       # the wheel that setup installs where no torch is found
torchvision_version=0.29.2 # the one that belongs to it
torch_oldest=2.9.0         # the oldest that is supported, for scripts/test --full
setup_conf=build/setup.conf # what setup found, for build and test

say() { printf '%s: %s\n' "${0##*/}" "$*"; }

fail() {
    printf '%s: %s\n' "${0##*/}" "$*" >&2
    exit 1
}

# usage_error TEXT: a wrong command line, status 2.
usage_error() {
    printf '%s: %s (see --help)\n' "${0##*/}" "$1" >&2
    exit 2
}

# help_text: the comment block at the top of the calling script.
help_text() { sed -n '2,/^[^#]/{/^#/s/^# \{0,1\}//p}' "$0"; }

# jobs: how many compilers at once. A source that includes LibTorch takes about 2 GiB.
jobs() {
    local by_memory
    by_memory=$(awk '/^MemAvailable/{print int($2 / 2097152)}' /proc/meminfo)
    [ "$by_memory" -ge 1 ] || by_memory=1
    local by_cpu
    by_cpu=$(nproc)
    echo $((by_cpu < by_memory ? by_cpu : by_memory))
}

# site_packages PYTHON: the folder in which a Python keeps its packages, empty where it has none.
site_packages() {
    "$1" -c 'import sysconfig; print(sysconfig.get_path("purelib"))' 2>/dev/null || return 0
}

# version_at_least A B: A >= B for dotted numbers.
version_at_least() { [ "$(printf '%s\n' "$2" "$1" | sort -V | sed -n 1p)" = "$2" ]; }

# remembered KEY: what setup wrote under that name, empty where it wrote nothing.
remembered() {
    [ -f "$setup_conf" ] || return 0
    sed -n "s/^$1=//p" "$setup_conf"
}

# remember KEY VALUE: keeps it for the other scripts; the file is left alone where it says so already.
remember() {
    [ "$(remembered "$1")" = "$2" ] && return 0
    mkdir -p "$(dirname "$setup_conf")"
    { [ ! -f "$setup_conf" ] || grep -v "^$1=" "$setup_conf" || :; printf '%s=%s\n' "$1" "$2"; } \
        > "$setup_conf.new"
    mv "$setup_conf.new" "$setup_conf"
}

# has_libtorch DIR: DIR is the torch folder of a wheel or an unpacked LibTorch zip.
has_libtorch() { [ -e "$1/lib/libtorch_cpu.so" ] && [ -e "$1/include/torch/csrc/api/include" ]; }
