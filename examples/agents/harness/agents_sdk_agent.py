"""An agent of the OpenAI Agents SDK with a tool: `worker.rollout.agent_command="python agents_sdk_agent.py"`.

The row has columns `problem` and `answer`. The last line that the program prints is the reward. The SDK speaks OpenAI's
Responses; with `OpenAIChatCompletionsModel` it would speak chat completions, which are answered as well.
"""

import json
import os

from agents import Agent, Runner, function_tool


@function_tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


row = json.loads(os.environ["WHET_ROW"])
agent = Agent(name="adder", instructions="Use the tool, then answer with a number.", tools=[add], model="policy")
result = Runner.run_sync(agent, row["problem"])
print(json.dumps({"reward": float(str(result.final_output).strip() == str(row["answer"]))}))
