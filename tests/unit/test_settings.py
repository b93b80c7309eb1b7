"""Where a store is when nobody named one, and what may be tuned."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from sessionstore import StoreSettings
from sessionstore.settings import default_location


@pytest.mark.parametrize(
    ("environment", "location"),
    [
        ({}, Path("/home/demo/.hermes/state.db")),
        ({"HERMES_HOME": "/srv/agent"}, Path("/srv/agent/state.db")),
        ({"HERMES_HOME": "~/agent"}, Path("/home/demo/agent/state.db")),
        ({"SESSIONSTORE_URL": "postgresql+psycopg://h/n"}, "postgresql+psycopg://h/n"),
        ({"SESSIONSTORE_URL": "sqlite:///x.db", "HERMES_HOME": "/srv"}, "sqlite:///x.db"),
        ({"SESSIONSTORE_URL": "", "HERMES_HOME": ""}, Path("/home/demo/.hermes/state.db")),
    ],
)
def test_the_environment_is_read_at_the_moment_of_asking(monkeypatch, environment, location):
    monkeypatch.setenv("HOME", "/home/demo")
    for name in ("SESSIONSTORE_URL", "HERMES_HOME"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert default_location() == location


def test_a_write_is_patient_by_default():
    settings = StoreSettings()
    assert settings.write_patience_s == 20
    assert settings.write_min_attempts == 15
    assert settings.busy_timeout_s == 1
    assert settings.retry_pause_s == (0.020, 0.150)
    assert settings.checkpoint_every_writes == 50


def test_settings_cannot_change_under_an_open_store():
    with pytest.raises(dataclasses.FrozenInstanceError):
        StoreSettings().write_patience_s = 1


@pytest.mark.parametrize(
    ("bad", "error"), [(0, ValueError), (-1, ValueError), (True, TypeError), (1.5, TypeError)]
)
@pytest.mark.parametrize("name", ["write_min_attempts", "checkpoint_every_writes", "connections"])
def test_a_setting_that_would_fail_a_later_write_is_refused(name, bad, error):
    with pytest.raises(error, match=f"^{name} must be "):
        StoreSettings(**{name: bad})
