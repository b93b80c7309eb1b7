column alembic_version.version_num character varying NOT NULL
column compression_locks.session_id text NOT NULL COLLATE C
column compression_locks.holder text NOT NULL
column compression_locks.acquired_at double precision NOT NULL
column compression_locks.expires_at double precision NOT NULL
column delivery_obligations.delivery_id text NOT NULL COLLATE C
column delivery_obligations.session_id text NOT NULL COLLATE C
column delivery_obligations.target text NOT NULL
column delivery_obligations.payload_json text NOT NULL
column delivery_obligations.state text NOT NULL DEFAULT 'pending'::text
column delivery_obligations.attempts bigint NOT NULL DEFAULT 0
column delivery_obligations.available_at double precision NOT NULL
column delivery_obligations.claimed_by text
column delivery_obligations.lease_expires_at double precision
column delivery_obligations.last_error text
column delivery_obligations.created_at double precision NOT NULL
column delivery_obligations.updated_at double precision NOT NULL
column gateway_routing.scope text NOT NULL COLLATE C
column gateway_routing.session_key text NOT NULL COLLATE C
column gateway_routing.entry_json text NOT NULL
column gateway_routing.updated_at double precision NOT NULL
column messages.id bigint NOT NULL IDENTITY BY DEFAULT
column messages.session_id text NOT NULL COLLATE C
column messages.role text NOT NULL
column messages.content text
column messages.tool_call_id text
column messages.tool_calls text
column messages.tool_name text
column messages.timestamp double precision NOT NULL
column messages.token_count bigint
column messages.finish_reason text
column messages.reasoning text
column messages.reasoning_details text
column messages.codex_reasoning_items text
column messages.reasoning_content text
column messages.codex_message_items text
column messages.content_encoding text
column messages.json_columns text
column messages.active integer NOT NULL DEFAULT 1
column messages.compacted integer NOT NULL DEFAULT 0
column messages.platform_message_id text
column messages.search_text text
column messages_fts.id bigint NOT NULL
column messages_fts.word_count integer NOT NULL
column messages_fts.grams ARRAY NOT NULL
column messages_fts.words ARRAY NOT NULL
column messages_fts_pending.id bigint NOT NULL
column schema_version.version integer NOT NULL
column session_model_usage.session_id text NOT NULL COLLATE C
column session_model_usage.model text NOT NULL DEFAULT ''::text COLLATE C
column session_model_usage.billing_provider text NOT NULL DEFAULT ''::text COLLATE C
column session_model_usage.task text NOT NULL DEFAULT ''::text COLLATE C
column session_model_usage.input_tokens bigint NOT NULL DEFAULT 0
column session_model_usage.output_tokens bigint NOT NULL DEFAULT 0
column session_model_usage.cache_read_tokens bigint NOT NULL DEFAULT 0
column session_model_usage.cache_write_tokens bigint NOT NULL DEFAULT 0
column session_model_usage.reasoning_tokens bigint NOT NULL DEFAULT 0
column session_model_usage.api_call_count bigint NOT NULL DEFAULT 0
column session_model_usage.estimated_cost_usd double precision
column session_model_usage.actual_cost_usd double precision
column session_model_usage.first_seen double precision NOT NULL
column session_model_usage.last_seen double precision NOT NULL
column sessions.id text NOT NULL COLLATE C
column sessions.source text NOT NULL
column sessions.user_id text
column sessions.model text
column sessions.model_config text
column sessions.system_prompt text
column sessions.parent_session_id text COLLATE C
column sessions.started_at double precision NOT NULL
column sessions.ended_at double precision
column sessions.end_reason text
column sessions.message_count bigint DEFAULT 0
column sessions.tool_call_count bigint DEFAULT 0
column sessions.input_tokens bigint DEFAULT 0
column sessions.output_tokens bigint DEFAULT 0
column sessions.title text COLLATE C
column sessions.cache_read_tokens bigint DEFAULT 0
column sessions.cache_write_tokens bigint DEFAULT 0
column sessions.reasoning_tokens bigint DEFAULT 0
column sessions.billing_provider text
column sessions.billing_base_url text
column sessions.billing_mode text
column sessions.estimated_cost_usd double precision
column sessions.actual_cost_usd double precision
column sessions.cost_status text
column sessions.cost_source text
column sessions.pricing_version text
column sessions.api_call_count bigint DEFAULT 0
column sessions.system_prompt_hash text COLLATE C
column sessions.rewind_count bigint NOT NULL DEFAULT 0
column sessions.archived integer NOT NULL DEFAULT 0
column sessions.pinned integer NOT NULL DEFAULT 0
column sessions.relation text
column sessions.last_active_at double precision
column sessions.handoff_state text
column sessions.handoff_platform text
column sessions.handoff_error text
column state_meta.key text NOT NULL COLLATE C
column state_meta.value text
column system_prompts.hash text NOT NULL COLLATE C
column system_prompts.prompt text NOT NULL
constraint alembic_version_pkc ON alembic_version PRIMARY KEY (version_num)
constraint compression_locks_pkey ON compression_locks PRIMARY KEY (session_id)
constraint delivery_obligations_pkey ON delivery_obligations PRIMARY KEY (delivery_id)
constraint fk_messages_fts_id_messages ON messages_fts FOREIGN KEY (id) REFERENCES messages(id) ON UPDATE CASCADE ON DELETE CASCADE
constraint fk_messages_fts_pending_id_messages ON messages_fts_pending FOREIGN KEY (id) REFERENCES messages(id) ON UPDATE CASCADE ON DELETE CASCADE
constraint fk_messages_session_id_sessions ON messages FOREIGN KEY (session_id) REFERENCES sessions(id)
constraint fk_session_model_usage_session_id_sessions ON session_model_usage FOREIGN KEY (session_id) REFERENCES sessions(id) ON DELETE CASCADE
constraint fk_sessions_parent_session_id_sessions ON sessions FOREIGN KEY (parent_session_id) REFERENCES sessions(id)
constraint fk_sessions_system_prompt_hash_system_prompts ON sessions FOREIGN KEY (system_prompt_hash) REFERENCES system_prompts(hash)
constraint gateway_routing_pkey ON gateway_routing PRIMARY KEY (scope, session_key)
constraint messages_pkey ON messages PRIMARY KEY (id)
constraint pk_messages_fts ON messages_fts PRIMARY KEY (id)
constraint pk_messages_fts_pending ON messages_fts_pending PRIMARY KEY (id)
constraint session_model_usage_pkey ON session_model_usage PRIMARY KEY (session_id, model, billing_provider, task)
constraint sessions_pkey ON sessions PRIMARY KEY (id)
constraint state_meta_pkey ON state_meta PRIMARY KEY (key)
constraint system_prompts_pkey ON system_prompts PRIMARY KEY (hash)
index CREATE UNIQUE INDEX alembic_version_pkc ON public.alembic_version USING btree (version_num)
index CREATE UNIQUE INDEX compression_locks_pkey ON public.compression_locks USING btree (session_id)
index CREATE UNIQUE INDEX delivery_obligations_pkey ON public.delivery_obligations USING btree (delivery_id)
index CREATE UNIQUE INDEX gateway_routing_pkey ON public.gateway_routing USING btree (scope, session_key)
index CREATE INDEX idx_messages_session ON public.messages USING btree (session_id, "timestamp")
index CREATE INDEX idx_sessions_parent ON public.sessions USING btree (parent_session_id, started_at) WHERE (parent_session_id IS NOT NULL)
index CREATE INDEX idx_sessions_source ON public.sessions USING btree (source)
index CREATE INDEX idx_sessions_started ON public.sessions USING btree (started_at DESC)
index CREATE UNIQUE INDEX idx_sessions_title_unique ON public.sessions USING btree (title) WHERE (title IS NOT NULL)
index CREATE INDEX ix_delivery_obligations_state_available_at ON public.delivery_obligations USING btree (state, available_at)
index CREATE INDEX ix_messages_fts_grams ON public.messages_fts USING gin (grams) WITH (gin_pending_list_limit='512')
index CREATE INDEX ix_messages_fts_words ON public.messages_fts USING gin (words) WITH (gin_pending_list_limit='512')
index CREATE INDEX ix_messages_session_id_active_id ON public.messages USING btree (session_id, active, id)
index CREATE INDEX ix_messages_session_id_platform_message_id ON public.messages USING btree (session_id, platform_message_id) WHERE (platform_message_id IS NOT NULL)
index CREATE INDEX ix_sessions_activity ON public.sessions USING btree (COALESCE(last_active_at, started_at) DESC, id DESC)
index CREATE INDEX ix_sessions_pinned ON public.sessions USING btree (pinned) WHERE (pinned = 1)
index CREATE INDEX ix_sessions_system_prompt_hash ON public.sessions USING btree (system_prompt_hash) WHERE (system_prompt_hash IS NOT NULL)
index CREATE UNIQUE INDEX messages_pkey ON public.messages USING btree (id)
index CREATE UNIQUE INDEX pk_messages_fts ON public.messages_fts USING btree (id)
index CREATE UNIQUE INDEX pk_messages_fts_pending ON public.messages_fts_pending USING btree (id)
index CREATE UNIQUE INDEX session_model_usage_pkey ON public.session_model_usage USING btree (session_id, model, billing_provider, task)
index CREATE UNIQUE INDEX sessions_pkey ON public.sessions USING btree (id)
index CREATE UNIQUE INDEX state_meta_pkey ON public.state_meta USING btree (key)
index CREATE UNIQUE INDEX system_prompts_pkey ON public.system_prompts USING btree (hash)
function CREATE OR REPLACE FUNCTION public.messages_activity()
 RETURNS trigger
 LANGUAGE plpgsql
