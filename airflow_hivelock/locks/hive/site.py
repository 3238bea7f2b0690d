"""Reads the settings in a ``hive-site.xml`` as Hadoop's ``Configuration`` does, with the line of each.

The last of two values counts, unless the earlier one is ``final``. ``${name}`` is replaced by another property of the
file. These are refused:

- a document type, because it can define entities;
- ``xi:include``;
- a value that only Hive's own process knows, such as ``${env.HOME}`` or ``${user.name}``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn
from xml.parsers import expat

from airflow_hivelock.locks.errors import InvalidRequest
from airflow_hivelock.locks.hive.properties import DEFAULTS, URIS

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

MOST_BYTES = 4_000_000
"""Ten times the size of Hive's own template, which contains all properties."""

MOST_CHARACTERS = 10_000
"""The longest value after its variables are replaced."""

MOST_VARIABLES = 20
"""``Configuration.MAX_SUBST``."""

_VARIABLE = re.compile(r"\$\{([^}$ ]+)\}")


@dataclass(frozen=True)
class Property:
    """A property. Its value can contain variables."""

    value: str
    line: int
    final: bool = False


@dataclass(frozen=True)
class Site:
    """The properties in a file.

    :param file: the name of the file, for messages.
    """

    file: str
    properties: Mapping[str, Property]

    @classmethod
    def read(cls, file: str) -> Site:
        """Read a file.

        :raises InvalidRequest: the file cannot be read, or it is not a configuration of Hadoop.
        """
        try:
            if not Path(file).is_file():  # opening a pipe would wait until another process writes to it
                raise OSError("it is no regular file" if Path(file).exists() else "no such file")
            with Path(file).open("rb") as opened:
                data = opened.read(MOST_BYTES + 1)
        except (OSError, ValueError) as error:
            raise InvalidRequest(
                f"hive_site={file!r:.200} cannot be read ({error}). Name a hive-site.xml on this host"
            ) from error
        return cls.parse(data, file)

    @classmethod
    def parse(cls, data: bytes, file: str = "hive-site.xml") -> Site:
        """Parse the contents of a file.

        :raises InvalidRequest: they are not a configuration of Hadoop.
        """
        if len(data) > MOST_BYTES:
            raise InvalidRequest(f"{file} has more than {MOST_BYTES:,} bytes, so it is not a hive-site.xml")
        return cls(file, _Reader(file).read(data))

    @property
    def settings_of(self) -> str:
        """See :class:`.coverage.Hive`."""
        return self.file

    def settings(self, wanted: Iterable[str]) -> dict[str, str | None]:
        """See :class:`.coverage.Hive`. A setting that is not in the file has Hive's default."""
        return {name: self.value(name) or DEFAULTS.get(name) for name in wanted}

    def value(self, name: str) -> str | None:
        """Return the value of *name* in the file, with its variables replaced. None: the file has none.

        :raises InvalidRequest: the value has a variable that only Hive's own process knows.
        """
        found = self.find(name)
        return None if found is None else self._resolved(name, found).strip() or None

    def where(self, name: str) -> str:
        """Return the place of *name*: the file and the line."""
        found = self.find(name)
        return f"{self.file}:{found.line}" if found else "Hive's default"

    def find(self, name: str) -> Property | None:
        """Return the property *name* of the file. None: the file does not have it."""
        return self.properties.get(_of_metastore(name)) or self.properties.get(name)

    def _resolved(self, name: str, found: Property) -> str:
        text = found.value
        for _ in range(MOST_VARIABLES):
            if len(text) > MOST_CHARACTERS:
                break
            if not (variable := _VARIABLE.search(text)):
                return text
            inner = self.properties.get(variable[1])
            if inner is None:
                raise InvalidRequest(
                    f"{name} in {self.file}:{found.line} contains {variable[0]!r:.80}, which only Hive's own process knows. "
                    "Replace it by its value there, or set it in the connection or the URL"
                )
            text = text[: variable.start()] + inner.value + text[variable.end() :]
        raise InvalidRequest(
            f"{name} in {self.file}:{found.line} is too long, or its variables contain each other without end. Correct it"
        )


def _of_metastore(name: str) -> str:
    """Return the newer name of a metastore's setting. It has precedence over the older name (``MetastoreConf``)."""
    return "metastore.thrift.uris" if name == URIS else name.replace("hive.metastore.", "metastore.")


class _Reader:
    """Collects properties while expat reads the file. It builds no tree, so a hostile file cannot use much memory."""

    def __init__(self, file: str) -> None:
        self._file = file
        self._parser = expat.ParserCreate()
        self._parser.buffer_text = True
        self._parser.StartElementHandler = self._start
        self._parser.EndElementHandler = self._end
        self._parser.CharacterDataHandler = self._text
        self._parser.StartDoctypeDeclHandler = self._doctype
        self._depth = 0
        self._within = False
        self._fields: dict[str, str] = {}
        self._line = 0
        self._part: list[str] = []
        self._found: dict[str, Property] = {}

    def read(self, data: bytes) -> dict[str, Property]:
        try:
            self._parser.Parse(data, True)
        except InvalidRequest:
            raise
        except (expat.ExpatError, ValueError, LookupError) as error:  # an unknown encoding raises one of the last two
            raise InvalidRequest(f"{self._file} cannot be read as XML: {error}") from error
        return self._found

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        self._depth += 1
        if self._depth == 1 and name != "configuration":
            self._refuse(f"its first element is {name!r:.40}, but must be configuration")
        if name.endswith(":include") or name == "include":
            self._refuse(
                f"it includes {attributes.get('href', '')!r:.80}, which hivelock does not read. Copy its properties into this file"
            )
        if name == "property":
            self._within, self._fields, self._line = True, dict(attributes), self._parser.CurrentLineNumber
        self._part = []

    def _text(self, text: str) -> None:
        self._part.append(text)

    def _end(self, name: str) -> None:
        self._depth -= 1
        if name == "property":
            self._within = False
            self._keep()
        elif self._within and name in ("name", "value", "final"):
            self._fields[name] = "".join(self._part)

    def _keep(self) -> None:
        name, value = self._fields.get("name", "").strip(), self._fields.get("value")
        if not name or value is None:
            return
        final = self._fields.get("final", "").strip() == "true"
        before = self._found.get(name)
        if before is None or not before.final:
            self._found[name] = Property(value, self._line, final)
        elif final:
            self._found[name] = replace(before, final=True)

    def _doctype(self, *_: object) -> None:
        self._refuse("it has a document type, which a file of Hadoop does not have. Remove the document type")

    def _refuse(self, why: str) -> NoReturn:
        raise InvalidRequest(f"{self._file}:{self._parser.CurrentLineNumber}: {why}")
