"""The history on disk: blocks of columns in tiers, a journal of what no block has yet, annotations. One thread and one connection.

What is read goes to the journal within seconds, and every few minutes from there into a block of the first tier and, decimated, into the
open block of the second; a block that is full is decimated into the open block of the next tier, in the same transaction. So each moment
stands once among the blocks of a tier and the open ones below it, whatever the clock did and whenever the power went.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

from scheduler.protocol.annotation import Annotation
from scheduler.protocol.errors import MALFORMED, UserError
from scheduler.store.database import Database
from scheduler.store.migrate import sql
from scheduler.store.words import Damaged
from scheduler.telemetry.packed import EXACT, SHORT, pack, pack_table, unpack, unpack_table
from scheduler.telemetry.table import Table, by_step, join
from scheduler.telemetry.tiers import BLOCK_ROWS, DAY, LAST, TIERS

SCHEMA_VERSION = 1
BUSY_S = 5.0
"""Another program that holds the file is waited for this long, in the history's own thread."""
MOST_ANNOTATIONS = 20_000
_LONGEST = 2
"""A block covers so many times its rows at most: after a leap of the clock, or a week switched off, another is begun."""
_Block = tuple[int, int, int, bytes, bytes]
"""Id, tier, rows, times, counts."""


class Archive(Database):
    """Raises Damaged, too, where the file must be given up."""

    def __init__(self, file: Path) -> None:
        super().__init__(file, "history", "history_queries.sql", busy=BUSY_S, one_thread=False)

    def _prepare(self) -> None:
        self._db.execute("PRAGMA journal_mode = WAL")
        self._db.execute(
            "PRAGMA synchronous = NORMAL"
        )  # a power cut may cost the last seconds, never what was there before
        (version,) = self._db.execute("PRAGMA user_version").fetchone()
        if version > SCHEMA_VERSION:
            raise UserError(
                f"the history {self._file} was written by a newer GPU Deck; none is kept until you update it or move the file away"
            )
        if version == 0:
            self._db.executescript(
                f"BEGIN IMMEDIATE; {sql('history.sql')} PRAGMA user_version = {SCHEMA_VERSION}; COMMIT;"
            )
        self._expect("history.sql")

    # Readings in

    def journal(self, tables: Mapping[str, Table]) -> None:
        """Keep rows that are new, for each device, until they are in a block."""
        with self._transaction():
            self._db.executemany(
                self._q["add_journal"],
                [(device, pack_table(table)) for device, table in tables.items()],
            )

    def journalled(self) -> Iterator[tuple[str, Table]]:
        """What was journalled and is in no block yet, in the order it came; damaged pieces are left out."""
        with self._words():
            for device, data in self._db.execute(self._q["journal"]):
                try:
                    yield device, unpack_table(data)
                except (*MALFORMED, zlib.error):
                    continue

    def append(self, device: str, table: Table) -> None:
        """Put these rows into the tiers, and take the device's out of the journal."""
        with self._transaction():
            self._write(device, 0, table, rolled=True)
            self._roll(device, 1, by_step(table, TIERS[1].step))
            self._db.execute(self._q["clear_journal"], (device,))

    def _roll(self, device: str, tier: int, table: Table) -> None:
        """Add rows to the open block of a tier. One that is full goes to the next tier, too; so does one that is far from the new rows."""
        step = TIERS[tier].step
        if (
            block := self._db.execute(self._q["open_block"], (device, tier)).fetchone()
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

    def _close(self, device: str, tier: int, table: Table) -> None:
        self._write(device, tier, table, rolled=True)
        if tier < LAST:
            self._roll(device, tier + 1, by_step(table, TIERS[tier + 1].step))

    def _write(self, device: str, tier: int, table: Table, *, rolled: bool) -> None:
        if not len(table):
            return
        kind = _kind(tier)
        span, counts = (float(table.times[0]), float(table.times[-1])), pack(table.counts, SHORT)
        row = (device, tier, *span, len(table), rolled, pack(table.times, EXACT), counts)
        block = self._db.execute(self._q["add_block"], row).lastrowid
        self._db.executemany(
            self._q["add_column"],
            [(block, field, pack(values, kind)) for field, values in table.fields.items()],
        )

    def _drop(self, block: int) -> None:
        self._db.execute(self._q["drop_block"], (block,))
        self._db.execute(self._q["drop_columns"], (block,))

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
    ) -> Table:
        """Of one tier; with `finer`, also what the tiers below have not handed on yet. `fields` None: all."""
        with self._words():
            found = self._db.execute(self._q["blocks"], (device, tier, since, until)).fetchall()
            if finer:
                found += self._db.execute(
                    self._q["open_blocks"], (device, tier, since, until)
                ).fetchall()
            return join(self._read(found, fields), fields)

    def oldest(self, device: str, tier: int) -> float | None:
        """Time of the first row of a tier."""
        with self._words():
            (found,) = self._db.execute(self._q["oldest"], (device, tier)).fetchone()
        return None if found is None else float(found)

    def newest(self) -> dict[str, float]:
        """Time of the last row of each device."""
        with self._words():
            return dict(self._db.execute(self._q["newest"]).fetchall())

    def fields(self, device: str, since: float, until: float) -> list[str]:
        """All that was ever read of the device in that time."""
        with self._words():
            return [
                field for (field,) in self._db.execute(self._q["fields"], (device, since, until))
            ]

    def _read(self, blocks: Sequence[_Block], fields: Sequence[str] | None) -> list[Table]:
        numbers = _json([block[0] for block in blocks])
        if fields is None:
            found = self._db.execute(self._q["all_columns"], (numbers,))
        else:
            found = self._db.execute(self._q["columns"], (numbers, _json(fields)))
        of: dict[int, list[tuple[str, bytes]]] = {}
        for number, field, data in found:
            of.setdefault(number, []).append((field, data))
        return [_table(block, of.get(block[0], ())) for block in blocks]

    # Annotations

    def annotate(self, annotations: Sequence[Annotation]) -> None:
        """Keep them; one that is there by its time, kind, device and name is replaced."""
        with self._transaction():
            self._db.executemany(
                self._q["annotate"],
                [(a.time, a.until, a.kind, a.text, a.device, a.job, a.name) for a in annotations],
            )

    def annotations(self, since: float, until: float, limit: int) -> list[Annotation]:
        """The newest that touch this time, oldest first."""
        with self._words():
            rows = self._db.execute(self._q["annotations"], (until, since, limit)).fetchall()
        return [Annotation(*row) for row in reversed(rows)]

    def end_annotations(self, at: float) -> None:
        """Those that go on have ended: nobody knows what became of them while the daemon was away."""
        with self._transaction():
            self._db.execute(self._q["end_annotations"], (at,))

    # Bounds

    def prune(self, now: float, limits: Sequence[int]) -> list[int]:
        """Forget what is older than its tier keeps, and what a wrong clock dated into the future: at most so many blocks of each tier,
        and none that is still open.

        Returns how many went.
        """
        gone = []
        with self._transaction():
            for number, (tier, limit) in enumerate(zip(TIERS, limits, strict=True)):
                found = self._db.execute(
                    self._q["aged"], (number, now - tier.keep, now + DAY, limit)
                ).fetchall()
                gone.append(len(found))
                for (block,) in found:
                    self._drop(block)
            self._db.execute(self._q["prune_annotations"], (MOST_ANNOTATIONS,))
        return gone


