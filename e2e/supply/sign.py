"""Sign an image, or check its signature: ``python -m supply.sign ARCHIVE --key FILE --output FILE``.

The signature is an OCI archive of its own, to be pushed next to the image under the tag that is printed.
cosign finds it there: ``cosign verify --key PUBLIC --insecure-ignore-tlog REGISTRY/NAME:TAG``.
"""

import argparse
import os
import sys
import tarfile
from pathlib import Path
from typing import Final

from localcluster import oci

from supply import signing

PASSPHRASE: Final = "VC_EGPU_KEY_PASSPHRASE"
"""Environment variable: what the private key's file is encrypted with."""


def main(argv: list[str] | None = None) -> int:
    """The exit status: 1 where the key or the signature does not do."""
    flags = argparse.ArgumentParser(prog="supply.sign", description=__doc__)
    flags.add_argument("archive", type=Path, help="of the image, or of its index")
    flags.add_argument(
        "--key", type=Path, required=True, help="PEM, ECDSA P-256: private, or public for --check"
    )
    flags.add_argument("--name", help="the name in your registry, without a tag (default: the archive's)")
    what = flags.add_mutually_exclusive_group(required=True)
    what.add_argument("--output", type=Path, help="write the signature there, an OCI archive")
    what.add_argument("--check", type=Path, metavar="SIGNATURE", help="whether this signature holds")
    options = flags.parse_args(argv)
    try:
        digest = oci.digest_of(options.archive)
        name = options.name or oci.image_name(options.archive).rpartition(":")[0]
        if options.output:
            print(_sign(name, digest, options.key, options.output))
        else:
            print(_check(digest, options.key, options.check))
    except (signing.SigningError, OSError, tarfile.TarError) as error:
        print(f"supply.sign: {error}", file=sys.stderr)
        return 1
    return 0


def _sign(name: str, digest: str, key: Path, output: Path) -> str:
    signed = signing.payload(name, digest)
    given = signing.signature(key.read_bytes(), signed, os.environ.get(PASSPHRASE, ""))
    layer = oci.Part(signing.PAYLOAD_TYPE, signed, {signing.ANNOTATION: given})
    oci.write_parts(f"{name}:{signing.tag(digest)}", [layer], output)
    return f"{output}: push it as {name}:{signing.tag(digest)}"


def _check(digest: str, key: Path, signature: Path) -> str:
    (layer,) = oci.read_parts(signature)
    given = layer.annotations.get(signing.ANNOTATION, "")
    name = signing.check(key.read_bytes(), layer.content, given, digest)
    return f"{digest} was signed with this key as {name}"


if __name__ == "__main__":
    sys.exit(main())
