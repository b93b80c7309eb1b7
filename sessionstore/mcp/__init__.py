"""The store as tools of the Model Context Protocol, for an agent that asks its own past.

`tools` says what the tools are and answers them; it knows nothing of the protocol. `server`
speaks it, on stdin and stdout, with the kept SDK.
"""
