column alembic_version.version_num character varying NOT NULL
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
column schema_version.version integer NOT NULL
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
column state_meta.key text NOT NULL COLLATE C
column state_meta.value text
constraint alembic_version_pkc ON alembic_version PRIMARY KEY (version_num)
constraint fk_messages_session_id_sessions ON messages FOREIGN KEY (session_id) REFERENCES sessions(id)
constraint fk_sessions_parent_session_id_sessions ON sessions FOREIGN KEY (parent_session_id) REFERENCES sessions(id)
constraint messages_pkey ON messages PRIMARY KEY (id)
constraint sessions_pkey ON sessions PRIMARY KEY (id)
constraint state_meta_pkey ON state_meta PRIMARY KEY (key)
index CREATE UNIQUE INDEX alembic_version_pkc ON public.alembic_version USING btree (version_num)
index CREATE INDEX idx_messages_session ON public.messages USING btree (session_id, "timestamp")
index CREATE INDEX idx_sessions_parent ON public.sessions USING btree (parent_session_id)
index CREATE INDEX idx_sessions_source ON public.sessions USING btree (source)
index CREATE INDEX idx_sessions_started ON public.sessions USING btree (started_at DESC)
index CREATE UNIQUE INDEX idx_sessions_title_unique ON public.sessions USING btree (title) WHERE (title IS NOT NULL)
index CREATE UNIQUE INDEX messages_pkey ON public.messages USING btree (id)
index CREATE UNIQUE INDEX sessions_pkey ON public.sessions USING btree (id)
index CREATE UNIQUE INDEX state_meta_pkey ON public.state_meta USING btree (key)
