CREATE TABLE alembic_version (
	version_num VARCHAR(32) NOT NULL, 
	CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num)
);

CREATE TABLE compression_locks (
    session_id TEXT NOT NULL PRIMARY KEY,
    holder TEXT NOT NULL,
    acquired_at REAL NOT NULL,
    expires_at REAL NOT NULL
);

CREATE TABLE delivery_obligations (
    delivery_id TEXT NOT NULL PRIMARY KEY,
    session_id TEXT NOT NULL,
    target TEXT NOT NULL,
    payload_json TEXT NOT NULL,
    state TEXT NOT NULL DEFAULT 'pending',
    attempts INTEGER NOT NULL DEFAULT 0,
    available_at REAL NOT NULL,
    claimed_by TEXT,
    lease_expires_at REAL,
    last_error TEXT,
    created_at REAL NOT NULL,
    updated_at REAL NOT NULL
);

CREATE TABLE gateway_routing (
    scope TEXT NOT NULL,
    session_key TEXT NOT NULL,
    entry_json TEXT NOT NULL,
    updated_at REAL NOT NULL,
    PRIMARY KEY (scope, session_key)
);

CREATE INDEX idx_messages_session ON messages(session_id, timestamp);

CREATE INDEX idx_sessions_parent ON sessions(parent_session_id, started_at) WHERE parent_session_id IS NOT NULL;

CREATE INDEX idx_sessions_source ON sessions(source);

CREATE INDEX idx_sessions_started ON sessions(started_at DESC);

CREATE UNIQUE INDEX idx_sessions_title_unique ON sessions(title) WHERE title IS NOT NULL;

CREATE INDEX ix_delivery_obligations_state_available_at
ON delivery_obligations(state, available_at);

CREATE INDEX ix_messages_session_id_active_id ON messages(session_id, active, id);

CREATE INDEX ix_messages_session_id_platform_message_id ON messages(session_id, platform_message_id) WHERE platform_message_id IS NOT NULL;

CREATE INDEX ix_sessions_activity ON sessions(coalesce(last_active_at, started_at) DESC, id DESC);

CREATE INDEX ix_sessions_pinned ON sessions(pinned) WHERE pinned = 1;

CREATE INDEX ix_sessions_system_prompt_hash ON sessions(system_prompt_hash) WHERE system_prompt_hash IS NOT NULL;

CREATE TABLE messages (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    session_id TEXT NOT NULL REFERENCES sessions(id),
    role TEXT NOT NULL,
    content TEXT,
    tool_call_id TEXT,
    tool_calls TEXT,
    tool_name TEXT,
    timestamp REAL NOT NULL,
    token_count INTEGER
, finish_reason TEXT, reasoning TEXT, reasoning_details TEXT, codex_reasoning_items TEXT, reasoning_content TEXT, codex_message_items TEXT, content_encoding TEXT, json_columns TEXT, active INTEGER NOT NULL DEFAULT 1, compacted INTEGER NOT NULL DEFAULT 0, platform_message_id TEXT, search_text TEXT);

CREATE TRIGGER messages_activity_delete AFTER DELETE ON messages BEGIN
    UPDATE sessions SET last_active_at = (SELECT max(timestamp) FROM messages WHERE messages.session_id = sessions.id AND typeof(timestamp) IN ('real', 'integer'))
    WHERE id = old.session_id AND last_active_at <= old.timestamp;
END;

CREATE TRIGGER messages_activity_insert AFTER INSERT ON messages BEGIN
    UPDATE sessions SET last_active_at = new.timestamp
    WHERE id = new.session_id AND typeof(new.timestamp) IN ('real', 'integer')
    AND (last_active_at IS NULL OR last_active_at < new.timestamp);
END;

CREATE TRIGGER messages_activity_update AFTER UPDATE OF timestamp, session_id ON messages BEGIN
    UPDATE sessions SET last_active_at = (SELECT max(timestamp) FROM messages WHERE messages.session_id = sessions.id AND typeof(timestamp) IN ('real', 'integer'))
    WHERE id = old.session_id AND last_active_at <= old.timestamp;
    UPDATE sessions SET last_active_at = new.timestamp
    WHERE id = new.session_id AND typeof(new.timestamp) IN ('real', 'integer')
    AND (last_active_at IS NULL OR last_active_at < new.timestamp);
