"""The store in the place of the histories that frameworks bring; a file for each of them.

Nothing here is loaded by `import sessionstore`, and each file needs its framework installed:
`sessionstore[openai-agents]`, `[langchain]`, `[pydantic-ai]`, `[google-adk]`.
"""
