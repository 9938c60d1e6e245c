#!/bin/sh
# Runs as root what a test says on the second serial line, also when no network is there: one command a line.
stty raw -echo
echo "hand: ready"
while IFS= read -r line; do
    said=$(sh -c "$line" 2>&1 </dev/null)
    printf 'hand: %s %s\n' "$?" "$(printf %s "$said" | base64 -w 0)"
done
