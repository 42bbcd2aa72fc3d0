#!/bin/sh
# Prints the path of a Python interpreter that can build this project's environment.
#
#   find-python.sh          python3 if it is 3.11 or newer, else the newest python3.X that is
#   find-python.sh 3.12     exactly that version, or nothing (exit 1)
#
# An interpreter counts only if it can make environments with pip and has SQLite: some systems
# ship these apart, and a shim on PATH may stand for a version that is not installed.
set -u

usable() {
    "$1" -c '
import ensurepip, sqlite3, sys, venv
wanted = tuple(map(int, sys.argv[1].split("."))) if len(sys.argv) > 1 else None
sys.exit(sys.version_info < (3, 11) or wanted not in (None, sys.version_info[:2]))
' ${2:+"$2"} >/dev/null 2>&1
}

path_of() { "$1" -c 'import sys; print(sys.executable)'; }

pyenv_builds() { # of one version; their shims refuse to run unless the version is selected
    root=$(pyenv root 2>/dev/null) || return 0
    for build in "$root/versions/$1".*/bin/python3; do
        [ -x "$build" ] && echo "$build"
    done
}

if [ $# -gt 0 ]; then
    for candidate in "python$1" python3 $(pyenv_builds "$1"); do
        usable "$candidate" "$1" && path_of "$candidate" && exit 0
    done
    exit 1
fi

for candidate in python3 python3.16 python3.15 python3.14 python3.13 python3.12 python3.11; do
    usable "$candidate" && path_of "$candidate" && exit 0
done
found=$(python3 --version 2>&1) || found="no python3"
echo "Python 3.11 or newer with venv, pip and sqlite3 is needed (python3 here: $found)." >&2
echo "Install it (on Debian also python3-venv), or name it: make PYTHON=/path/to/python3 …" >&2
exit 1
