"""Keep the history on disk: blocks of columns in tiers, a journal of new rows, and annotations.

Readings go to the journal within seconds. Every few minutes they move from there into a block of
the first tier and, decimated, into the open block of the second. A full block is decimated into the
open block of the next tier, in the same transaction. So each moment is stored once among the blocks
of a tier and the open ones below it, whatever the clock did and whenever the power failed.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

from gpudeck.language.text import phrase, read_text, stored_text
from gpudeck.scheduler.protocol.annotation import Annotation
from gpudeck.scheduler.protocol.errors import MALFORMED, UserError
from gpudeck.scheduler.store.database import Database
from gpudeck.scheduler.store.migrate import sql
from gpudeck.scheduler.store.packing import EXACT, SHORT, pack, pack_table, unpack, unpack_table
from gpudeck.scheduler.telemetry.history_table import (
    BLOCK_ROWS,
    DAY,
    LAST,
    TIERS,
    HistoryTable,
    by_step,
    join,
)

SCHEMA_VERSION = 1
BUSY_S = 5.0
"""Seconds to wait while another program locks the file, in the history's own thread."""
MOST_ANNOTATIONS = 20_000
_LONGEST = 2
"""A block spans at most so many times its rows: a leap of the clock, or a pause, begins another."""
_Block = tuple[int, int, int, bytes, bytes]
"""The id, tier, rows, times and counts of a block."""


