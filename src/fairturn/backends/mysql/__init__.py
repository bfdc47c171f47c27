"""Fairturn on MySQL 8 and MariaDB 10.6 or later."""

from fairturn.backends.mysql.backend import MysqlBackend

__all__ = ["MysqlBackend"]
