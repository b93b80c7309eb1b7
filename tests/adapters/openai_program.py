"""An agent with a model that is made up, and a turn of it: python openai_program.py FILE TEXT."""

from __future__ import annotations

import asyncio
import sys

from agents import Agent, ModelResponse, RunConfig, Runner, Usage, function_tool
from agents.models.interface import Model
from openai.types.responses import (
    ResponseFunctionToolCall,
    ResponseOutputMessage,
    ResponseOutputText,
    ResponseReasoningItem,
)
from openai.types.responses.response_reasoning_item import Summary

from sessionstore.adapters.openai_agents import SessionStoreSession


class MadeUpModel(Model):
    """Thinks, calls the tool, then says how many items it was given."""

    async def get_response(self, system_instructions, input, *args, **kwargs):  # noqa: A002
        usage = Usage(requests=1, input_tokens=10, output_tokens=5, total_tokens=15)
        if input[-1].get("type") != "function_call_output":
            output = [
                ResponseReasoningItem(
                    id=f"rs_{len(input)}",
                    type="reasoning",
                    summary=[Summary(type="summary_text", text="They want the 天气.")],
                ),
                ResponseFunctionToolCall(
                    id=f"fc_{len(input)}",
                    call_id=f"call_{len(input)}",
                    name="weather",
                    arguments='{"city":"桂林"}',
                    type="function_call",
                    status="completed",
                ),
            ]
        else:
            said = f"Given {len(input)} items: sunny."
            output = [
                ResponseOutputMessage(
                    id=f"msg_{len(input)}",
                    type="message",
                    role="assistant",
                    status="completed",
                    content=[ResponseOutputText(type="output_text", text=said, annotations=[])],
                )
            ]
        return ModelResponse(output=output, usage=usage, response_id=None)

    async def stream_response(self, *args, **kwargs):
        raise NotImplementedError
        yield


@function_tool
def weather(city: str) -> str:
    """Say what the weather is."""
    return f"sunny in {city}"


async def turn(file: str, text: str) -> str:
    agent = Agent(name="guide", model=MadeUpModel(), tools=[weather])
    session = SessionStoreSession("trip", file)
    result = await Runner.run(
        agent, text, session=session, run_config=RunConfig(tracing_disabled=True)
    )
    await session.store_run_usage(result)
    return result.final_output


if __name__ == "__main__":
    sys.stdout.reconfigure(encoding="utf-8")
    print(asyncio.run(turn(*sys.argv[1:])))
