#!/bin/sh
# installed_test.sh CMAKE BUILD_FOLDER FILES...: what `cmake --install` puts under a prefix finds all
# the libraries that it needs (FILES are relative to the prefix).
set -e
prefix=$(mktemp -d)
trap 'rm -rf "$prefix"' EXIT
"$1" --install "$2" --prefix "$prefix" --component Unspecified >"$prefix/install.log"
shift 2
for file in "$@"; do
  found=$(ldd "$prefix/$file")
  case $found in
    *"not found"*) echo "$file, installed:"; echo "$found" | grep "not found"; exit 1 ;;
    *libc.so.6*) ;;
    *) echo "$file: no list of libraries"; exit 1 ;;
  esac
done
