"""Which texts hold a secret, and which only look as if they did."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessionstore.redact import REDACTED, redact, redact_value

# Every one is made up; each is put together here, so that no scanner takes this file for a leak.
KEYS = {
    "OpenAI": "sk-" + "TESTabcdef1234567890",
    "OpenAI project": "sk-proj-" + "abc_DEF-1234567890",
    "Anthropic": "sk-ant-" + "api03-AAAA-bbbb-1234",
    "Google": "AIza" + "SyA1234567890123456789012345678901234",
    "GitHub": "ghp_" + "abcdefghijklmnopqrstuvwxyz0123456789",
    "GitHub fine": "github_pat_" + "11ABCDEFG0_abcdefghijklmnop",
    "GitLab": "glpat-" + "abcdefghij1234567890",
    "Slack": "xoxb-" + "123456789012-abcdefABCDEF",
    "AWS": "AKIA" + "IOSFODNN7EXAMPLE",
    "Stripe": "sk_live_" + "4eC39HqLyjWDarjtT1zdp7dc",
    "Hugging Face": "hf_" + "abcdefghijklmnopqrstuvwxyz",
    "npm": "npm_" + "abcdefghijklmnopqrstuvwxyz0123456789",
    "Telegram": "123456789:" + "AAabcdefghijklmnopqrstuvwxyz_12345678",
    "Discord": "M" + "TIzNDU2Nzg5MDEyMzQ1Njc4" + ".Gabcde." + "abcdefghijklmnopqrstuvwxyz_12",
    "SendGrid": "SG." + "abcdefghijklmnopqrst.abcdefghijklmnopqrst",
    "Groq": "gsk_" + "abcdefghijklmnopqrstuvwxyz",
    "JWT": "eyJhbGciOiJI" + ".eyJzdWIiOiIx" + ".c2lnbmF0dXJl",
}
FRAMES = ("{}", "use {} now", '"{}"', "({})", "x={},y", "{}\n", "https://h.test/?k={}&z=1", "«{}»")


@pytest.mark.parametrize("maker", KEYS)
def test_a_key_of_a_known_maker_is_found_wherever_it_stands(maker: str):
    key = KEYS[maker]
    for frame in FRAMES:
        text = redact(frame.format(key))
        assert key not in text, frame
        assert key[-8:] not in text, frame
        assert REDACTED in text


@pytest.mark.parametrize(
    ("text", "secret"),
    [
        ("Authorization: Bearer abc.def.ghi", "abc.def.ghi"),
        ("authorization: basic dXNlcjpwYXNz", "dXNlcjpwYXNz"),
        ('{"Authorization": "Bearer opaque123"}', "opaque123"),
        ("curl -H 'Authorization: token abcdef' https://h.test", "abcdef"),
        ("Bearer abcdefghijkl12345", "abcdefghijkl12345"),
        ("x-api-key: abc123", "abc123"),
        ("Cookie: session=abc; id=def", "abc"),
        ("postgres://user:pa:ss@db:5432/x", "pa:ss"),
        ("https://u:p@ss@host.test/x", "p@ss"),
        ("redis://:hunter2@cache", "hunter2"),
        ("DB_PASSWORD=hunter2", "hunter2"),
        ("export SECRET='correct horse'", "correct horse"),
        ("MY_TOKEN=correct horse  # a comment", "correct horse"),
        ("aws_secret_access_key = wJalrXUtnFEMI/K7MDENG", "wJalrXUtnFEMI"),
        ("password: hunter2, user: x", "hunter2"),
        ("passwd=hunter2;host=x", "hunter2"),
        ('os.environ["API_KEY"] = "abc"', '"abc"'),
        ('{\\"api_key\\": \\"abcdef\\"}', "abcdef"),
        ("clientSecret: 'xyz'", "xyz"),
        ("https://h.test/?access_token=abc123&x=1", "abc123"),
        ("login --password hunter2 --verbose", "hunter2"),
        ("curl -u user:hunter2 https://h.test", "hunter2"),
        ("-----BEGIN RSA PRIVATE KEY-----\nMIIEabc\n-----END RSA PRIVATE KEY-----", "MIIEabc"),
        ("-----BEGIN PRIVATE KEY-----\\nMIIEabc\\n-----END PRIVATE KEY-----", "MIIEabc"),
        ("-----BEGIN OPENSSH PRIVATE KEY-----\nb3BlbnNz\ncut off", "b3BlbnNz"),
    ],
)
def test_what_stands_under_a_secrets_name_goes(text: str, secret: str):
    assert secret not in redact(text)
    assert REDACTED in redact(text)


@pytest.mark.parametrize(
    "text",
    [
        "token_count=5",
        "max_tokens: 5",
        "max_tokens=4096 total_tokens: 12345678 input_tokens=3",
        '{"max_tokens": 5, "token_count": 12}',
        "task-force-one uses sk-learn-contrib",
        "the token: is here; key: value",
        "token = get_token()",
        "The basic understanding of bearer bonds",
        "OPENAI_API_KEY=${OPENAI_API_KEY}",
        'api_key = os.environ["API_KEY"]',
        "password=<your password>",
        "secrets.token_hex(16)",
        "https://example.test/a/b?x=1#y",
        "mail demo.user@example.test about v2.14.3",
        "keyboard=1 author: Somebody1234567 bypass: yes",
        "sort_key=name primary_key=True",
        "检查网络配置 😀",
        "",
    ],
)
def test_what_is_no_secret_stays(text: str):
    assert redact(text) == text


def test_a_comment_and_what_follows_stay():
    assert redact("A_TOKEN=x y # why\nB=2") == f"A_TOKEN={REDACTED} # why\nB=2"
    assert redact("password: hunter2, user: x") == f"password: {REDACTED}, user: x"


def test_json_is_redacted_by_its_names_keys_and_within_its_texts():
    key = KEYS["OpenAI"]
    value = {
        key: 1,
        "api_key": "short",
        "password": 1234,
        "passwords": ["a", "b"],
        "max_tokens": 5,
        "token": None,
        "arguments": json.dumps({"inner": json.dumps({"secret": "deep", "n": [key]}), "n": 2}),
        "list": [f"x {key}", {"auth_token": "t"}],
    }
    before = json.dumps(value)

    cleaned = redact_value(value)

    text = json.dumps(cleaned)
    for secret in (key, "short", "1234", "deep", '"a"', '"t"'):
        assert secret not in text
    assert cleaned["max_tokens"] == 5
    assert cleaned["token"] is None
    assert json.loads(cleaned["arguments"])["n"] == 2
    assert json.dumps(value) == before


@given(st.text(max_size=200), st.sampled_from(sorted(KEYS)))
def test_any_surroundings_leave_no_key(text: str, maker: str):
    key = KEYS[maker]
    assert key not in redact(f"{text} {key} {text}")


@given(st.text(max_size=300))
def test_redacting_twice_is_redacting_once(text: str):
    assert redact(redact(text)) == redact(text)


@pytest.mark.parametrize(
    "unit",
    ["a-", "x", "a_b", "key: ", "http://", "eyJaaaaaa", "sk-", 'password="', "a.b.", "--", "\t",
     "-----BEGIN PRIVATE KEY-----!", "authorization:", "KEY= ", "\\", "bearer ", "1"],
)  # fmt: skip
def test_no_text_takes_long(unit: str):
    text = unit * (200_000 // len(unit))
    assert redact(redact(text)) == redact(text)  # a step back for each step would take for ever
