"""Certificates for brokers and switches on loopback."""

import datetime
import ipaddress
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

DAY = datetime.timedelta(days=1)


@dataclass(frozen=True)
class Server:
    """A certificate and its key."""

    cert: Path
    key: Path


class Authority:
    """Signs certificates for 127.0.0.1."""

    def __init__(self, folder: Path, name: str = "ca") -> None:
        self._folder, self._key = folder, ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        basic = x509.BasicConstraints(ca=True, path_length=None)
        usage = x509.KeyUsage(
            *(False,) * 5, key_cert_sign=True, crl_sign=True, encipher_only=False, decipher_only=False
        )  # fmt: skip
        built = self._builder(self._name, self._key.public_key(), 30)
        signed = (
            built.add_extension(basic, critical=True)
            .add_extension(usage, critical=True)
            .sign(self._key, hashes.SHA256())
        )
        self.file = folder / f"{name}.crt"
        self.file.write_bytes(signed.public_bytes(serialization.Encoding.PEM))

    def server(self, name: str = "server", days: int = 30) -> Server:
        """A certificate for 127.0.0.1 and localhost; expired if `days` is negative."""
        key = ec.generate_private_key(ec.SECP256R1())
        who = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
        hosts = x509.SubjectAlternativeName(
            [
                x509.IPAddress(ipaddress.ip_address("127.0.0.1")),
                x509.DNSName("localhost"),
            ]
        )
        built = self._builder(who, key.public_key(), days)
        signed = built.add_extension(hosts, critical=False).sign(self._key, hashes.SHA256())
        made = Server(self._folder / f"{name}.crt", self._folder / f"{name}.key")
        made.cert.write_bytes(signed.public_bytes(serialization.Encoding.PEM))
        made.key.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            )
        )
        return made

    def _builder(self, who, key, days):
        now = datetime.datetime.now(datetime.UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(who)
            .issuer_name(self._name)
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - 60 * DAY)
            .not_valid_after(now + days * DAY)
        )
