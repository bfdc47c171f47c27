"""A user's own connection, one small class per driver: open, begin, commit, roll back, close;
``idle``: in no transaction, and alive."""

from __future__ import annotations

import sqlite3
from typing import Any
from urllib.parse import urlsplit


def sqlite_path(url: str) -> str:
    return url.removeprefix("sqlite:///")


def mysql_arguments(url: str) -> dict[str, Any]:
    parts = urlsplit(url)
    return {
        "host": parts.hostname,
        "port": parts.port,
        "user": parts.username,
        "password": parts.password or "",
        "database": parts.path[1:],
    }


class Sqlite:
    def __init__(self, url: str) -> None:
        self.connection = sqlite3.connect(sqlite_path(url), isolation_level=None, timeout=30)

    def begin(self) -> None:
        self.connection.execute("BEGIN IMMEDIATE")

    def commit(self) -> None:
        self.connection.commit()

    def rollback(self) -> None:
        self.connection.rollback()

    def close(self) -> None:
        self.connection.close()

    @property
    def idle(self) -> bool:
        return not self.connection.in_transaction


class Psycopg:
    def __init__(self, url: str) -> None:
        import psycopg

        self.connection = psycopg.connect(url)

    def begin(self) -> None:
        """psycopg begins by itself."""

    def commit(self) -> None:
        self.connection.commit()

    def rollback(self) -> None:
        self.connection.rollback()

    def close(self) -> None:
        self.connection.close()

    @property
    def idle(self) -> bool:
        return self.connection.info.transaction_status == 0


class PyMysql:
    def __init__(self, url: str) -> None:
        import pymysql

        self.connection = pymysql.connect(**mysql_arguments(url), autocommit=False)
        with self.connection.cursor() as cursor:
            cursor.execute("SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED")

    def begin(self) -> None:
        self.connection.begin()

    def commit(self) -> None:
        self.connection.commit()

    def rollback(self) -> None:
        self.connection.rollback()

    def close(self) -> None:
        self.connection.close()

    @property
    def idle(self) -> bool:
        return self.connection.open and not self.connection.server_status & 1


class AsyncPsycopg:
    connection: Any

    async def open(self, url: str) -> AsyncPsycopg:
        import psycopg

        self.connection = await psycopg.AsyncConnection.connect(url)
        return self

    async def begin(self) -> None:
        """psycopg begins by itself."""

    async def commit(self) -> None:
        await self.connection.commit()

    async def rollback(self) -> None:
        await self.connection.rollback()

    async def close(self) -> None:
        await self.connection.close()

    @property
    def idle(self) -> bool:
        return self.connection.info.transaction_status == 0


class Asyncmy:
    connection: Any

    async def open(self, url: str) -> Asyncmy:
        import asyncmy

        self.connection = await asyncmy.connect(**mysql_arguments(url), autocommit=False)
        async with self.connection.cursor() as cursor:
            await cursor.execute("SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED")
        return self

    async def begin(self) -> None:
        await self.connection.begin()

    async def commit(self) -> None:
        await self.connection.commit()

    async def rollback(self) -> None:
        await self.connection.rollback()

    async def close(self) -> None:
        await self.connection.ensure_closed()

    @property
    def idle(self) -> bool:
        return self.connection.connected and not self.connection.get_transaction_status()


SYNC: dict[str, type[Any]] = {"sqlite": Sqlite, "postgresql": Psycopg, "mysql": PyMysql}
ASYNC: dict[str, type[Any]] = {"postgresql": AsyncPsycopg, "mysql": Asyncmy}
