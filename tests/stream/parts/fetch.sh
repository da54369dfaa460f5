#!/bin/bash
# Fetches Kafka and Flink, with what the SQL of manifests/usage-pipeline needs, into a folder (1 GB). Tests of the
# stream use them. Needs Java and Maven. What comes is compared with the list in `sha256`, so each file is pinned.
#   fetch.sh FOLDER        PYTHON: the Python whose pip fetches, python3 unless it is set
set -euo pipefail
home=$1
here=$(dirname "$(readlink -f "$0")")
python=${PYTHON:-python3}
FLINK=2.3.0
for program in java mvn; do
  command -v "$program" > /dev/null || { echo "no $program here: tests of the stream are skipped" >&2; exit 0; }
done
mkdir -p "$home"
home=$(readlink -f "$home")
if [ "$(cat "$home/.done" 2> /dev/null)" = "$(sha256sum < "$here/sha256")" ]; then
  exit 0
fi
rm -rf "$home"/{.done,kafka,flink,wheels}

echo "==> Kafka" >&2
mvn -q -B -f "$here/kafka.xml" dependency:copy-dependencies -DoutputDirectory="$home/kafka"

echo "==> Flink (330 MB)" >&2
"$python" -m pip download -q --disable-pip-version-check --no-deps --only-binary=:all: --python-version 3.11 \
  --platform manylinux2014_x86_64 -d "$home/wheels" apache-flink==$FLINK apache-flink-libraries==$FLINK
for wheel in "$home"/wheels/*.whl; do
  "$python" -m zipfile -e "$wheel" "$home/wheels/all"
done
mkdir -p "$home/flink"
for part in bin conf lib opt plugins; do
  mv "$home/wheels/all/pyflink/$part" "$home/flink/"
done
rm -rf "$home/wheels"
chmod +x "$home"/flink/bin/*.sh
mvn -q -B -f "$here/flink.xml" dependency:copy-dependencies -DexcludeTransitive -DoutputDirectory="$home/flink/lib"
mvn -q -B dependency:copy -Dartifact=org.apache.flink:flink-sql-gateway:$FLINK -DoutputDirectory="$home/flink/opt"

if [ -n "${WRITE_SUMS:-}" ]; then
  (cd "$home" && find . -name '*.jar' | LC_ALL=C sort | xargs sha256sum) > "$here/sha256"
fi
(cd "$home" && sha256sum --quiet --strict -c "$here/sha256") >&2
others=$(comm -13 <(cut -c67- "$here/sha256" | sort) <(cd "$home" && find . -name '*.jar' | sort))
[ -z "$others" ] || { echo "not in the list of sums: $others" >&2; exit 1; }
sha256sum < "$here/sha256" > "$home/.done"
