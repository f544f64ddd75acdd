"""The lag of a contender's event loop, measured from outside: the time of a small GET during the load."""

import asyncio
import re
from time import perf_counter

LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)


async def pulse(port: int, path: str, every: float, lags: list[float]) -> None:
    """Send a GET every few seconds on one connection until cancelled; append the time of each answer to `lags`.

    A beat that comes late because the one before is still out counts from when it was due: a stall is
    charged in full. Raises OSError or EOFError when the connection ends, ValueError for an odd answer.
    """
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        due = perf_counter()
        while True:
            early = due - perf_counter()
            if early > 0:
                await asyncio.sleep(early)
            start = perf_counter() if early > 0 else due
            writer.write(f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode())
            head = await reader.readuntil(b"\r\n\r\n")
            length = LENGTH.search(head)
            if not head.startswith(b"HTTP/1.1 200") or length is None:
                raise ValueError(f"{path}: {head[:100]!r}")
            await reader.readexactly(int(length[1]))
            lags.append(perf_counter() - start)
            due += every
    finally:
        writer.close()
