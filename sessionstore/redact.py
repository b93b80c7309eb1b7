r"""Take secrets out of what leaves the store: text in, text out, no database.

A rule either knows a secret by its own shape, as the makers of keys publish it, or by the
name it stands under (`password=`, `"api_key":`, an Authorization header). What stands there
instead is `[redacted]`. Counts such as `token_count=5` and `max_tokens: 5` are no secrets. A
rule would rather take too much than too little, but a secret without a shape or a name, such as
a password in the middle of a sentence, is not found: look through what you publish.
"""

from __future__ import annotations

import json
import re
from typing import Any

REDACTED = "[redacted]"

# A key begins where no word goes on: `sk-` is in `task-` too.
_START = r"(?<![A-Za-z0-9])"

# What is known by its shape. `(?=…)` asks for a digit or a capital where the rest could be a
# name with hyphens in it, such as `sk-learn-contrib`.
_SHAPES = (
    # OpenAI, Anthropic (sk-ant-), OpenRouter (sk-or-), DeepSeek and others that took the prefix.
    r"sk-(?=[\w-]{0,200}[A-Z0-9])[A-Za-z0-9_-]{8,}",
    r"(?:AIza[\w-]{30,}|ya29\.[\w-]{20,}|GOCSPX-[\w-]{20,})",  # Google
    r"(?:gh[pousr]_[A-Za-z0-9]{16,}|github_pat_[A-Za-z0-9_]{16,})",  # GitHub
    r"gl(?:pat|ptt|dt|rt|cbt|ft|soat|agent|oas|imt|ffct)-[\w.-]{16,}",  # GitLab
    r"(?:xox[a-z](?:\.xox[a-z])?-[A-Za-z0-9-]{10,}|xapp-\d-[A-Za-z0-9-]{10,})",  # Slack
    r"(?:AKIA|ASIA|ABIA|ACCA)[0-9A-Z]{12,}",  # AWS, names of keys
    r"(?:(?:sk|pk|rk)_(?:live|test|prod)_[A-Za-z0-9]{8,}|whsec_[A-Za-z0-9+/=]{16,})",  # Stripe
    r"hf_[A-Za-z0-9]{16,}",  # Hugging Face
    r"npm_[A-Za-z0-9]{20,}",
    r"pypi-[\w-]{20,}",
    r"\d{8,10}:[\w-]{30,}",  # Telegram, bots
    r"(?:mfa\.[\w-]{20,}|[A-Za-z0-9][\w-]{22,28}\.[\w-]{6}\.[\w-]{27,})",  # Discord
    r"(?:gsk_[A-Za-z0-9]{20,}|xai-[A-Za-z0-9]{20,}|r8_[A-Za-z0-9]{20,})",  # Groq, xAI, Replicate
    r"(?:pplx|tvly|fc|jina|nvapi|csk|fw|lsv2_[a-z]{2})[-_](?=[\w-]{0,80}\d)[\w-]{20,}",
    r"do[opr]_v1_[a-f0-9]{32,}",  # DigitalOcean
    r"SG\.[\w-]{16,}\.[\w-]{16,}",  # SendGrid
    r"(?:SK|AC)[0-9a-f]{32}(?![A-Za-z0-9])",  # Twilio
    r"key-[0-9a-f]{32}",  # Mailgun
    r"shp(?:at|ca|pa|ss)_[A-Fa-f0-9]{32}",  # Shopify
    r"(?:lin_api_|ntn_|secret_)[A-Za-z0-9]{30,}",  # Linear, Notion
    r"dapi[0-9a-f]{32}",  # Databricks
    r"hv[sbr]\.[\w-]{20,}",  # Vault
    r"dp\.(?:pt|st|ct|sa)\.[\w.-]{30,}",  # Doppler
    r"ATATT3[\w=-]{30,}",  # Atlassian
    r"(?:figd_|sbp_|sntrys_|sntryu_|glsa_|glc_|PMAK-|pscale_\w+_|dckr_pat_)[\w=+/.-]{20,}",
    # Together, Square, Airtable, ElevenLabs, Vercel, New Relic, Brave, E2B.
    r"(?:tgp_v1_[\w-]{30,}|sq0(?:atp|csp|idp)-[\w-]{20,}|pat[A-Za-z0-9]{14}\.[a-f0-9]{40,})",
    r"(?:sk_[a-f0-9]{32,}|vc[pk]_[A-Za-z0-9]{20,}|NRAK-[A-Z0-9]{20,}|BSA[\w-]{26,}|e2b_[a-f0-9]{32,})",
    r"AGE-SECRET-KEY-1[0-9A-Z]{30,}",
    r"eyJ[\w-]{5,2000}\.eyJ[\w-]{5,}(?:\.[\w-]*)?",  # a JSON Web Token
)
_SHAPED = re.compile(_START + "(?:" + "|".join(_SHAPES) + ")")