def open_archive(file: Path, told: Callable[[str], None]) -> Archive:
    """The archive; one that is damaged is put aside, which `told` is told, and another begun. Raises UserError."""
    try:
        return Archive(file)
    except Damaged:
        return put_aside(file, told)


def put_aside(file: Path, told: Callable[[str], None]) -> Archive:
    """Begin another archive, and keep the damaged one beside it. Raises UserError."""
    aside = file.with_name(file.name + ".damaged")
    try:
        file.replace(aside)
        for rest in ("-wal", "-shm"):
            file.with_name(file.name + rest).unlink(missing_ok=True)
    except OSError as e:
        raise UserError(
            f"the history {file} is damaged and cannot be put aside: {e.strerror}"
        ) from e
    told(f"the history was damaged and begins anew; what there was is in {aside}")
    return Archive(file)


def _table(block: _Block, columns: Iterable[tuple[str, bytes]]) -> Table:
    _, tier, rows, times, counts = block
    unpacked = {field: unpack(data, _kind(tier), rows) for field, data in columns}
    return Table(unpack(times, EXACT, rows)[0], unpack(counts, SHORT, rows)[0], unpacked)


def _json(values: Sequence[int] | Sequence[str]) -> str:
    return msgspec.json.encode(values).decode()


def _kind(tier: int) -> str:
    return SHORT if tier else EXACT
