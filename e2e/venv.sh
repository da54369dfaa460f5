#!/bin/sh
# venv.sh PYTHON FOLDER: a virtual environment with pip in FOLDER, made anew where a half one stands there.
# Called by make before there is any Python of ours: Debian has Python and its venv in packages of their own.
set -eu
python=$1 folder=$2

if "$folder/bin/python" -m pip --version > /dev/null 2>&1; then
	exit 0
fi

usable() {
	command -v "$python" > /dev/null && "$python" -c 'import ensurepip, venv' 2> /dev/null
}

# Only Debian's own name can be had from Debian's packages.
if ! usable && [ "$python" = python3 ] && [ "$(id -u)" = 0 ] && command -v apt-get > /dev/null; then
	echo "==> installing python3 python3-venv" >&2
	export DEBIAN_FRONTEND=noninteractive
	apt-get -qq -o DPkg::Lock::Timeout=120 update
	apt-get -qq -y -o DPkg::Lock::Timeout=120 install --no-install-recommends python3 python3-venv > /dev/null
fi
if ! command -v "$python" > /dev/null; then
	echo "error: $python not found: install python3 python3-venv, or name another one: make PYTHON=..." >&2
	exit 1
fi
if ! "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))'; then
	echo "error: $python is $("$python" -V 2>&1), and 3.11 or newer is needed: make PYTHON=python3.12, say" >&2
	exit 1
fi
if ! usable; then
	echo "error: $python has no venv: install python3-venv, or what it is called for this Python" >&2
	exit 1
fi
exec "$python" -m venv --clear "$folder"
