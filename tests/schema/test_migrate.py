"""Tables are applied once, routines are replaced when they differ or are missing."""

from __future__ import annotations

import re
import subprocess
from typing import Any

import pytest

import fairturn
from fairturn import doctor
from fairturn.backends import schema
from fairturn.cli.app import run as cli
from fairturn.drivers.run import run
from tests import servers
from tests.schema.installation import ALL, TABLES, Installation, new

only_postgres = pytest.mark.parametrize("engine", ["postgresql"])
only_mysql = pytest.mark.parametrize("engine", ["mysql"])


def refused(installation: Installation) -> fairturn.SchemaOutdated:
    """What a client meets that connects now."""
    with (
        fairturn.connect(installation.url) as db,
        pytest.raises(fairturn.SchemaOutdated) as caught,
    ):
        db.queues()
    return caught.value


def finding(installation: Installation) -> doctor.Finding:
    """What the doctor says about the schema."""
    with fairturn.connect(installation.url) as db:
        [found] = [each for each in doctor.examine(db) if each.check == "schema"]
    return found


def changed(installation: Installation, pattern: str, replacement: str) -> tuple[str, ...]:
    """The routines' files with one thing changed in them."""
    texts = installation.texts()
    made = tuple(re.sub(pattern, replacement, text) for text in texts)
    assert made != texts
    return made


def mariadb(program: str, installation: Installation) -> list[str]:
    port, name = servers.shared("mysql")["port"], installation.url.rsplit("/", 1)[1]
    return [program, "--no-defaults", "-h127.0.0.1", f"-P{port}", "-uroot", name]


def shell(installation: Installation, script: bytes) -> None:
    """Run a script in the database's own command line."""
    if installation.engine == "postgresql":
        command = ["psql", "-X", "-q", "-v", "ON_ERROR_STOP=1", installation.url]
    else:
        command = mariadb("mariadb", installation)
    subprocess.run(command, input=script, stdout=subprocess.DEVNULL, check=True)


def test_again_there_is_nothing_to_do(installed: Installation) -> None:
    assert installed.migrate() == []
    assert finding(installed).level == "ok"
    assert installed.works()


def test_missing_routines_are_named_and_repaired(
    installed: Installation, capsys: pytest.CaptureFixture[str]
) -> None:
    everything = installed.routines()
    for name in ("send_rows", "stats") if installed.engine == "postgresql" else ("ack", "stats"):
        installed.drop(name)
    error = refused(installed)
    assert "2 of Fairturn's routines are missing" in str(error)
    assert "stats" in str(error)
    assert "Run `fairturn migrate`" in str(error)
    assert cli(["queue", "list", "--db", installed.url]) == 1
    assert "fairturn migrate --db" in capsys.readouterr().err
    assert (finding(installed).level, "missing" in finding(installed).what) == ("bad", True)
    assert "migrate" in finding(installed).fix
    assert installed.migrate() == ["routines (repaired)"]
    assert installed.routines() == everything
    assert installed.works()
    assert installed.migrate() == []


@only_mysql
def test_a_dump_without_routines_is_repaired(installed: Installation) -> None:
    with fairturn.connect(installed.url) as db:
        db.queue("kept").create()
        db.queue("kept").send("kept")
    command = mariadb("mariadb-dump", installed)
    text = subprocess.run(command, capture_output=True, check=True).stdout
    restored = new("mysql", "restored")
    shell(restored, text)
    assert restored.routines() == set()
    assert "of Fairturn's routines are missing" in str(refused(restored))
    assert restored.migrate() == ["routines (repaired)"]
    assert restored.routines() == installed.routines()
    with fairturn.connect(restored.url) as db:
        assert db.queue("kept").receive()[0].body == "kept"


def test_routines_of_another_version_are_replaced(installed: Installation) -> None:
    other = "SELECT 1" if installed.engine == "mysql" else "RETURN"
    assert installed.migrate(*changed(installed, r"-- @stop send\.start", f"-- {other}"))
    error = refused(installed)
    assert "routines here are not the ones of this Fairturn" in str(error)
    assert "Run `fairturn migrate`" in str(error)
    assert finding(installed).level == "bad"
    assert installed.migrate() == ["routines"]
    assert installed.works()


def test_the_scripts_do_the_same_in_the_hands_of_your_own_tool(empty: Installation) -> None:
    """Statement by statement, each committed; the routines may be run again."""
    scripts = dict(empty.backend().migrations())
    assert list(scripts) == ALL
    for name in (*ALL, "routines"):
        shell(empty, scripts[name].encode())
    assert empty.migrate() == []
    assert empty.works()


