"""Later versions of Fairturn, made from this one: copies of the package with a changed schema."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import fairturn
from fairturn.backends.schema import GENERATION

PACKAGE = Path(fairturn.__file__).parent

# What they run: a call to a function of this program, named on the command line.
PROGRAM = """
import json, sys
import fairturn

def migrate(url):
    with fairturn.connect(url) as db:
        return db.migrate()

def send(url, first, count):
    with fairturn.connect(url) as db:
        for number in range(first, first + count):
            db.queue("rolling").send(number, channel=f"c{number % 3}")

def consume(url):
    got = []
    with fairturn.connect(url) as db:
        while messages := db.queue("rolling").receive(10):
            got += [message.body for message in messages]
            db.queue("rolling").ack(messages)
    return got

name, *arguments = json.loads(sys.argv[1])
print(json.dumps(globals()[name](*arguments)))
"""


class Version:
    """A copy of the package in a directory of its own, run in processes of its own."""

    def __init__(self, directory: Path, generation: int, oldest_client: int) -> None:
        self.directory = directory
        self.package = directory / "fairturn"
        shutil.copytree(PACKAGE, self.package, ignore=shutil.ignore_patterns("__pycache__"))
        schema = "backends/schema.py"
        self.edit(schema, r"^GENERATION = \d+", f"GENERATION = {generation}")
        self.edit(schema, r"^OLDEST_CLIENT = \d+", f"OLDEST_CLIENT = {oldest_client}")

    def edit(self, file: str, pattern: str, replacement: str) -> None:
        path = self.package / file
        text, count = re.subn(pattern, replacement, path.read_text("utf-8"), flags=re.M | re.S)
        assert count, f"nothing to change in {file}: {pattern}"
        path.write_text(text, "utf-8")

    def add(self, file: str, text: str) -> None:
        (self.package / file).write_text(text, "utf-8")

    def run(self, *call: Any) -> Any:
        """Call a function of PROGRAM in a process of this version."""
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM, json.dumps(call)],
            env={**os.environ, "PYTHONPATH": str(self.directory)},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)


def second(directory: Path) -> Version:
    """The next version: columns more, an entry point with other arguments (under a new name; the
    old one stays), and internal routines under new names. It serves the clients of today."""
    version = Version(directory, GENERATION + 1, GENERATION)
    folder = "backends/postgres/schema"
    version.add(
        f"{folder}/tables/900_colour.sql",
        "ALTER TABLE fairturn.queue ADD COLUMN colour text;\n"
        "ALTER TABLE fairturn.message ADD COLUMN colour text;\n",
    )
    arguments = "p_queue text, p_ids bigint[], p_tokens bigint[], p_strict boolean, p_now bigint"
    version.edit(
        f"{folder}/routines/verbs.sql",
        rf"FUNCTION fairturn\.ack_rows\({re.escape(arguments)}\)(.*?\nBEGIN\n)",
        rf"FUNCTION fairturn.ack_rows_2(p_colour text, {arguments})\1"
        "  UPDATE fairturn.queue SET colour = p_colour WHERE name = p_queue AND colour IS NULL\n"
        "    AND p_colour IS NOT NULL;\n",
    )
    version.add(
        f"{folder}/routines/compat_{GENERATION}.sql",
        f"CREATE OR REPLACE FUNCTION fairturn.ack_rows({arguments}) RETURNS bigint[]\n"
        "LANGUAGE sql AS $$\n"
        "  SELECT fairturn.ack_rows_2(NULL, p_queue, p_ids, p_tokens, p_strict, p_now) $$;\n",
    )
    version.edit(
        "backends/postgres/statements.sql", r"fairturn\.ack_rows\(", "fairturn.ack_rows_2('red', "
    )
    for path in sorted((version.package / folder / "routines").glob("*.sql")):
        text = re.sub(
            r"\bfairturn\.(queue_row|wake|fold|ready_versions|tell)\(",
            r"fairturn.\1_2(",
            path.read_text(),
        )
        path.write_text(text)

    folder = "backends/mysql/schema"
    version.add(
        f"{folder}/tables/900_colour.sql",
        "ALTER TABLE fairturn_queue ADD COLUMN IF NOT EXISTS colour VARBINARY(16) NULL;\n"
        "ALTER TABLE fairturn_message ADD COLUMN IF NOT EXISTS colour VARBINARY(16) NULL;\n",
    )
    verbs = (version.package / folder / "routines/verbs.sql").read_text("utf-8")
    [old] = re.findall(r"^CREATE PROCEDURE fairturn_ack\(.*?^END //\n", verbs, re.M | re.S)
    version.add(
        f"{folder}/routines/compat_{GENERATION}.sql", f"DELIMITER //\n\n{old}\nDELIMITER ;\n"
    )
    new = old.replace("fairturn_ack(\n  IN", "fairturn_ack_2(\n  IN p_colour VARBINARY(16), IN")
    new = new.replace(
        "  IF v_own THEN COMMIT",
        "  UPDATE fairturn_queue SET colour = p_colour WHERE id = v_queue_id AND colour IS NULL;\n"
        "  IF v_own THEN COMMIT",
    )
    assert new.count("p_colour") == 2
    (version.package / folder / "routines/verbs.sql").write_text(verbs.replace(old, new))
    version.edit(
        "backends/mysql/backend.py",
        r"    def apply_verb\(.*?-> Op\[Applied\]:\n",
        r"\g<0>        if verb.name == 'ack':\n"
        "            options = given(strict=int(strict), now=now)\n"
        "            params = (b'red', queue.encode(), lease_list(sorted(leases)), options)\n"
        "            [row] = yield self.call('ack_2', 4), params\n"
        "            return Applied(json.loads(row[0]))\n",
    )
    for path in sorted((version.package / folder / "routines").glob("*.sql")):
        text = re.sub(
            r"\bfairturn_(open|undo|choose|walk|row)_\(", r"fairturn_\1_2_(", path.read_text()
        )
        path.write_text(text)
    return version


def third(directory: Path) -> Version:
    """The version after that: the entry points of today are gone, and so are today's clients."""
    version = second(directory)
    schema = "backends/schema.py"
    version.edit(schema, r"^GENERATION = \d+", f"GENERATION = {GENERATION + 2}")
    version.edit(schema, r"^OLDEST_CLIENT = \d+", f"OLDEST_CLIENT = {GENERATION + 1}")
    for folder in ("postgres", "mysql"):
        path = version.package / f"backends/{folder}/schema/routines/compat_{GENERATION}.sql"
        path.unlink()
    version.edit(
        "backends/postgres/schema/routines/receive.sql",
        r"ack_rows\(p_queue",
        "ack_rows_2(NULL, p_queue",
    )
    version.edit(
        "backends/postgres/schema/routines/receive_short.sql",
        r"ack_rows\(p_queue",
        "ack_rows_2(NULL, p_queue",
    )
    version.edit(
        "backends/postgres/schema/routines/verbs.sql",
        r"ack_rows\(p_queue",
        "ack_rows_2(NULL, p_queue",
    )
    return version
