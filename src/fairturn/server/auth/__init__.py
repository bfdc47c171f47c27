"""Authentication: access keys, signatures (SigV4), and how an unknown caller is refused."""