END;

CREATE VIRTUAL TABLE messages_fts USING fts5(
    body,
    content='messages_search',
    content_rowid='id'
);

CREATE TRIGGER messages_fts_delete AFTER DELETE ON messages BEGIN
    INSERT INTO messages_fts(messages_fts, rowid, body)
    SELECT 'delete', old.id, coalesce(old.search_text, coalesce(old.content, '') || coalesce(char(10) || old.tool_name, '') || coalesce(char(10) || old.tool_calls, '')) || char(10, 10)
    WHERE NOT EXISTS (SELECT 1 FROM state_meta WHERE key = 'search_indexed_from' AND old.id < CAST(value AS INTEGER));
END;

CREATE TRIGGER messages_fts_insert AFTER INSERT ON messages BEGIN
    INSERT INTO messages_fts(rowid, body)
    SELECT new.id, coalesce(new.search_text, coalesce(new.content, '') || coalesce(char(10) || new.tool_name, '') || coalesce(char(10) || new.tool_calls, '')) || char(10, 10)
    WHERE NOT EXISTS (SELECT 1 FROM state_meta WHERE key = 'search_indexed_from' AND new.id < CAST(value AS INTEGER));
END;

CREATE TABLE messages_fts_pending (
    id INTEGER PRIMARY KEY
);

CREATE TRIGGER messages_fts_pending_delete AFTER DELETE ON messages BEGIN
    DELETE FROM messages_fts_pending WHERE id = old.id;
END;

CREATE TRIGGER messages_fts_pending_insert AFTER INSERT ON messages WHEN new.search_text IS NULL AND (
    new.content_encoding IS NOT NULL
    OR typeof(new.content) = 'blob'
    OR instr(new.tool_calls, '\u') > 0
    OR (length(new.content) <> length(CAST(new.content AS BLOB)) AND (new.content GLOB '*[^' || char(1) || '-© -⁤₠-₿─-➿　-〩ぁ-ゖ゠-ヾ㐀-䶿一-鿿가-힣️！-／：-＠🌀-🛗🤀-🩓𠀀-𪛟]*' OR instr(new.content, char(0)) > 0))
    OR (length(new.tool_name) <> length(CAST(new.tool_name AS BLOB)) AND (new.tool_name GLOB '*[^' || char(1) || '-© -⁤₠-₿─-➿　-〩ぁ-ゖ゠-ヾ㐀-䶿一-鿿가-힣️！-／：-＠🌀-🛗🤀-🩓𠀀-𪛟]*' OR instr(new.tool_name, char(0)) > 0))
    OR (length(new.tool_calls) <> length(CAST(new.tool_calls AS BLOB)) AND (new.tool_calls GLOB '*[^' || char(1) || '-© -⁤₠-₿─-➿　-〩ぁ-ゖ゠-ヾ㐀-䶿一-鿿가-힣️！-／：-＠🌀-🛗🤀-🩓𠀀-𪛟]*' OR instr(new.tool_calls, char(0)) > 0))
) BEGIN
    INSERT INTO messages_fts_pending(id)
    SELECT new.id WHERE NOT EXISTS (SELECT 1 FROM messages_fts_pending WHERE id = new.id);
END;

