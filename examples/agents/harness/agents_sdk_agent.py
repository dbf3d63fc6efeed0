"""An agent of the OpenAI Agents SDK with a tool: `worker.rollout.agent_command="python agents_sdk_agent.py"`.

The row has columns `problem` and `answer`. The last line that the program prints is the reward.
"""

import json
import os

from agents import Agent, OpenAIChatCompletionsModel, Runner, function_tool
from openai import AsyncOpenAI


@function_tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


row = json.loads(os.environ["WHET_ROW"])
model = OpenAIChatCompletionsModel(model="policy", openai_client=AsyncOpenAI())
agent = Agent(name="adder", instructions="Use the tool, then answer with a number.", tools=[add], model=model)
result = Runner.run_sync(agent, row["problem"])
print(json.dumps({"reward": float(str(result.final_output).strip() == str(row["answer"]))}))
