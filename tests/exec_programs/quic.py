"""Sends a million bytes over QUIC from a server to a client, both in this process, and compares them."""

import asyncio
import datetime
import os
import ssl
import tempfile

from aioquic.asyncio import connect, serve
from aioquic.quic.configuration import QuicConfiguration
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

DATA = bytes(i * 7 % 251 for i in range(1_000_000))


def certificate(folder):
    """Writes a certificate for localhost and its key; returns their files."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    now = datetime.datetime.now(datetime.timezone.utc)
    made = x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
    made = made.serial_number(1).not_valid_before(now - datetime.timedelta(days=1))
    made = made.not_valid_after(now + datetime.timedelta(days=1)).sign(key, hashes.SHA256())
    files = os.path.join(folder, "cert.pem"), os.path.join(folder, "key.pem")
    with open(files[0], "wb") as file:
        file.write(made.public_bytes(serialization.Encoding.PEM))
    with open(files[1], "wb") as file:
        pem, form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
        file.write(key.private_bytes(pem, form, serialization.NoEncryption()))
    return files


def answer(reader, writer):
    async def work():
        await reader.read()
        writer.write(DATA)
        writer.write_eof()

    asyncio.ensure_future(work())


async def main():
    with tempfile.TemporaryDirectory() as folder:
        ours = QuicConfiguration(is_client=False, alpn_protocols=["txq"])
        ours.load_cert_chain(*certificate(folder))
        server = await serve("127.0.0.1", 0, configuration=ours, stream_handler=answer)
        port = server._transport.get_extra_info("sockname")[1]
        theirs = QuicConfiguration(alpn_protocols=["txq"], verify_mode=ssl.CERT_NONE)
        async with connect("127.0.0.1", port, configuration=theirs) as client:
            reader, writer = await client.create_stream()
            writer.write(b"please")
            writer.write_eof()
            received = await asyncio.wait_for(reader.read(), 100)
        server.close()
        assert received == DATA, len(received)
        print(len(received), "bytes arrived")


asyncio.run(main())
