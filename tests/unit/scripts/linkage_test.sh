#!/bin/sh
# linkage_test.sh PROGRAM: the program needs nothing but the C and C++ run-time (and, to be sure that
# this was looked at, it does need the C library).
needed=$(readelf -d "$1" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p') || exit 1
echo "$needed"
echo "$needed" | grep -qx 'libc.so.6' || { echo "no list of libraries: not an ELF program?"; exit 1; }
foreign=$(echo "$needed" | grep -vxE 'lib(c|m|stdc\+\+|gcc_s|pthread|dl|rt)\.so\.[0-9]+|ld-linux.*')
[ -z "$foreign" ] || { echo "needs more than the run-time: $foreign"; exit 1; }
