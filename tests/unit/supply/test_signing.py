"""Signatures as cosign makes them: openssl checks them, too, and nothing else passes for one."""

import base64
import shutil
import subprocess
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from localcluster.oci import Text, build_image, digest_of, image_name, join, read_parts
from supply import signing
from supply.sign import PASSPHRASE, main

Key = ec.EllipticCurvePrivateKey | ed25519.Ed25519PrivateKey


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VC_EGPU_CACHE", str(tmp_path / "cache"))


def pem(key: Key, passphrase: str = "") -> bytes:
    none, locked = serialization.NoEncryption(), serialization.BestAvailableEncryption
    how = locked(passphrase.encode()) if passphrase else none
    return key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, how)


def public_pem(key: Key) -> bytes:
    form = serialization.PublicFormat.SubjectPublicKeyInfo
    return key.public_key().public_bytes(serialization.Encoding.PEM, form)


@pytest.fixture
def key(tmp_path: Path) -> Path:
    """A private key's file, with the public one next to it."""
    made = ec.generate_private_key(ec.SECP256R1())
    (tmp_path / "key.pub").write_bytes(public_pem(made))
    path = tmp_path / "key.pem"
    path.write_bytes(pem(made))
    return path


def image(text: str = "a") -> Path:
    return build_image(None, "registry.example/vc-egpu:1", files={"/a": Text(text)})


def test_what_is_signed_holds_and_says_its_name(
    tmp_path: Path, key: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    archive, signature = image(), tmp_path / "signature.tar"
    assert main([str(archive), "--key", str(key), "--output", str(signature)]) == 0
    tag = f"{digest_of(archive).replace(':', '-')}.sig"
    assert f"push it as registry.example/vc-egpu:{tag}" in capsys.readouterr().out
    assert image_name(signature) == f"registry.example/vc-egpu:{tag}"
    public = key.with_suffix(".pub")
    assert main([str(archive), "--key", str(public), "--check", str(signature)]) == 0
    assert "signed with this key as registry.example/vc-egpu" in capsys.readouterr().out


def test_an_index_is_signed_too(tmp_path: Path, key: Path) -> None:
    both, signature = tmp_path / "both.tar", tmp_path / "signature.tar"
    join([image()], "registry.example/vc-egpu:1", both)
    assert main([str(both), "--key", str(key), "--output", str(signature)]) == 0
    assert main([str(both), "--key", str(key.with_suffix(".pub")), "--check", str(signature)]) == 0
    assert main([str(image()), "--key", str(key.with_suffix(".pub")), "--check", str(signature)]) == 1


def test_another_image_another_key_and_a_changed_signature_are_refused(
    tmp_path: Path, key: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    archive, signature = image(), tmp_path / "signature.tar"
    main([str(archive), "--key", str(key), "--output", str(signature)])
    public = key.with_suffix(".pub")
    assert main([str(image("b")), "--key", str(public), "--check", str(signature)]) == 1
    assert "and the image is" in capsys.readouterr().err
    public.write_bytes(public_pem(ec.generate_private_key(ec.SECP256R1())))
    assert main([str(archive), "--key", str(public), "--check", str(signature)]) == 1
    assert "this key has not signed this" in capsys.readouterr().err
    with pytest.raises(signing.SigningError):
        signing.check(public.read_bytes(), b"{}", "no base64!", "sha256:0")


@pytest.mark.skipif(shutil.which("openssl") is None, reason="no openssl here")
def test_openssl_takes_the_signature(tmp_path: Path, key: Path) -> None:
    signature = tmp_path / "signature.tar"
    main([str(image()), "--key", str(key), "--output", str(signature)])
    (layer,) = read_parts(signature)
    (tmp_path / "payload").write_bytes(layer.content)
    (tmp_path / "sig").write_bytes(base64.b64decode(layer.annotations[signing.ANNOTATION]))
    words = ("openssl", "dgst", "-sha256", "-verify", "key.pub", "-signature", "sig", "payload")
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "Verified OK", done.stderr


@pytest.mark.parametrize("passphrase", ["", "wrong"])
def test_an_encrypted_key_wants_its_passphrase(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], passphrase: str
) -> None:
    path = tmp_path / "locked.pem"
    path.write_bytes(pem(ec.generate_private_key(ec.SECP256R1()), "open sesame"))
    monkeypatch.setenv(PASSPHRASE, passphrase)
    output = tmp_path / "signature.tar"
    assert main([str(image()), "--key", str(path), "--output", str(output)]) == 1
    assert "the private key cannot be read" in capsys.readouterr().err
    assert not output.exists()
    monkeypatch.setenv(PASSPHRASE, "open sesame")
    assert main([str(image()), "--key", str(path), "--output", str(output)]) == 0


@pytest.mark.parametrize(
    "other", [ec.generate_private_key(ec.SECP384R1()), ed25519.Ed25519PrivateKey.generate()]
)
def test_a_key_of_another_kind_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], other: Key
) -> None:
    path = tmp_path / "other.pem"
    path.write_bytes(pem(other))
    assert main([str(image()), "--key", str(path), "--output", str(tmp_path / "s.tar")]) == 1
    assert "P-256" in capsys.readouterr().err


def test_files_that_are_not_there_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(image()), "--key", str(tmp_path / "none.pem"), "--output", "/dev/null"]) == 1
    assert "none.pem" in capsys.readouterr().err
    (tmp_path / "text").write_text("no archive")
    assert main([str(tmp_path / "text"), "--key", "x", "--output", "/dev/null"]) == 1
