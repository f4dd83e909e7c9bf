"""How fast a link really is: a few seconds of TCP both ways at once, timed where it arrives.

Run as a plain script inside two namespaces: `probe.py listen|connect ADDRESS WARMUP_S MEASURE_S`. It prints
the bytes per second that this end received, headers not counted. It imports nothing but the standard library,
so it starts in a moment.
"""

import socket
import statistics
import struct
import sys
import threading
import time

PORT = 29400
CHUNK_BYTES = 256 * 1024
WINDOWS = 5
_CONNECT_S = 10.0
_SILENCE_S = 30.0


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
    """Bytes per second received after the warm-up, which swallows slow start and the full token buckets.

    The median over WINDOWS equal stretches of `measure_s`: one lost packet or one late wake-up of this
    process stops a single stretch, and is no property of the link.
    """
    buffer = bytearray(CHUNK_BYTES)
    speeds: list[float] = []
    total = 0
    since = time.monotonic()
    length = warmup_s
    warm = False
    threading.Thread(target=_send_until_closed, args=(connection,), daemon=True).start()
    while len(speeds) < WINDOWS:
        got = connection.recv_into(buffer)
        if got == 0:
            raise ConnectionError("the other end of the probe closed early")
        total += got
        now = time.monotonic()
        if now - since >= length:
            if warm:
                speeds.append(total / (now - since))
            warm, length = True, measure_s / WINDOWS
            total, since = 0, now
    return statistics.median(speeds)


def main(role: str, host: str, warmup_s: str, measure_s: str) -> None:
    """Connect, measure, print, and keep both directions full until killed: the other end may need longer."""
    connection = _open(role, host)
    connection.settimeout(_SILENCE_S)
    # Whoever ends resets the connection, so that the queues hold nothing of the probe later.
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    print(measure(connection, float(warmup_s), float(measure_s)), flush=True)
    buffer = bytearray(CHUNK_BYTES)
    while connection.recv_into(buffer):
        pass


if __name__ == "__main__":
    main(*sys.argv[1:])