AS $function$
BEGIN
    IF TG_OP <> 'INSERT' THEN
        UPDATE sessions SET last_active_at = (
            SELECT max(timestamp) FROM messages WHERE messages.session_id = sessions.id
        ) WHERE id = old.session_id AND last_active_at <= old.timestamp;
    END IF;
    IF TG_OP <> 'DELETE' THEN
        UPDATE sessions SET last_active_at = new.timestamp
        WHERE id = new.session_id
        AND (last_active_at IS NULL OR last_active_at < new.timestamp);
    END IF;
    RETURN NULL;
END $function$

function CREATE OR REPLACE FUNCTION public.messages_fts_pending()
 RETURNS trigger
 LANGUAGE plpgsql
AS $function$
BEGIN
    IF TG_OP = 'UPDATE' THEN
        DELETE FROM messages_fts WHERE id = new.id;
    END IF;
    INSERT INTO messages_fts_pending (id)
    SELECT new.id WHERE NOT EXISTS (SELECT 1 FROM messages_fts WHERE id = new.id)
    ON CONFLICT DO NOTHING;
    RETURN NULL;
END $function$

trigger CREATE TRIGGER messages_activity AFTER INSERT OR DELETE OR UPDATE OF "timestamp", session_id ON public.messages FOR EACH ROW EXECUTE FUNCTION messages_activity()
trigger CREATE TRIGGER messages_fts_insert AFTER INSERT ON public.messages FOR EACH ROW EXECUTE FUNCTION messages_fts_pending()
trigger CREATE TRIGGER messages_fts_update AFTER UPDATE OF content, content_encoding, tool_name, tool_calls ON public.messages FOR EACH ROW WHEN (((((old.content IS DISTINCT FROM new.content) OR (old.content_encoding IS DISTINCT FROM new.content_encoding)) OR (old.tool_name IS DISTINCT FROM new.tool_name)) OR (old.tool_calls IS DISTINCT FROM new.tool_calls))) EXECUTE FUNCTION messages_fts_pending()