CREATE TRIGGER messages_fts_pending_update AFTER UPDATE OF
id, content, content_encoding, tool_name, tool_calls, search_text ON messages WHEN
(new.search_text IS NULL AND (
    new.content_encoding IS NOT NULL
    OR typeof(new.content) = 'blob'
    OR instr(new.tool_calls, '\u') > 0
    OR (length(new.content) <> length(CAST(new.content AS BLOB)) AND (new.content GLOB '*[^' || char(1) || '-© -⁤₠-₿─-➿　-〩ぁ-ゖ゠-ヾ㐀-䶿一-鿿가-힣️！-／：-＠🌀-🛗🤀-🩓𠀀-𪛟]*' OR instr(new.content, char(0)) > 0))
    OR (length(new.tool_name) <> length(CAST(new.tool_name AS BLOB)) AND (new.tool_name GLOB '*[^' || char(1) || '-© -⁤₠-₿─-➿　-〩ぁ-ゖ゠-ヾ㐀-䶿一-鿿가-힣️！-／：-＠🌀-🛗🤀-🩓𠀀-𪛟]*' OR instr(new.tool_name, char(0)) > 0))
    OR (length(new.tool_calls) <> length(CAST(new.tool_calls AS BLOB)) AND (new.tool_calls GLOB '*[^' || char(1) || '-© -⁤₠-₿─-➿　-〩ぁ-ゖ゠-ヾ㐀-䶿一-鿿가-힣️！-／：-＠🌀-🛗🤀-🩓𠀀-𪛟]*' OR instr(new.tool_calls, char(0)) > 0))
)) OR (new.search_text IS old.search_text AND new.search_text IS NOT NULL AND (
    new.id IS NOT old.id OR new.content IS NOT old.content
    OR new.content_encoding IS NOT old.content_encoding
    OR new.tool_name IS NOT old.tool_name OR new.tool_calls IS NOT old.tool_calls
)) BEGIN
    INSERT INTO messages_fts_pending(id)
    SELECT new.id WHERE NOT EXISTS (SELECT 1 FROM messages_fts_pending WHERE id = new.id);
END;

CREATE VIRTUAL TABLE messages_fts_trigram USING fts5(
    body,
    content='messages_search',
    content_rowid='id',
    tokenize='trigram',
    detail='none',
    columnsize=0
);

CREATE TRIGGER messages_fts_trigram_delete AFTER DELETE ON messages BEGIN
    INSERT INTO messages_fts_trigram(messages_fts_trigram, rowid, body)
    SELECT 'delete', old.id, coalesce(old.search_text, coalesce(old.content, '') || coalesce(char(10) || old.tool_name, '') || coalesce(char(10) || old.tool_calls, '')) || char(10, 10)
    WHERE NOT EXISTS (SELECT 1 FROM state_meta WHERE key = 'search_indexed_from' AND old.id < CAST(value AS INTEGER));
END;

CREATE TRIGGER messages_fts_trigram_insert AFTER INSERT ON messages BEGIN
    INSERT INTO messages_fts_trigram(rowid, body)
    SELECT new.id, coalesce(new.search_text, coalesce(new.content, '') || coalesce(char(10) || new.tool_name, '') || coalesce(char(10) || new.tool_calls, '')) || char(10, 10)
    WHERE NOT EXISTS (SELECT 1 FROM state_meta WHERE key = 'search_indexed_from' AND new.id < CAST(value AS INTEGER));
END;

CREATE TRIGGER messages_fts_trigram_update AFTER UPDATE OF
id, content, tool_name, tool_calls, search_text ON messages BEGIN
    INSERT INTO messages_fts_trigram(messages_fts_trigram, rowid, body)
    SELECT 'delete', old.id, coalesce(old.search_text, coalesce(old.content, '') || coalesce(char(10) || old.tool_name, '') || coalesce(char(10) || old.tool_calls, '')) || char(10, 10)
    WHERE NOT EXISTS (SELECT 1 FROM state_meta WHERE key = 'search_indexed_from' AND old.id < CAST(value AS INTEGER));
    INSERT INTO messages_fts_trigram(rowid, body)
    SELECT new.id, coalesce(new.search_text, coalesce(new.content, '') || coalesce(char(10) || new.tool_name, '') || coalesce(char(10) || new.tool_calls, '')) || char(10, 10)
    WHERE NOT EXISTS (SELECT 1 FROM state_meta WHERE key = 'search_indexed_from' AND new.id < CAST(value AS INTEGER));
END;

