#!/bin/sh
# Prints the newest Python from 3.11 on that works here, or says what is missing.
for name in python3.13 python3.12 python3.11 python3.14 python3; do
    if "$name" -c 'import sys, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
        command -v "$name"
        exit 0
    fi
done
echo "make: Rankdeck needs Python 3.11 or newer with its venv module (Debian: python3 python3-venv)" >&2
exit 1
