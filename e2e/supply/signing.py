"""Signatures of images as cosign makes and checks them: a payload, an ECDSA signature, an OCI manifest.

The format is "simple signing": https://github.com/containers/image/blob/main/docs/containers-signature.5.md,
and cosign's SIGNATURE_SPEC.md on top. Pure but for the randomness of ECDSA.
"""

import base64
import binascii
import json
from typing import Any, Final

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import load_pem_private_key, load_pem_public_key

PAYLOAD_TYPE: Final = "application/vnd.dev.cosign.simplesigning.v1+json"
ANNOTATION: Final = "dev.cosignproject.cosign/signature"
_KIND: Final = "cosign container image signature"
_CURVE: Final = "secp256r1"
_KEY: Final = "the key is no ECDSA key of the curve P-256 in PEM"


class SigningError(ValueError):
    """A key that cannot be used, or a signature that does not hold."""


def tag(digest: str) -> str:
    """Under which cosign looks for the signatures of an image: ``sha256-`` and 64 digits, ``.sig``."""
    return f"{digest.replace(':', '-')}.sig"


def payload(reference: str, digest: str) -> bytes:
    """What is signed: that this image (``registry/name``) has this digest."""
    critical = {
        "identity": {"docker-reference": reference},
        "image": {"docker-manifest-digest": digest},
        "type": _KIND,
    }
    return json.dumps({"critical": critical, "optional": None}, separators=(",", ":")).encode()


def signature(private_key: bytes, signed: bytes, passphrase: str = "") -> str:
    """In base64. ``private_key`` is PEM. Raises :class:`SigningError` for one that is of another kind."""
    try:
        key = load_pem_private_key(private_key, passphrase.encode() or None)
    except (ValueError, TypeError) as error:
        raise SigningError(f"the private key cannot be read: {error}") from error
    if not isinstance(key, ec.EllipticCurvePrivateKey) or key.curve.name != _CURVE:
        raise SigningError(_KEY)
    return base64.b64encode(key.sign(signed, ec.ECDSA(hashes.SHA256()))).decode()


def check(public_key: bytes, signed: bytes, given: str, digest: str) -> str:
    """The name that the image of this digest was signed under. Raises :class:`SigningError` where the key did
    not sign this, or what it signed is another image."""
    try:
        key = load_pem_public_key(public_key)
        if not isinstance(key, ec.EllipticCurvePublicKey):
            raise SigningError(_KEY)
        key.verify(base64.b64decode(given, validate=True), signed, ec.ECDSA(hashes.SHA256()))
    except InvalidSignature as error:
        raise SigningError("this key has not signed this") from error
    except (binascii.Error, ValueError) as error:
        raise error if isinstance(error, SigningError) else SigningError(str(error)) from error
    critical: Any = json.loads(signed)["critical"]
    found = critical["image"]["docker-manifest-digest"]
    if critical["type"] != _KIND or found != digest:
        raise SigningError(f"the signature is for {found}, and the image is {digest}")
    return str(critical["identity"]["docker-reference"])
