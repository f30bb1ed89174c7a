"""Certificates that are made for a test, and trusted by nobody else."""

import datetime
import ipaddress
import ssl
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

PEM = serialization.Encoding.PEM
# From Python 3.13 on a default context wants it of who certifies (RFC 5280, 4.2.1.3). It also signs
# handshakes, for `itself`.
KEY_USAGE = x509.KeyUsage(
    digital_signature=True,
    key_cert_sign=True,
    crl_sign=True,
    content_commitment=False,
    key_encipherment=False,
    data_encipherment=False,
    key_agreement=False,
    encipher_only=False,
    decipher_only=False,
)
HOUR = datetime.timedelta(hours=1)


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


class Authority:
    """Somebody who certifies: `file` is what a client trusts, `serving` what a server shows."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._me = _name("a test")
        made = (
            self._begun(self._me, self._key)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(KEY_USAGE, critical=True)
        )
        self.file = folder / "authority.pem"
        self.file.write_bytes(made.sign(self._key, hashes.SHA256()).public_bytes(PEM))

    def _begun(
        self,
        subject: x509.Name,
        key: ec.EllipticCurvePrivateKey,
        lasts: datetime.timedelta = HOUR,
    ) -> x509.CertificateBuilder:
        now = datetime.datetime.now(datetime.UTC)
        begun = x509.CertificateBuilder().subject_name(subject).issuer_name(self._me)
        return (
            begun.public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - 24 * HOUR)
            .not_valid_after(now + lasts)
            .add_extension(
                x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False
            )
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()),
                critical=False,
            )
        )

    def serving(self, host: str, *, lasts: datetime.timedelta = HOUR) -> ssl.SSLContext:
        """For a server with this name, or at this address, and so long from now."""
        key = ec.generate_private_key(ec.SECP256R1())
        try:
            named: x509.GeneralName = x509.IPAddress(ipaddress.ip_address(host))
        except ValueError:
            named = x509.DNSName(host)
        made = self._begun(_name(host), key, lasts).add_extension(
            x509.SubjectAlternativeName([named]), critical=False
        )
        file = self._folder / "server.pem"
        secret = key.private_bytes(
            PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        file.write_bytes(secret + made.sign(self._key, hashes.SHA256()).public_bytes(PEM))
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(file)
        return context

    def itself(self) -> ssl.SSLContext:
        """For a server that shows the certificate of the authority, as its own."""
        file = self._folder / "itself.pem"
        secret = self._key.private_bytes(
            PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        file.write_bytes(secret + self.file.read_bytes())
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(file)
        return context

    def trusting(self) -> ssl.SSLContext:
        """For a client that trusts it."""
        return ssl.create_default_context(cafile=str(self.file))