# Some shapes are told even where a word runs into them: `endAIza…`.
_GLUED = re.compile(
    r"sk-(?:(?:proj|ant|or|svcacct|admin)-[\w-]{12,}|(?=[A-Za-z0-9]{0,200}\d)[A-Za-z0-9]{16,})"
    r"|AIza[\w-]{30,}|gh[pousr]_[A-Za-z0-9]{30,}|github_pat_[A-Za-z0-9_]{16,}|glpat-[\w.-]{20,}"
    r"|xox[abeoprs]-\d[A-Za-z0-9-]{10,}|(?:AKIA|ASIA)[0-9A-Z]{16}"
    r"|(?:sk|rk)_(?:live|test)_[A-Za-z0-9]{16,}|hf_[A-Za-z]{30,}|npm_[A-Za-z0-9]{36}"
    r"|eyJ[\w-]{5,2000}\.eyJ[\w-]{5,}(?:\.[\w-]*)?"
)

_PRIVATE_KEY = re.compile(r"-----BEGIN (?P<kind>[A-Z0-9 ]{0,20}PRIVATE KEY(?: BLOCK)?)-----")
# What is left of a block that was cut off before its end.
_REST_OF_KEY = re.compile(r"[\sA-Za-z0-9+/=\\:,.-]*")
_LONGEST_KEY = 100_000
# The last @ before the path ends the password, which may hold one itself.
_URL_PASSWORD = re.compile(
    r"(?P<lead>(?<![A-Za-z0-9+.-])[A-Za-z][A-Za-z0-9+.-]{1,40}://[^\s/:@\"'<>]*:)[^\s/\"'<>]+(?=@)"
)
_WEBHOOK = re.compile(
    r"(?P<lead>https://(?:hooks\.slack\.com/(?:services|workflows)/"
    r"|(?:\w+\.)?discord(?:app)?\.com/api/webhooks/\d+/"
    r"|api\.telegram\.org/bot))[^\s\"'<>]+"
)
_HEADER = re.compile(
    r"(?P<lead>\b(?:proxy-)?authorization\\?[\"']?\s*[:=]\s*\\?[\"']?"
    r"(?:(?:bearer|basic|digest|token|apikey|negotiate|aws4-hmac-sha256)\s+)?)"
    r"[^\s\"'\\]+(?:[^\S\n]*,[^\n\"'\\]*)?",
    re.IGNORECASE,
)
# A digit, a sign or a capital within it tells a token from the next word of a sentence.
_SCHEME = re.compile(
    r"(?P<lead>\b(?i:bearer|basic)\s+)"
    r"(?=[\w.~+/=-]{0,4000}?(?:[0-9+/=_]|[a-z][A-Z]))[A-Za-z0-9._~+/-]{8,}={0,2}"
)
_COOKIE = re.compile(
    r"(?P<lead>\b(?:set-)?cookie\\?[\"']?\s*:\s*\\?[\"']?)[^\n\"']+", re.IGNORECASE
)
_USER_OPTION = re.compile(r"(?P<lead>(?:^|\s)(?:-u|--user)[\s=]+[\"']?[^\s:\"']+:)[^\s\"']+")

