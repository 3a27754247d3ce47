"""The connections of a run's nodes to their leader. Each message is a line of JSON.

Both ends prove that they know the run's key, and neither sends it. The leader sends a random text first. The node
answers with a digest of that text, of its own random text, and of its names. The leader answers with a digest of the
node's text. A stranger at the leader's port sees one random text. A stranger at the leader's address sees one digest,
which opens no connection.

A connection that breaks, or on which nothing comes for some seconds, shows that a node is gone.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import json
import queue
import secrets
import selectors
import socket
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Callable, Union

from spotkeep.runner.json_lines import JsonLines
from spotkeep_fleet.record import NODES_PORT

SILENT_SECONDS = 15.0
"""A node or a leader from which nothing comes for longer is gone."""
MOST_UNPROVEN = 32
"""The most connections at a time that have not proven yet that they are a node of the run."""
_BEAT_SECONDS = 3.0
_LOOK_SECONDS = 0.2
_HELLO_SECONDS = 10.0
_CONNECT_SECONDS = 5.0
_PROBE_SECONDS = 1.0
_TEXT_BYTES = 16
_BROKEN = (OSError, ValueError, KeyError, TypeError, RecursionError)


class StrangerError(Exception):
    """The other end of a connection is no node of this run."""


@dataclass(frozen=True)
class Joined:
    """A node has connected, with its instance id and its private address."""

    instance: str
    address: str


@dataclass(frozen=True)
class Lost:
    """The connection to an instance is over.

    Attributes:
        instance: The instance id.
        why: The reason, which people read.
        is_closed: True where the machine at the other end has closed it, False where it is silent or speaks nonsense.
    """

    instance: str
    why: str
    is_closed: bool = False


@dataclass(frozen=True)
class Said:
    """A message of a node or of the leader, with its instance id."""

    instance: str
    message: Mapping[str, Any]


Happened = Union[Joined, Lost, Said]


@dataclass(frozen=True)
class NodeNames:
    """The names by which a node shows that it belongs to a run.

    Attributes:
        run: The id of the run.
        attempt: The attempt of the run.
        launch: The id of the launch. Empty where there is none.
        instance: The id of the node.
        address: Its private address.
    """

    run: str
    attempt: int
    launch: str
    instance: str
    address: str

    def of_same_run(self, other: NodeNames) -> bool:
        """Say whether another node trains the same attempt."""
        return (self.run, self.attempt, self.launch) == (other.run, other.attempt, other.launch)


def proof(key: str, purpose: str, *texts: str) -> str:
    """Return the digest that shows the knowledge of a key.

    Args:
        key: The key of the run's nodes.
        purpose: The message in which it stands. A digest for one message is none for another.
        texts: The texts that it covers.
    """
    return hmac.new(key.encode(), json.dumps([purpose, *texts]).encode(), hashlib.sha256).hexdigest()


class _Member(JsonLines):
    """The leader's connection to a node, or to a stranger.

    Attributes:
        text: The random text that it was sent.
        names: The names of the node. None until it has proven that it is one.
        given_up: The reason why the leader waits for it no longer. None where it does.
    """

    def __init__(self, connection: socket.socket) -> None:
        super().__init__(connection)
        self.text = secrets.token_hex(_TEXT_BYTES)
        self.names: NodeNames | None = None
        self.given_up: str | None = None
        self.began_at = time.monotonic()


def listening(address: str, *, port: int = NODES_PORT) -> socket.socket:
    """Open the port at which the other nodes connect. They wait there until a `NodeServer` has it.

    Raises:
        OSError: The port cannot be opened.
    """
    return socket.create_server((address, port), backlog=MOST_UNPROVEN)


def is_refused(address: str, *, own: str, port: int = NODES_PORT) -> bool:
    """Say whether the machine at an address refuses connections, as no program listens there.

    Args:
        address: The address.
        own: The address of this node.
        port: The port there.
    """
    try:
        socket.create_connection((address, port), timeout=_PROBE_SECONDS, source_address=(own, 0)).close()
    except ConnectionRefusedError:
        return True
    except OSError:
        return False
    return False


class NodeServer:
    """The leader's connections to the other nodes, in a thread of its own.

    Attributes:
        happened: The arrivals, messages and losses, in their order.

    Args:
        names: The names of the leader.
        key: The key of the run's nodes.
        listener: The open port at which the others connect. The server closes it.
        silent_seconds: A node from which nothing comes for longer is gone.
    """

    def __init__(
        self, names: NodeNames, *, key: str, listener: socket.socket, silent_seconds: float = SILENT_SECONDS
    ) -> None:
        self._names, self._key = names, key
        self._silent_seconds = silent_seconds
        self._beat_seconds = min(_BEAT_SECONDS, silent_seconds / 4)
        self.happened: queue.SimpleQueue[Happened] = queue.SimpleQueue()
        self._members: list[_Member] = []
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        self._listener = listener
        self._thread = threading.Thread(target=self._work, name="nodes", daemon=True)
        self._thread.start()

    def send(self, message: Mapping[str, Any], *, to: str | None = None) -> None:
        """Send a message to the node with this id, or to all."""
        with self._lock:
            for member in self._members:
                if member.names is not None and to in (None, member.names.instance):
                    member.send(message)

    def give_up(self, instance: str, *, why: str) -> None:
        """End the connection to the node with this id. It is lost then, for this reason."""
        with self._lock:
            for member in self._members:
                if member.names is not None and member.names.instance == instance:
                    member.given_up = why

    def close(self) -> None:
        """End all connections, after the nodes have got all messages."""
        self._stopping.set()
        self._thread.join()

    def _work(self) -> None:
        sent_at = time.monotonic()
        with self._listener, selectors.DefaultSelector() as selector:
            selector.register(self._listener, selectors.EVENT_READ)
            while not self._stopping.is_set():
                for key, _ in selector.select(_LOOK_SECONDS):
                    if key.data is None:
                        self._accept(selector)
                    elif key.data in self._members:
                        self._read(key.data, selector)
                now = time.monotonic()
                self._drop_gone(selector, now=now)
                if now - sent_at >= self._beat_seconds:
                    sent_at = now
                    self.send({})
            for member in self._members:
                member.close()

    def _accept(self, selector: selectors.BaseSelector) -> None:
        with contextlib.suppress(OSError):
            member = _Member(self._listener.accept()[0])
            selector.register(member.connection, selectors.EVENT_READ, member)
            with self._lock:
                self._members.append(member)
            member.send({"text": member.text})
        unproven = [member for member in self._members if member.names is None]
        if len(unproven) > MOST_UNPROVEN:
            self._drop(unproven[0], selector, "")

    def _drop_gone(self, selector: selectors.BaseSelector, *, now: float) -> None:
        for member in tuple(self._members):
            if member.names is None and now - member.began_at >= _HELLO_SECONDS:
                self._drop(member, selector, "")
            elif member.given_up is not None:
                self._drop(member, selector, member.given_up)
            elif member.names is not None and now - member.heard_at > self._silent_seconds:
                self._drop(member, selector, f"nothing came from it for {self._silent_seconds:.0f} s")

    def _read(self, member: _Member, selector: selectors.BaseSelector) -> None:
        try:
            for message in member.messages():
                if member.names is None:
                    self._welcome(member, message, selector)
                elif message:
                    self.happened.put(Said(member.names.instance, message))
        except _BROKEN as error:
            self._drop(member, selector, str(error))

    def _welcome(self, member: _Member, message: Mapping[str, Any], selector: selectors.BaseSelector) -> None:
        """Take the first message of a connection.

        Raises:
            ValueError, KeyError, TypeError: It is none of a node of this run.
        """
        names = NodeNames(**message["names"])
        theirs = str(message["text"])
        expected = proof(self._key, "hello", member.text, theirs, json.dumps(message["names"], sort_keys=True))
        if not hmac.compare_digest(expected, str(message["proof"])) or not names.of_same_run(self._names):
            raise ValueError("it is no node of this run")
        for other in tuple(self._members):
            if other.names is not None and other.names.instance == names.instance:
                self._drop(other, selector, "it has connected again")
        with self._lock:
            member.names = names
            member.send({"proof": proof(self._key, "welcome", theirs), "instance": self._names.instance})
        self.happened.put(Joined(names.instance, names.address))

    def _drop(self, member: _Member, selector: selectors.BaseSelector, why: str) -> None:
        selector.unregister(member.connection)
        with self._lock:
            self._members.remove(member)
            member.connection.close()
        if member.names is not None:
            self.happened.put(Lost(member.names.instance, why))


class LeaderConnection:
    """A node's connection to the leader. A thread of its own reads it.

    Attributes:
        leader: The id of the leader.
        happened: The messages, and the end of the connection.

    Args:
        names: The names of this node.
        address: The address of the leader.
        key: The key of the run's nodes.
        port: The port there.
        silent_seconds: A leader from which nothing comes for longer is gone.
        sign_of_life: The function that gives the message by which the leader hears again and again that this node is
            there. It is called in a thread of its own. An empty message is enough.

    Raises:
        OSError: The leader cannot be reached, or it does not answer.
        StrangerError: The program at that address is no leader of this run.
    """

    def __init__(
        self,
        names: NodeNames,
        *,
        address: str,
        key: str,
        port: int = NODES_PORT,
        silent_seconds: float = SILENT_SECONDS,
        sign_of_life: Callable[[], Mapping[str, Any]] = dict,
    ) -> None:
        self.happened: queue.SimpleQueue[Happened] = queue.SimpleQueue()
        self._silent_seconds, self._sign_of_life = silent_seconds, sign_of_life
        connection = socket.create_connection(
            (address, port), timeout=_CONNECT_SECONDS, source_address=(names.address, 0)
        )
        self._lines = JsonLines(connection)
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        try:
            self.leader = self._introduce(names, key)
        except BaseException as error:
            connection.close()
            if isinstance(error, (ValueError, KeyError, TypeError, RecursionError)):
                raise StrangerError(f"the program at {address} is no leader of this run: {error}") from error
            raise
        connection.settimeout(_LOOK_SECONDS)
        self._threads = [
            threading.Thread(target=target, name="leader", daemon=True) for target in (self._read, self._beat)
        ]
        for thread in self._threads:
            thread.start()

    def send(self, message: Mapping[str, Any]) -> None:
        """Send a message to the leader."""
        with self._lock:
            self._lines.send(message)

    def close(self) -> None:
        """End the connection, after the leader has got all messages."""
        self._stopping.set()
        for thread in self._threads:
            thread.join()
        self._lines.close()

    def _introduce(self, names: NodeNames, key: str) -> str:
        """Prove that this is a node of the run, and that the other end is one. Return the id of the leader."""
        given = self._awaited()
        own = secrets.token_hex(_TEXT_BYTES)
        document = dict(vars(names))
        digest = proof(key, "hello", str(given["text"]), own, json.dumps(document, sort_keys=True))
        self._lines.send({"names": document, "text": own, "proof": digest})
        answer = self._awaited()
        if not hmac.compare_digest(proof(key, "welcome", own), str(answer["proof"])):
            raise ValueError("it does not know the key of the run's nodes")
        return str(answer["instance"])

    def _awaited(self) -> Mapping[str, Any]:
        for _ in range(int(_HELLO_SECONDS)):
            for message in self._lines.messages():
                if message:
                    return message
        raise ConnectionResetError("it does not answer")

    def _read(self) -> None:
        lost = None
        while lost is None:
            lost = Lost(self.leader, "this node has closed it") if self._stopping.is_set() else self._received()
        if not self._stopping.is_set():
            with contextlib.suppress(OSError):
                # The leader waits for the end of this side, and the node may take the loss in much later.
                self._lines.connection.shutdown(socket.SHUT_RDWR)
        self.happened.put(lost)

    def _received(self) -> Lost | None:
        """Take in what has come. Return the end of the connection, or None."""
        try:
            for message in self._lines.messages():
                if message:
                    self.happened.put(Said(self.leader, message))
        except (TimeoutError, socket.timeout):
            if time.monotonic() - self._lines.heard_at > self._silent_seconds:
                return Lost(self.leader, f"nothing came from it for {self._silent_seconds:.0f} s")
        except _BROKEN as error:
            return Lost(self.leader, str(error), is_closed=isinstance(error, ConnectionResetError))
        return None

    def _beat(self) -> None:
        while not self._stopping.wait(min(_BEAT_SECONDS, self._silent_seconds / 4)):
            self.send(self._sign_of_life())
