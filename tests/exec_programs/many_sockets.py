"""Receives one datagram on each of 300 sockets, with few descriptors; prints how many came, and how many control messages with them."""
import resource
import select
import socket

resource.setrlimit(resource.RLIMIT_NOFILE, (1024, 1024))
epoll, sockets = select.epoll(), {}
for _ in range(300):
    one = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    one.bind(("127.0.0.1", 0))
    sockets[one.fileno()] = one
    epoll.register(one, select.EPOLLIN)
sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
for one in sockets.values():
    sender.sendto(b"x", one.getsockname())
received, reports = 0, 0
while received < 300:
    for descriptor, _ in epoll.poll(20):
        _, control, _, _ = sockets[descriptor].recvmsg(10, 100)
        received += 1
        reports += len(control)
print(received, reports)
