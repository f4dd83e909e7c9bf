"""How fast a link really is: a few seconds of TCP both ways at once, timed where it arrives.

Run as a plain script inside two namespaces: `probe.py listen|connect ADDRESS WARMUP_S MEASURE_S`. It prints
the bytes per second that this end received, headers not counted. It imports nothing but the standard library,
so it starts in a moment.
"""

import socket
import struct
import sys
import threading
import time

PORT = 29400
CHUNK_BYTES = 256 * 1024
_CONNECT_S = 10.0


def _open(role: str, host: str) -> socket.socket:
    """The one connection of the probe, from either end."""
    if role == "listen":
        with socket.create_server((host, PORT)) as server:
            server.settimeout(_CONNECT_S)
            connection, _ = server.accept()
        return connection
    deadline = time.monotonic() + _CONNECT_S
    while True:
        try:
            return socket.create_connection((host, PORT), timeout=_CONNECT_S)
        except ConnectionRefusedError:  # the listener has not started yet
            if time.monotonic() > deadline:
                raise
            time.sleep(0.02)


def _send_until_closed(connection: socket.socket) -> None:
    """Keep the outgoing direction full, as an all-to-all exchange would."""
    chunk = bytes(CHUNK_BYTES)
    try:
        while True:
            connection.sendall(chunk)
    except OSError:  # the end of the probe closes the socket under this thread
        return


def measure(connection: socket.socket, warmup_s: float, measure_s: float) -> float:
    """Bytes per second received after the warm-up, which swallows slow start and the full token buckets."""
    buffer = bytearray(CHUNK_BYTES)
    total, first_bytes, first_s = 0, 0, 0.0
    start = time.monotonic()
    threading.Thread(target=_send_until_closed, args=(connection,), daemon=True).start()
    while True:
        got = connection.recv_into(buffer)
        if got == 0:
            raise ConnectionError("the other end of the probe closed early")
        total += got
        now = time.monotonic()
        if not first_s and now - start >= warmup_s:
            first_bytes, first_s = total, now
        if first_s and now - first_s >= measure_s:
            return (total - first_bytes) / (now - first_s)


def main(role: str, host: str, warmup_s: str, measure_s: str) -> None:
    """Connect, measure, print; the connection is reset at the end, so that no queue is left to drain."""
    connection = _open(role, host)
    connection.settimeout(30.0)
    print(measure(connection, float(warmup_s), float(measure_s)), flush=True)
    time.sleep(0.3)  # the other end started a moment later and must finish on a full link
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
