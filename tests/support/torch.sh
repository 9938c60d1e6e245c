#!/bin/bash
# torch.sh PYTHON: puts torch into the tests' environment where it can be had within the limits.
# Never fails: without it the torchrun tests skip.
set -uo pipefail
version=2.13.0
"$1" -c 'import torch' 2>/dev/null && exit 0
pip=("$1" -m pip --disable-pip-version-check)
plan=$(timeout 120 "${pip[@]}" install --quiet --dry-run --report - "torch==$version" 2>/dev/null)
case $plan in
    "") echo "torch $version cannot be had for this Python; its tests skip" ;;
    *'"nvidia-'*) echo "torch $version comes only with CUDA here (gigabytes); its tests skip" ;;
    *)
        timeout 600 "${pip[@]}" install --quiet "torch==$version" ||
            echo "torch could not be installed in 10 minutes; its tests skip"
        ;;
esac
exit 0