def test_tables_of_an_older_version_are_named(
    installed: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(type(installed.backend()), "version", 77)
    needed = f"tables are at migration {len(TABLES)} here, and this Fairturn needs 77"
    assert needed in str(refused(installed))
    assert refused(installed).remedy == "migrate"


def test_a_migration_that_broke_off_is_named(installed: Installation) -> None:
    installed.sql(f"DELETE FROM {installed.installed}")
    assert "has not come to its end" in str(refused(installed))
    assert installed.migrate() == ["routines"]
    assert installed.works()


def test_gone_routines_are_dropped_one_migration_later(installed: Installation) -> None:
    """Calls that are under way while they go still find them. What is yours stays."""
    create = {
        "postgresql": (
            "CREATE OR REPLACE FUNCTION fairturn.{}() RETURNS int LANGUAGE sql AS $$ SELECT 1 $$;"
        ),
        "mysql": "DELIMITER //\nCREATE PROCEDURE fairturn_{}() BEGIN SELECT 1; END //",
    }[installed.engine]
    assert installed.migrate(*installed.texts(), create.format("extra")) == ["routines"]
    yours = create.replace("DELIMITER //\n", "").replace(" //", "").format("yours")
    installed.sql(yours)
    assert installed.migrate() == ["routines"]
    assert {"extra", "yours"} <= installed.routines()
    assert installed.migrate() == []
    assert installed.migrate(*installed.texts(), create.format("more")) == ["routines"]
    assert "extra" not in installed.routines()
    assert {"more", "yours"} <= installed.routines()
    # One that comes back while it is retired is there to stay.
    assert installed.migrate() == ["routines"]
    assert installed.migrate(*installed.texts(), create.format("more")) == ["routines"]
    assert installed.migrate(*installed.texts(), create.format("more"), "-- a comment")
    assert {"more", "yours"} <= installed.routines()


def test_an_older_client_leaves_newer_routines_alone(installed: Installation) -> None:
    newer = changed(installed, r"-- @stop send\.start", "-- newer")
    assert installed.migrate(*newer) == ["routines"]
    generation = schema.GENERATION + 1
    installed.sql(f"UPDATE {installed.installed} SET generation = {generation}")
    [before] = installed.sql(f"SELECT routines FROM {installed.installed}")
    assert installed.migrate() == []
    assert installed.works()
    assert [before] == installed.sql(f"SELECT routines FROM {installed.installed}")
    assert finding(installed).level == "warn"


def test_a_client_that_is_no_longer_served_is_told_to_upgrade(
    installed: Installation, capsys: pytest.CaptureFixture[str]
) -> None:
    generation = schema.GENERATION + 1
    installed.sql(f"UPDATE {installed.installed} SET generation = {generation}")
    installed.sql(f"UPDATE {installed.installed} SET oldest_client = {generation}")
    error = refused(installed)
    assert error.remedy == "upgrade"
    assert "Upgrade the Python package fairturn" in str(error)
    assert "migrate" not in str(error)
    with pytest.raises(fairturn.SchemaOutdated, match="Upgrade the Python package fairturn"):
        installed.migrate()
    assert cli(["migrate", "--db", installed.url]) == 1
    assert "Upgrade the Python package fairturn" in capsys.readouterr().err
    assert "upgrade the Python package fairturn" in finding(installed).fix
    # Nobody is kept waiting for the one that was refused.
    installed.sql(f"UPDATE {installed.installed} SET generation = 0, oldest_client = 0")
    assert installed.migrate() == ["routines"]


# --- grants ---------------------------------------------------------------------------------------


def grants(installation: Installation, *names: str) -> dict[str, str | None]:
    rows = installation.sql(
        "SELECT proname, array_to_string(ARRAY(SELECT a::text FROM unnest(proacl) a "
        "ORDER BY 1), ' ') FROM pg_proc WHERE pronamespace = 'fairturn'::regnamespace "
        f"AND proacl IS NOT NULL AND proname IN ({', '.join(map(repr, names))})"
    )
    return dict(rows)


@pytest.fixture
def role(installed: Installation) -> str:
    name = f"shop_{servers.worker()}"
    if installed.engine == "postgresql":
        installed.sql(f"DROP ROLE IF EXISTS {name}")
        installed.sql(f'CREATE ROLE "{name}"')
        return name
    installed.sql(f"CREATE OR REPLACE USER {name}")
    return name


@only_postgres
def test_grants_survive_a_replacement(installed: Installation, role: str) -> None:
    # `stats` gets another result, `discard` other arguments, `ack` another body.
    installed.sql("REVOKE EXECUTE ON ALL FUNCTIONS IN SCHEMA fairturn FROM PUBLIC")
    for name in ("stats", "discard", "ack"):
        installed.sql(f"GRANT EXECUTE ON FUNCTION fairturn.{name} TO {role}")
    installed.sql(f"GRANT EXECUTE ON FUNCTION fairturn.stats TO {role} WITH GRANT OPTION")
    installed.sql("GRANT EXECUTE ON FUNCTION fairturn.discard TO PUBLIC")
    before = grants(installed, "stats", "discard", "ack")
    assert before["stats"] == f"postgres=X/postgres {role}=X*/postgres"
    assert before["discard"] == f"=X/postgres postgres=X/postgres {role}=X/postgres"
    changes = {
        r"oldest_ready bigint, versions text": "oldest_ready bigint, per_version text",
        r"(discard\(p_queue text, p_state text, )p_limit int": r"\1p_most bigint",
        r"LIMIT p_limit FOR UPDATE SKIP LOCKED\);\n  (ELSE|END IF)": (
            r"LIMIT p_most FOR UPDATE SKIP LOCKED);\n  \1"
        ),
        r"(FUNCTION fairturn.ack\(.*\nRETURNS void LANGUAGE sql AS \$\$)": r"\1 -- another body",
    }
    texts = installed.texts()
    for pattern, replacement in changes.items():
        made = tuple(re.sub(pattern, replacement, text) for text in texts)
        assert made != texts, pattern
        texts = made
    assert installed.migrate(*texts) == ["routines"]
    [(result,)] = installed.sql(
        "SELECT pg_get_function_result('fairturn.stats'::regproc) LIKE '%per_version%'"
    )
    assert result
    assert grants(installed, "stats", "discard", "ack") == before
    assert installed.migrate() == ["routines"]
    assert grants(installed, "stats", "discard", "ack") == before
    # Nobody has got a right by it: what is not granted is not public.
    [(may,)] = installed.sql(
        f"SELECT has_function_privilege('{role}', 'fairturn.send'::regproc, 'EXECUTE')"
    )
    assert not may


@only_mysql
def test_grants_survive_a_replacement_on_mariadb(installed: Installation, role: str) -> None:
    installed.sql(f"GRANT EXECUTE ON PROCEDURE fairturn_stats TO {role}")
    before = installed.sql(f"SHOW GRANTS FOR {role}")
    assert len(before) == 2
    another = changed(installed, r"(CREATE PROCEDURE fairturn_stats\()", r"\1IN p_first INT, ")
    assert installed.migrate(*another) == ["routines"]
    assert installed.sql(f"SHOW GRANTS FOR {role}") == before
    assert installed.migrate() == ["routines"]
    assert installed.sql(f"SHOW GRANTS FOR {role}") == before


@only_postgres
def test_a_function_that_somebody_uses_is_not_dropped_under_them(installed: Installation) -> None:
    """The migration fails as a whole; whoever uses the old result decides what to do."""
    installed.sql("CREATE VIEW totals AS SELECT * FROM fairturn.stats()")
    other = changed(installed, r"oldest_ready bigint, versions", "oldest_ready bigint, per_version")
    before = installed.sql(f"SELECT * FROM {installed.installed}")
    with pytest.raises(Exception, match="other objects depend on it"):
        installed.migrate(*other)
    assert installed.sql(f"SELECT * FROM {installed.installed}") == before
    assert installed.works()


# --- breaking off ---------------------------------------------------------------------------------


@only_postgres
def test_a_migration_that_fails_changes_nothing(empty: Installation) -> None:
    broken = (*empty.texts(), "CREATE OR REPLACE FUNCTION fairturn.broken() LANGUAGE nonsense;")
    with pytest.raises(Exception, match="nonsense"):
        empty.migrate(*broken)
    assert empty.sql("SELECT to_regnamespace('fairturn') IS NULL") == [(True,)]


class Broken(Exception):
    pass


@only_mysql
@pytest.mark.parametrize("steps", [1, 10, 60, 200, 400])
def test_a_migration_that_breaks_off_is_taken_up_again(empty: Installation, steps: int) -> None:
    def first(op: Any) -> Any:
        answer: Any = None
        for _ in range(steps):
            answer = yield op.send(answer)
        raise Broken

    with empty.driver() as driver, pytest.raises(Broken):
        run(first(empty.backend().migrate()), driver, own=True)
    assert refused(empty).remedy == "migrate"
    assert empty.migrate()[-1] == "routines"
    assert empty.works()
    assert empty.migrate() == []


# --- names ----------------------------------------------------------------------------------------


def test_two_installations_in_one_database(installed: Installation) -> None:
    with fairturn.connect(installed.url, schema="billing") as billing:
        assert billing.migrate() == ALL
        assert billing.migrate() == []
        billing.queue("invoices").create()
        assert billing.queues() == ["invoices"]
    assert installed.works()
    installed.migrate(*changed(installed, r"-- @stop send\.start", "-- another"))
    with fairturn.connect(installed.url, schema="billing") as billing:
        billing.queue("invoices").send(1)
        assert billing.queue("invoices").receive()[0].body == 1


@only_postgres
def test_the_bodies_are_valid(installed: Installation) -> None:
    """A migration does not check them, since functions call functions that come later."""
    for text in installed.texts():
        installed.sql(text)


def test_every_routine_has_a_name_of_its_own(engine: str) -> None:
    texts = "\n".join(new(engine, "names").texts())
    names = re.findall(
        r"^CREATE (?:OR REPLACE FUNCTION|PROCEDURE) fairturn[._](\w+)", texts, re.MULTILINE
    )
    assert len(names) == len(set(names)) > 90
    assert len(re.findall(r"^\s*CREATE\b", texts, re.MULTILINE)) == len(names)