# Names under which secrets stand. A name may go on before: DB_PASSWORD, client-secret, authToken.
_STRONG = re.compile(
    r"(?:pass(?:word|wd|phrase|code)|pwd|secret(?:[_-]?(?:access[_-]?)?key)?|api[_-]?key"
    r"|(?:access|private|signing|encryption|account|shared[_-]?access|master|subscription|license"
    r"|webhook|auth)[_-]?key|(?:access|auth|refresh|bot|api|bearer|secret)[_-]?token|credential|connection[_-]?string)s?"
    r"(?:[_-]?(?:base|value|raw|old|new|prod|dev|test|live|\d{1,3}))?$",
    re.IGNORECASE,
)
_WEAK = re.compile(
    r"(?:^|[^A-Za-z0-9])(?:token|auth|key|jwt|signature|sig|dsn|pat)s?$", re.IGNORECASE
)
_LONGEST_NAME = 200
# A name is tried where it begins and nowhere else, so that no text takes long.
_NAMED = re.compile(
    r"(?<![A-Za-z0-9_.-])(?P<name>[A-Za-z0-9_.-]{1,200}+)"
    r"(?P<between>\\{0,8}[\"'`]?\]?\s{0,20}(?::=|=>|[:=])\s{0,20})"
)
_FLAG = re.compile(r"(?<![\w-])--(?P<name>[A-Za-z0-9_-]{1,60}+)(?P<between>[ =]{1,4})(?!-)")
# An atomic group: a possessive quantifier over one with a lookahead never matched in 3.11.2.
_VALUE = re.compile(
    r"(?P<quote>\\{0,8}[\"'`])(?P<quoted>(?>(?:(?!(?P=quote)).){0,10000}))(?P=quote)"
    r"|(?P<bare>[^\s\"'`,;&|)}\]<>\\]+)",
    re.DOTALL,
)
# In a file of assignments a value may have blanks; so much is a secret's, up to a comment.
_ENV_LINE = re.compile(
    r"(?P<lead>^[ \t]{0,40}(?:export[ \t]+|set[ \t]+)?[A-Z][A-Z0-9_]{0,100}?"
    r"(?:PASSWORD|PASSWD|PASSPHRASE|PASS|PWD|SECRET|TOKEN|KEY|CREDENTIALS?|DSN|AUTH)(?:_BASE)?"
    r"[ \t]?=[ \t]?)(?P<value>[^\n]+)",
    re.MULTILINE,
)

# What says that there is no secret, or where it is, instead of telling it.
_NO_SECRET = re.compile(
    r"\$\{[^}]*\}?|\$[A-Z_][A-Z0-9_]*|%[A-Z_]+%|<[^>]*>?|\*+|\.\.\.|…|null|none|nil|true|false"
    r"|undefined|str|string|str\s*\|\s*none|os\.environ.*|os\.getenv.*|process\.env.*"
    r"|\[redacted\]?.*",
    re.IGNORECASE,
)
# A weak name is that of a count, a word of a sentence or code more often than not.
_LIKELY = re.compile(r"(?=[^\s]*\d)(?=[^\s]*[A-Za-z])[\w.~+/=-]{10,}|[A-Za-z0-9+/_=-]{24,}")
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")

# One of these is in every text that any rule is about; most texts have none.
_HINTS = re.compile(
    r"[-_.:]|pass|pwd|secret|key|token|auth|bearer|basic|cookie|jwt|sig|AKIA|ASIA|ABIA|ACCA|AIza|eyJ"
    r"|SK[0-9a-f]|AC[0-9a-f]|dapi|ATATT|dsn|credential",
    re.IGNORECASE,
)
_DEEPEST = 100


def redact(text: str) -> str:
    """Give the text with `[redacted]` in the place of every secret that a rule finds."""
    if not _HINTS.search(text):
        return text
    text = _without_private_keys(text)
    text = _URL_PASSWORD.sub(_after_lead, text)
    text = _WEBHOOK.sub(_after_lead, text)
    text = _GLUED.sub(REDACTED, _SHAPED.sub(REDACTED, text))
    text = _HEADER.sub(_after_lead, text)
    text = _SCHEME.sub(_after_lead, text)
    text = _COOKIE.sub(_after_lead, text)
    text = _USER_OPTION.sub(_after_lead, text)
    text = _ENV_LINE.sub(_env_value, text)
    text = _after_names(_FLAG, text, flags=True)
    return _after_names(_NAMED, text)


