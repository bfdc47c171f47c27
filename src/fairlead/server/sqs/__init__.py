"""The SQS door: any AWS SDK is a client.

`wire` turns bytes into a request and a result into bytes, for both of SQS's protocols, driven by
the one table in `actions`; `errors` is every refusal. `checks`, `contents`, `settings` and
`redrive` refuse what SQS refuses without looking into a database; `md5` is the digest clients
compare.
All of it is pure: no socket, no clock, no randomness, no dependency.
"""
