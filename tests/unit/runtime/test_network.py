"""The network interface that is set for gloo, torch's backend for processes on CPUs, found on this machine."""

from __future__ import annotations

import socket

import psutil
import pytest

from distill.runtime import network
from distill.runtime.network import GLOO, interface_to, name_interface

OWN = [
    (name, part.address)
    for name, parts in psutil.net_if_addrs().items()
    for part in parts
    if part.family == socket.AF_INET and not part.address.startswith("127.")
]
TWO_MACHINES = {"WORLD_SIZE": "4", "LOCAL_WORLD_SIZE": "2"}


@pytest.mark.parametrize(("name", "address"), OWN)
def test_an_own_address_is_that_of_its_interface(name: str, address: str) -> None:
    assert interface_to(address) == name
    environment = TWO_MACHINES | {"MASTER_ADDR": address}
    name_interface(environment)
    assert environment[GLOO] == name


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "::1", "no.such.host.invalid"])
def test_no_interface_leaves_this_machine_for_itself(host: str) -> None:
    assert interface_to(host) is None


def test_a_name_that_means_this_machine_gives_the_way_to_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """As where /etc/hosts has 127.0.1.1 for the machine's own name."""
    monkeypatch.setattr(network, "interface_to", lambda host: None if host == "localhost" else "eth7")
    environment = TWO_MACHINES | {"MASTER_ADDR": "localhost"}
    name_interface(environment)
    assert environment[GLOO] == "eth7"


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "10.0.0.1"},
        TWO_MACHINES | {"MASTER_ADDR": "10.0.0.1", GLOO: "ib0"},
    ],
)
def test_one_machine_and_what_the_user_named_are_left(given: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(network, "interface_to", lambda host: "eth7")
    environment = dict(given)
    name_interface(environment)
    assert environment == given
