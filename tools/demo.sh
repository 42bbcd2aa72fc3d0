#!/bin/sh
# Imports the bundled sample into a fresh folder and looks at it from all sides.
#   demo.sh BIN    BIN: the folder of an environment's programs
set -eu
bin=$1
sample=src/statebackend/samples/claude_code

XDG_STATE_HOME=$(mktemp -d)
export XDG_STATE_HOME
trap 'rm -rf "$XDG_STATE_HOME"' EXIT
trap 'exit 1' HUP INT TERM

run() {
    printf '\n$ statebackend %s\n' "$*"
    "$bin/statebackend" "$@"
}

run import "$sample" --prices "$sample/prices.json"
run list
session=$("$bin/statebackend" list --roots --limit 1 --json |
    "$bin/python" -c 'import json, sys; print(json.load(sys.stdin)[0]["session_id"])')
run show "$session"
run show "$session" --events --limit 3
run tree "$session"
run cost "$session" --tree
run cost --by model
