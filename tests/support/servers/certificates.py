"""Certificates of a day, as files of PEM."""

from __future__ import annotations

import datetime
import ipaddress
import uuid
from contextlib import suppress
from typing import TYPE_CHECKING

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import pkcs12

if TYPE_CHECKING:
    from pathlib import Path


class Authority:
    """Issues certificates; ``ca`` is its own.

    :param directory: where they all lie.
    """

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._directory = directory
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _name(f"authority {uuid.uuid4()}")
        signed = self._sign(
            self._name, self._key.public_key(), x509.BasicConstraints(ca=True, path_length=None), _SIGNS
        )
        self.ca = directory / "ca.pem"
        self.ca.write_bytes(signed)

    def issue(self, name: str, *, password: str | None = None) -> Path:
        """A file with a private key and a certificate for the host or client *name*."""
        key = ec.generate_private_key(ec.SECP256R1())
        encryption = (
            serialization.BestAvailableEncryption(password.encode()) if password else serialization.NoEncryption()
        )
        private = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, encryption)
        path = self._directory / f"{name}.pem"
        host: x509.GeneralName = x509.DNSName(name)
        with suppress(ValueError):
            host = x509.IPAddress(ipaddress.ip_address(name))
        path.write_bytes(private + self._sign(_name(name), key.public_key(), x509.SubjectAlternativeName([host])))
        path.chmod(0o600)
        return path

    def keystore(self, name: str, *, password: str) -> Path:
        """The same in the form that Java's servers take: PKCS #12."""
        pem = self.issue(name).read_bytes()
        key = serialization.load_pem_private_key(pem, None)
        assert isinstance(key, ec.EllipticCurvePrivateKey)
        certificate = x509.load_pem_x509_certificate(pem)
        encryption = serialization.BestAvailableEncryption(password.encode())
        path = self._directory / f"{name}.p12"
        path.write_bytes(pkcs12.serialize_key_and_certificates(name.encode(), key, certificate, None, encryption))
        path.chmod(0o600)
        return path

    def _sign(self, name: x509.Name, key: ec.EllipticCurvePublicKey, *extensions: x509.ExtensionType) -> bytes:
        now = datetime.datetime.now(datetime.UTC)
        certificate = (
            x509.CertificateBuilder(self._name, name, key, x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(days=1))
            .not_valid_after(now + datetime.timedelta(days=1))
            # Python 3.13 trusts none without.
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), critical=False)
        )
        for extension in extensions:
            certificate = certificate.add_extension(
                extension, critical=isinstance(extension, x509.BasicConstraints | x509.KeyUsage)
            )
        return certificate.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)


_SIGNS = x509.KeyUsage(
    key_cert_sign=True,
    crl_sign=True,
    digital_signature=False,
    content_commitment=False,
    key_encipherment=False,
    data_encipherment=False,
    key_agreement=False,
    encipher_only=False,
    decipher_only=False,
)


def _name(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
