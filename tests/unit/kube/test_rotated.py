"""A connection shows our certificate when it is made, and the certificate may have changed since."""

import json
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from vc_egpu.kube import ApiConnection
from vc_egpu.kube.wire import pool


def certify(name: str, folder: Path) -> None:
    """A certificate of its own issuing, and its key."""
    key, now = ec.generate_private_key(ec.SECP256R1()), datetime.now(UTC)
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    address = x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))])
    made = x509.CertificateBuilder(
        subject, subject, key.public_key(), x509.random_serial_number(), now, now + timedelta(days=1)
    ).add_extension(address, critical=False)
    signed = made.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
    (folder / f"{name}.crt").write_bytes(signed)
    form = (serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    (folder / f"{name}.key").write_bytes(key.private_bytes(*form))


def serve(connection: ssl.SSLSocket) -> None:
    """Answers each request with the name of who made the connection."""
    with suppress(OSError), connection, connection.makefile("rb") as lines:
        connection.do_handshake()
        shown = x509.load_der_x509_certificate(connection.getpeercert(binary_form=True) or b"")
        name = shown.subject.rfc4514_string().removeprefix("CN=")
        while lines.readline():
            while lines.readline() not in {b"\r\n", b""}:
                pass
            body = f"{name}\n".encode()
            connection.sendall(f"HTTP/1.1 200 OK\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body)


@pytest.fixture
def api(tmp_path: Path) -> Iterator[ApiConnection]:
    """A server that asks for certificates; ours is in ``me.crt``, and anybody's is taken."""
    for name in ("server", "first", "second"):
        certify(name, tmp_path)
    (tmp_path / "known").write_bytes(
        b"".join((tmp_path / f"{n}.crt").read_bytes() for n in ("first", "second"))
    )
    become("first", tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "server.crt", tmp_path / "server.key")
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_verify_locations(tmp_path / "known")
    listener = socket.create_server(("127.0.0.1", 0))

    def accept() -> None:
        with suppress(OSError):
            while True:
                taken = context.wrap_socket(
                    listener.accept()[0], server_side=True, do_handshake_on_connect=False
                )
                threading.Thread(target=serve, args=(taken,), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    server = {
        "server": f"https://127.0.0.1:{listener.getsockname()[1]}",
        "certificate-authority": "server.crt",
    }
    document = {
        "clusters": [{"name": "c", "cluster": server}],
        "users": [{"name": "u", "user": {"client-certificate": "me.crt", "client-key": "me.key"}}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "x",
    }
    (tmp_path / "config").write_text(json.dumps(document))
    connection = ApiConnection.connect(tmp_path / "config", pool_size=1)
    yield connection
    connection.close()
    listener.shutdown(socket.SHUT_RDWR)
    listener.close()


def become(name: str, folder: Path) -> None:
    for end in ("crt", "key"):
        (folder / f"{name}.{end}").replace(folder / f"me.{end}")


def asked(api: ApiConnection) -> str:
    return api.request_text("/whoami").strip()


def watched(api: ApiConnection) -> str:
    stream = api.stream("/whoami", {"watch": True}, idle_timeout_s=30.0)
    (line,) = stream.lines()
    stream.close()
    return line.decode()


def test_a_certificate_that_was_replaced_is_shown_however_busy_the_connection(
    api: ApiConnection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The old one is over one day, and the server looks at it at each request."""
    assert (asked(api), watched(api)) == ("first", "first")
    become("second", tmp_path)
    assert (asked(api), watched(api)) == ("first", "first"), "the connections are in order, and young"
    monkeypatch.setattr(pool, "MOST_AGE_S", 0.0)
    assert (asked(api), watched(api)) == ("second", "second")
