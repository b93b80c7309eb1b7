"""All SQL but search: a file per noun, two for messages; each function within an open transaction.

A function takes a connection, never commits, and returns plain records: no row and no
statement leaves this room. Only `maintenance` has statements that no transaction may hold. What
is checked, encoded and hashed before a transaction begins is prepared here too, by functions
that take no connection.
"""
