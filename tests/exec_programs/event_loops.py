"""Sends datagrams by an event loop over each of Python's selectors; a socket that is reported as writable takes a datagram."""

import selectors
import socket

for kind in (selectors.PollSelector, selectors.SelectSelector, selectors.EpollSelector):
    peer = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    peer.bind(("127.0.0.1", 0))
    sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    sender.setblocking(False)
    sender.connect(peer.getsockname())
    sender.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1)
    sent, refused = 0, 0
    with kind() as selector:
        selector.register(sender, selectors.EVENT_READ | selectors.EVENT_WRITE)
        while sent < 8:
            for _, events in selector.select(100):
                assert events == selectors.EVENT_WRITE, events
                try:
                    sender.send(bytes(1000))
                    sent += 1
                except BlockingIOError:
                    refused += 1
    print(kind.__name__, sent, refused)
