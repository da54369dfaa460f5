"""The webhook's own CA: renewed in steps, each of which the step before has prepared."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509
from cryptography.exceptions import InvalidSignature
from vc_egpu.webhook.serving.authority import CertificateError
from vc_egpu.webhook.serving.certificates import Lifetimes, Material, advance

HOSTS = ("vc-egpu-webhook.vc-egpu-system.svc", "127.0.0.1")
NOW = datetime(2026, 1, 1, tzinfo=UTC)
LIFETIMES = Lifetimes(authority=timedelta(days=300), serving=timedelta(days=90))


def fresh() -> Material:
    return advance(None, HOSTS, NOW, LIFETIMES)


def trusted(material: Material) -> bool:
    """The serving certificate is signed by an authority of the bundle."""
    for authority in material.bundle:
        try:
            material.serving.certificate.verify_directly_issued_by(authority)
        except (ValueError, InvalidSignature):
            continue
        return True
    return False


def test_a_first_certificate_is_for_the_names_and_signed_by_the_bundle() -> None:
    material = fresh()
    names = material.serving.certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == [HOSTS[0]]
    assert [str(a) for a in names.get_values_for_type(x509.IPAddress)] == [HOSTS[1]]
    assert trusted(material)


def test_nothing_is_due_most_of_the_time() -> None:
    material = fresh()
    assert advance(material, HOSTS, NOW + timedelta(days=30), LIFETIMES) is material


def test_the_serving_certificate_is_renewed_by_the_same_authority() -> None:
    material = fresh()
    later = advance(material, HOSTS, NOW + timedelta(days=61), LIFETIMES)
    assert later.serving.certificate != material.serving.certificate
    assert later.bundle == material.bundle
    assert trusted(later)


def test_new_names_give_a_new_certificate() -> None:
    material = fresh()
    later = advance(material, (*HOSTS, "other.example"), NOW, LIFETIMES)
    assert later.serving.certificate != material.serving.certificate


def test_an_authority_is_announced_then_used_then_forgotten() -> None:
    due = NOW + timedelta(days=210)
    material = advance(fresh(), HOSTS, due, LIFETIMES)
    assert material.next_issuer is not None
    assert len(material.bundle) == 2
    assert material.serving.certificate.issuer == material.issuer.certificate.subject
    assert advance(material, HOSTS, due, LIFETIMES) is material, "it waits until the bundle has settled"

    switched = advance(material, HOSTS, due, LIFETIMES, next_is_settled=True)
    assert switched.issuer == material.next_issuer
    assert switched.next_issuer is None
    assert len(switched.bundle) == 2, "a slow replica still serves under the old one"
    assert trusted(switched)

    gone = advance(switched, HOSTS, NOW + timedelta(days=301), LIFETIMES)
    assert gone.bundle == (switched.issuer.certificate,)
    assert trusted(gone)


def test_a_certificate_never_outlives_its_authority() -> None:
    late = advance(fresh(), HOSTS, NOW + timedelta(days=290), LIFETIMES)
    end = late.serving.certificate.not_valid_after_utc
    assert end <= late.issuer.certificate.not_valid_after_utc


def test_an_expired_authority_is_replaced_at_once() -> None:
    later = advance(fresh(), HOSTS, NOW + timedelta(days=400), LIFETIMES)
    assert trusted(later)
    assert later.serving.certificate.not_valid_after_utc > NOW + timedelta(days=400)


def test_walking_through_three_years_every_step_is_trusted() -> None:
    material, day = fresh(), 0
    while day < 1000:
        day += 3
        now = NOW + timedelta(days=day)
        before = material
        material = advance(material, HOSTS, now, LIFETIMES, next_is_settled=material.next_issuer is not None)
        assert trusted(material)
        # A client with the bundle of the step before trusts what is served now, and the other way round.
        assert trusted(replace(material, bundle=before.bundle))
        assert trusted(replace(before, bundle=material.bundle))
        assert material.serving.certificate.not_valid_after_utc > now + timedelta(days=3)


def test_the_secret_holds_all_of_it() -> None:
    material = advance(fresh(), HOSTS, NOW + timedelta(days=210), LIFETIMES)
    read = Material.from_secret(material.to_secret())
    assert read.to_secret() == material.to_secret()


@pytest.mark.parametrize("key", ["tls.crt", "tls.key", "ca.crt", "issuer.crt", "issuer.key"])
def test_a_secret_that_somebody_edited_is_not_believed(key: str) -> None:
    data = fresh().to_secret()
    with pytest.raises(CertificateError, match=key):
        Material.from_secret({k: v for k, v in data.items() if k != key})
    with pytest.raises(CertificateError):
        Material.from_secret({**data, key: b"nonsense"})
    other = fresh().to_secret()
    if key != "ca.crt":
        with pytest.raises(CertificateError, match="belong together"):
            Material.from_secret({**data, key: other[key]})
