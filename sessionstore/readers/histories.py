"""The readers of other programs' histories, by the names that `import --from` takes."""

from __future__ import annotations

from sessionstore.readers.claude_code import ClaudeCode
from sessionstore.readers.codex import Codex
from sessionstore.readers.frameworks import LangChain, OpenAIAgents
from sessionstore.readers.history import History

HISTORIES: dict[str, type[History]] = {
    "claude-code": ClaudeCode,
    "codex": Codex,
    "openai-agents-sqlite": OpenAIAgents,
    "langchain-sqlite": LangChain,
}