class Archive(Database):
    """Store the history of all devices. Raises Damaged where the file must be given up."""

    def __init__(self, file: Path) -> None:
        super().__init__(file, "history_queries.sql", busy=BUSY_S, one_thread=False)

    def _prepare(self) -> None:
        self.connection.execute("PRAGMA journal_mode = WAL")
        # a power cut may cost the last seconds, never older history
        self.connection.execute("PRAGMA synchronous = NORMAL")
        (version,) = self.connection.execute("PRAGMA user_version").fetchone()
        if version > SCHEMA_VERSION:
            raise UserError(
                phrase(
                    "the history {file} was written by a newer GPU Deck; nothing is "
                    "recorded until you update GPU Deck or move the file away",
                    file=str(self._file),
                )
            )
        if version == 0:
            self.connection.executescript(
                f"BEGIN IMMEDIATE; {sql('history.sql')} "
                f"PRAGMA user_version = {SCHEMA_VERSION}; COMMIT;"
            )
        self._expect("history.sql")

    # Readings in

    def journal(self, tables: Mapping[str, HistoryTable]) -> None:
        """Keep the new rows of each device until they are in a block."""
        with self._transaction():
            self.connection.executemany(
                self._q["add_journal"],
                [(device, pack_table(table)) for device, table in tables.items()],
            )

    def journalled(self) -> Iterator[tuple[str, HistoryTable]]:
        """Yield the journal, oldest first; damaged pieces are left out."""
        with self._translated():
            for device, data in self.connection.execute(self._q["journal"]):
                try:
                    yield device, unpack_table(data)
                except (*MALFORMED, zlib.error):
                    continue

    def append(self, device: str, table: HistoryTable) -> None:
        """Add rows to the tiers, and clear the device's journal."""
        with self._transaction():
            self._write(device, 0, table, rolled=True)
            self._roll(device, 1, by_step(table, TIERS[1].step))
            self.connection.execute(self._q["clear_journal"], (device,))

    def finish(self, device: str) -> None:
        """Close the open blocks of a device that is not read again, so that they expire."""
        with self._transaction():
            for tier in range(1, LAST + 1):
                block = self.connection.execute(self._q["open_block"], (device, tier)).fetchone()
                if block is not None:
                    (known,) = self._read([block], None)
                    self._drop(block[0])
                    self._close(device, tier, known)

    def _roll(self, device: str, tier: int, table: HistoryTable) -> None:
        """Add rows to the open block of a tier; close it where it is full, or far from the new
        rows."""
        step = TIERS[tier].step
        if (
            block := self.connection.execute(self._q["open_block"], (device, tier)).fetchone()
        ) is not None:
            (known,) = self._read([block], None)
            both = by_step(join((known, table)), step)
            self._drop(block[0])
            if both.times[-1] - both.times[0] > _LONGEST * step * BLOCK_ROWS:
                self._close(device, tier, known)
            else:
                table = both
        if len(table) >= BLOCK_ROWS:
            self._close(device, tier, table)
        else:
            self._write(device, tier, table, rolled=False)

    def _close(self, device: str, tier: int, table: HistoryTable) -> None:
        self._write(device, tier, table, rolled=True)
        if tier < LAST:
            self._roll(device, tier + 1, by_step(table, TIERS[tier + 1].step))

    def _write(self, device: str, tier: int, table: HistoryTable, *, rolled: bool) -> None:
        if not len(table):
            return
        kind = _kind(tier)
        span, counts = (float(table.times[0]), float(table.times[-1])), pack(table.counts, SHORT)
        row = (device, tier, *span, len(table), rolled, pack(table.times, EXACT), counts)
        block = self.connection.execute(self._q["add_block"], row).lastrowid
        self.connection.executemany(
            self._q["add_column"],
            [(block, field, pack(values, kind)) for field, values in table.fields.items()],
        )

    def _drop(self, block: int) -> None:
        self.connection.execute(self._q["drop_block"], (block,))
        self.connection.execute(self._q["drop_columns"], (block,))

    # Rows out

    def rows(
        self,
        device: str,
        fields: Sequence[str] | None,
        tier: int,
        since: float,
        until: float,
        *,
        finer: bool = False,
    ) -> HistoryTable:
        """Return the rows of one tier.

        Args:
            device: The id of the device.
            fields: The fields to return; None: all.
            tier: The number of the tier.
            since: The first moment, seconds since the epoch.
            until: The last moment.
            finer: Include the rows that the tiers below have not passed on yet.
        """
        with self._translated():
            found = self.connection.execute(
                self._q["blocks"], (device, tier, since, until)
            ).fetchall()
            if finer:
                found += self.connection.execute(
                    self._q["open_blocks"], (device, tier, since, until)
                ).fetchall()
            return join(self._read(found, fields), fields)

    def oldest(self, device: str, tier: int) -> float | None:
        """Return the time of the first row of a tier, or None where it is empty."""
        with self._translated():
            (found,) = self.connection.execute(self._q["oldest"], (device, tier)).fetchone()
        return None if found is None else float(found)

    def newest(self) -> dict[str, float]:
        """Return the time of the last row of each device."""
        with self._translated():
            return dict(self.connection.execute(self._q["newest"]).fetchall())

    def last(self, device: str) -> float | None:
        """Return the time of the last row of a device, or None where there is none."""
        with self._translated():
            (found,) = self.connection.execute(self._q["last"], (device,)).fetchone()
        return None if found is None else float(found)

    def between(
        self, first: str, end: str, since: float, until: float
    ) -> dict[str, tuple[float, float]]:
        """Return the devices from `first` up to, not including, `end`, in the order of names.

        Returns:
            Of each the first and the last moment of its rows that overlap the time.
        """
        with self._translated():
            rows = self.connection.execute(self._q["between"], (first, end, since, until))
            return {device: (begin, last) for device, begin, last in rows}

    def unfinished(self) -> list[str]:
        """Return the devices with open blocks."""
        with self._translated():
            return [device for (device,) in self.connection.execute(self._q["unfinished"])]

    def fields(self, device: str, since: float, until: float) -> list[str]:
        """Return the fields that were read of the device in that time."""
        with self._translated():
            return [
                field
                for (field,) in self.connection.execute(self._q["fields"], (device, since, until))
            ]

    def _read(self, blocks: Sequence[_Block], fields: Sequence[str] | None) -> list[HistoryTable]:
        numbers = _json([block[0] for block in blocks])
        if fields is None:
            found = self.connection.execute(self._q["all_columns"], (numbers,))
        else:
            found = self.connection.execute(self._q["columns"], (numbers, _json(fields)))
        of: dict[int, list[tuple[str, bytes]]] = {}
        for number, field, data in found:
            of.setdefault(number, []).append((field, data))
        return [_table(block, of.get(block[0], ())) for block in blocks]

    # Annotations

    def annotate(self, annotations: Sequence[Annotation]) -> None:
        """Keep annotations; one with the same time, kind, device and name is replaced."""
        with self._transaction():
            self.connection.executemany(
                self._q["annotate"],
                [
                    (a.time, a.until, a.kind, stored_text(a.text), a.device, a.job, a.name)
                    for a in annotations
                ],
            )

    def annotations(self, since: float, until: float, limit: int) -> list[Annotation]:
        """Return the newest that overlap this time, oldest first."""
        with self._translated():
            rows = self.connection.execute(self._q["annotations"], (until, since, limit)).fetchall()
        return [
            Annotation(time, until, kind, read_text(text), *rest)
            for time, until, kind, text, *rest in reversed(rows)
        ]

    def end_annotations(self, at: float) -> None:
        """End the open annotations: nothing was observed while the daemon was away."""
        with self._transaction():
            self.connection.execute(self._q["end_annotations"], (at,))

    # Bounds

    def prune(self, now: float, limits: Sequence[int]) -> list[int]:
        """Delete closed blocks that are too old, or that a wrong clock dated into the future.

        Args:
            now: Seconds since the epoch.
            limits: The most blocks to delete, for each tier.

        Returns:
            The number of blocks deleted from each tier.
        """
        gone = []
        with self._transaction():
            for number, (tier, limit) in enumerate(zip(TIERS, limits, strict=True)):
                found = self.connection.execute(
                    self._q["aged"], (number, now - tier.keep, now + DAY, limit)
                ).fetchall()
                gone.append(len(found))
                for (block,) in found:
                    self._drop(block)
            self.connection.execute(self._q["prune_annotations"], (MOST_ANNOTATIONS,))
        return gone


def replace_damaged(file: Path, report: Callable[[str], None]) -> Archive:
    """Begin a new archive, keep the damaged one beside it, and report that. Raises UserError."""
    aside = file.with_name(file.name + ".damaged")
    try:
        file.replace(aside)
        for rest in ("-wal", "-shm"):
            file.with_name(file.name + rest).unlink(missing_ok=True)
    except OSError as e:
        raise UserError(
            phrase(
                "the history {file} is damaged and cannot be renamed: {error}",
                file=str(file),
                error=str(e.strerror),
            )
        ) from e
    report(f"the history was damaged and starts anew; the old file is {aside}")
    return Archive(file)


def _table(block: _Block, columns: Iterable[tuple[str, bytes]]) -> HistoryTable:
    _, tier, rows, times, counts = block
    unpacked = {field: unpack(data, _kind(tier), rows) for field, data in columns}
    return HistoryTable(unpack(times, EXACT, rows)[0], unpack(counts, SHORT, rows)[0], unpacked)


def _json(values: Sequence[int] | Sequence[str]) -> str:
    return msgspec.json.encode(values).decode()


def _kind(tier: int) -> str:
    return SHORT if tier else EXACT
