#!/usr/bin/env python3
"""An independent implementation of DSSE and Ed25519 envelopes, on Python's `cryptography`.

crosscheck.py verify DIR   for each vector in DIR: which keys have signed it, and the payload's digest, as JSON
crosscheck.py sign         reads {"seed", "keyid", "payloadType", "payload"} (hex, text, text, base64) and prints an envelope
"""

import base64
import hashlib
import json
import pathlib
import sys

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

P = 2**255 - 19
D = (-121665 * pow(121666, P - 2, P)) % P


def pae(payload_type: bytes, payload: bytes) -> bytes:
    """https://github.com/secure-systems-lab/dsse/blob/master/protocol.md, "PAE"."""
    return b" ".join(
        [b"DSSEv1", str(len(payload_type)).encode(), payload_type, str(len(payload)).encode(), payload]
    )


def decode(text: str) -> bytes:
    """Standard and URL-safe base64."""
    return base64.b64decode(text.translate(str.maketrans("-_", "+/")), validate=True)


def low_order(key: bytes) -> bool:
    """Whether 8 times the point is the neutral element (RFC 8032, section 5.1); no point at all counts too."""
    y = int.from_bytes(key, "little") & (2**255 - 1)
    if y >= P:
        return True
    x2 = (y * y - 1) * pow(D * y * y + 1, P - 2, P) % P
    x = pow(x2, (P + 3) // 8, P)
    if (x * x - x2) % P:
        x = x * pow(2, (P - 1) // 4, P) % P
    if (x * x - x2) % P:
        return True
    for _ in range(3):
        product = D * x * x * y * y % P
        x, y = (
            2 * x * y * pow(1 + product, P - 2, P) % P,
            (y * y + x * x) * pow(1 - product, P - 2, P) % P,
        )
    return (x, y) == (0, 1)


def signed_by(envelope: dict, named: list) -> list:
    message = pae(envelope["payloadType"].encode(), decode(envelope["payload"]))
    found = []
    for entry in named:
        kind, _, text = entry["key"].partition(":")
        key = base64.b64decode(text, validate=True)
        if kind != "ed25519" or low_order(key):
            continue
        for signature in envelope["signatures"]:
            try:
                Ed25519PublicKey.from_public_bytes(key).verify(decode(signature["sig"]), message)
            except InvalidSignature:
                continue
            found.append(entry["id"])
            break
    return found


def look_at(folder: pathlib.Path) -> dict:
    keys = json.loads((folder / "keys.json").read_text())
    try:
        envelope = json.loads((folder / "envelope.json").read_bytes())
        if not envelope["signatures"]:
            raise ValueError("no signature")
        payload = decode(envelope["payload"])
    except ValueError:
        return {"signed_by": None, "payload_digest": None}
    return {
        "signed_by": signed_by(envelope, keys["authors"] + keys["timestamp_keys"]),
        "payload_digest": "sha256:" + hashlib.sha256(payload).hexdigest(),
    }


def sign(order: dict) -> dict:
    key = Ed25519PrivateKey.from_private_bytes(bytes.fromhex(order["seed"]))
    message = pae(order["payloadType"].encode(), base64.b64decode(order["payload"]))
    signature = base64.b64encode(key.sign(message)).decode()
    return {
        "payloadType": order["payloadType"],
        "payload": order["payload"],
        "signatures": [{"keyid": order["keyid"], "sig": signature}],
    }


def main() -> None:
    if sys.argv[1:2] == ["verify"]:
        folders = sorted(path for path in pathlib.Path(sys.argv[2]).iterdir() if path.is_dir())
        json.dump({folder.name: look_at(folder) for folder in folders}, sys.stdout)
    elif sys.argv[1:2] == ["sign"]:
        json.dump(sign(json.load(sys.stdin)), sys.stdout)
    else:
        sys.exit(__doc__)


main()