CREATE TRIGGER messages_fts_update AFTER UPDATE OF
id, content, tool_name, tool_calls, search_text ON messages BEGIN
    INSERT INTO messages_fts(messages_fts, rowid, body)
    SELECT 'delete', old.id, coalesce(old.search_text, coalesce(old.content, '') || coalesce(char(10) || old.tool_name, '') || coalesce(char(10) || old.tool_calls, '')) || char(10, 10)
    WHERE NOT EXISTS (SELECT 1 FROM state_meta WHERE key = 'search_indexed_from' AND old.id < CAST(value AS INTEGER));
    INSERT INTO messages_fts(rowid, body)
    SELECT new.id, coalesce(new.search_text, coalesce(new.content, '') || coalesce(char(10) || new.tool_name, '') || coalesce(char(10) || new.tool_calls, '')) || char(10, 10)
    WHERE NOT EXISTS (SELECT 1 FROM state_meta WHERE key = 'search_indexed_from' AND new.id < CAST(value AS INTEGER));
END;

CREATE VIRTUAL TABLE messages_fts_vocab USING fts5vocab(messages_fts_trigram, instance);

CREATE VIEW messages_search(id, body) AS
SELECT id, coalesce(search_text, coalesce(content, '') || coalesce(char(10) || tool_name, '') || coalesce(char(10) || tool_calls, '')) || char(10, 10) FROM messages;

CREATE TABLE schema_version (
    version INTEGER NOT NULL
);

CREATE TABLE session_model_usage (
    session_id TEXT NOT NULL,
    model TEXT NOT NULL DEFAULT '',
    billing_provider TEXT NOT NULL DEFAULT '',
    task TEXT NOT NULL DEFAULT '',
    input_tokens INTEGER NOT NULL DEFAULT 0,
    output_tokens INTEGER NOT NULL DEFAULT 0,
    cache_read_tokens INTEGER NOT NULL DEFAULT 0,
    cache_write_tokens INTEGER NOT NULL DEFAULT 0,
    reasoning_tokens INTEGER NOT NULL DEFAULT 0,
    api_call_count INTEGER NOT NULL DEFAULT 0,
    estimated_cost_usd REAL,
    actual_cost_usd REAL,
    first_seen REAL NOT NULL,
    last_seen REAL NOT NULL,
    PRIMARY KEY (session_id, model, billing_provider, task),
    FOREIGN KEY (session_id) REFERENCES sessions(id) ON DELETE CASCADE
);

CREATE TABLE sessions (
    id TEXT PRIMARY KEY,
    source TEXT NOT NULL,
    user_id TEXT,
    model TEXT,
    model_config TEXT,
    system_prompt TEXT,
    parent_session_id TEXT,
    started_at REAL NOT NULL,
    ended_at REAL,
    end_reason TEXT,
    message_count INTEGER DEFAULT 0,
    tool_call_count INTEGER DEFAULT 0,
    input_tokens INTEGER DEFAULT 0,
    output_tokens INTEGER DEFAULT 0, title TEXT, cache_read_tokens INTEGER DEFAULT 0, cache_write_tokens INTEGER DEFAULT 0, reasoning_tokens INTEGER DEFAULT 0, billing_provider TEXT, billing_base_url TEXT, billing_mode TEXT, estimated_cost_usd REAL, actual_cost_usd REAL, cost_status TEXT, cost_source TEXT, pricing_version TEXT, api_call_count INTEGER DEFAULT 0, system_prompt_hash TEXT REFERENCES system_prompts(hash), rewind_count INTEGER NOT NULL DEFAULT 0, archived INTEGER NOT NULL DEFAULT 0, pinned INTEGER NOT NULL DEFAULT 0, relation TEXT, last_active_at REAL, handoff_state TEXT, handoff_platform TEXT, handoff_error TEXT,
    FOREIGN KEY (parent_session_id) REFERENCES sessions(id)
);

CREATE TABLE state_meta (
    key TEXT PRIMARY KEY,
    value TEXT
);

CREATE TABLE system_prompts (
    hash TEXT NOT NULL PRIMARY KEY,
    prompt TEXT NOT NULL
);

