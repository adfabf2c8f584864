#!/usr/bin/env bash
# Joins the parts of an offline bundle, wherever they lie below PARTS, and unpacks them: TARGET/site, TARGET/rig.
# usage: assemble.sh [TARGET [PARTS]]   (default: /tmp/maru-e2e-bundle, and the folder above this file's)
set -euo pipefail
here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
exec "${PYTHON:-python3}" "$here/assemble.py" "${1:-/tmp/maru-e2e-bundle}" "${2:-$(dirname "$here")}"
