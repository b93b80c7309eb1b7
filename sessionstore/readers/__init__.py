"""Histories that other programs keep: their files in, exported sessions out.

A reader changes nothing of what it reads, leaves out nothing without saying so, and yields
what `SessionDB.import_sessions` takes.
"""
