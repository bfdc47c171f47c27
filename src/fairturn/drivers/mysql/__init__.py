"""MySQL and MariaDB, through PyMySQL and asyncmy: our own connections, and yours."""