def redact_value(value: Any) -> Any:
    """Redact every text of a JSON value, its keys, and JSON that is within a text.

    A text under a name such as `api_key` goes whole. The value given is not changed.
    """
    return _redacted(value, 0)


def _redacted(value: Any, depth: int) -> Any:
    if depth > _DEEPEST:
        return REDACTED  # deeper than anything that was stored on purpose
    if isinstance(value, str):
        return _text(value, depth)
    if isinstance(value, list | tuple):
        return [_redacted(each, depth + 1) for each in value]
    if isinstance(value, dict):
        return {
            _text(key, depth) if isinstance(key, str) else key: _under(key, each, depth + 1)
            for key, each in value.items()
        }
    return _text(value.decode("utf-8", "replace"), depth) if isinstance(value, bytes) else value


def _under(key: Any, value: Any, depth: int) -> Any:
    """Redact what stands under a key."""
    strength = _strength(key) if isinstance(key, str) else None
    if strength is None:
        return _redacted(value, depth)
    if isinstance(value, str):
        return REDACTED if _is_secret(value, strength) else _redacted(value, depth)
    if strength == "strong":
        if isinstance(value, int | float) and not isinstance(value, bool):
            return REDACTED
        if isinstance(value, list):
            return [_under(key, each, depth + 1) for each in value]
    return _redacted(value, depth)


def _strength(name: str) -> str | None:
    """Say how surely a name is that of a secret: strong, weak or not at all."""
    words = _CAMEL.sub("_", name[-_LONGEST_NAME:])
    if _STRONG.search(words):
        return "strong"
    return "weak" if _WEAK.search(words) else None


def _is_secret(value: str, strength: str) -> bool:
    if not value or _NO_SECRET.fullmatch(value):
        return False
    return strength == "strong" or _LIKELY.fullmatch(value) is not None


def _text(text: str, depth: int) -> str:
    if text[:1] in ("{", "[", '"'):
        try:
            inner = json.loads(text)
        except (ValueError, RecursionError):
            return redact(text)
        if isinstance(inner, dict | list | str):
            cleaned = _redacted(inner, depth + 1)
            if cleaned != inner:
                text = json.dumps(cleaned, ensure_ascii=False)
    return redact(text)


def _without_private_keys(text: str) -> str:
    pieces, done = [], 0
    for found in _PRIVATE_KEY.finditer(text):
        if found.start() < done:
            continue
        last = f"-----END {found['kind']}-----"
        end = text.find(last, found.end(), found.end() + _LONGEST_KEY)
        pieces += [text[done : found.start()], REDACTED]
        if end >= 0:
            done = end + len(last)
        else:
            rest = _REST_OF_KEY.match(text, found.end())
            done = rest.end() if rest else found.end()
    return "".join([*pieces, text[done:]]) if pieces else text


def _after_lead(found: re.Match[str]) -> str:
    return found["lead"] + REDACTED


def _env_value(found: re.Match[str]) -> str:
    value, hash_sign, comment = found["value"].partition(" #")
    bare = value.strip().strip("\"'")
    if not bare or _NO_SECRET.fullmatch(bare) or (bare.isdigit() and "PASS" not in found["lead"]):
        return found[0]
    return found["lead"] + REDACTED + hash_sign + comment


def _after_names(names: re.Pattern[str], text: str, *, flags: bool = False) -> str:
    """Redact the values that stand after the names of secrets."""
    pieces, done = [], 0
    for found in names.finditer(text):
        if found.start() < done:
            continue  # part of a value that is gone
        strength = _strength(found["name"])
        if strength is None:
            continue
        if flags and found["name"].lower().endswith("token"):
            strength = "strong"  # nobody counts with --token
        value = _VALUE.match(text, found.end())
        if value is None:
            continue
        part = "quoted" if value["quote"] else "bare"
        if _is_secret(value[part], strength):
            pieces += [text[done : value.start(part)], REDACTED]
            done = value.end(part)
    return "".join([*pieces, text[done:]]) if pieces else text
