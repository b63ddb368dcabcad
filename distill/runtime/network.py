"""The network interface that processes on several machines use."""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Mapping, MutableMapping

GLOO = "GLOO_SOCKET_IFNAME"
"""Environment variable with the interface by which gloo connects processes."""
_OUTSIDE = "192.0.2.1"
"""An address that no machine has (RFC 5737): the way to it is the way to any other network."""


def name_interface(environment: MutableMapping[str, str]) -> None:
    """Tell gloo the interface by which this machine reaches the main process, if processes are on several machines and
    the user has named none.

    gloo would take the address of the machine's own name, which on many systems is that of the machine itself alone
    (127.0.1.1), so that no other one can connect.
    """
    if GLOO in environment or not _several_machines(environment):
        return
    for address in (environment.get("MASTER_ADDR", ""), _OUTSIDE):
        if found := interface_to(address):
            environment[GLOO] = found
            return


def _several_machines(environment: Mapping[str, str]) -> bool:
    return int(environment.get("WORLD_SIZE", "1")) > int(environment.get("LOCAL_WORLD_SIZE", "1"))


def interface_to(host: str) -> str | None:
    """The name of the interface by which this machine reaches a host, or which has its address; None if there is no
    way, or none that leaves this machine."""
    import psutil

    try:
        family, kind, protocol, _, place = socket.getaddrinfo(host, 9, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, kind, protocol) as probe:
            probe.connect(place)  # sends nothing
            own = ipaddress.ip_address(str(probe.getsockname()[0]).partition("%")[0])
    except OSError:
        return None
    if own.is_loopback:
        return None
    every = ((name, part.address.partition("%")[0]) for name, parts in psutil.net_if_addrs().items() for part in parts)
    return next((name for name, address in every if address == str(own)), None)
