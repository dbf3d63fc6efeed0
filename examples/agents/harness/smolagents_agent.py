"""A smolagents agent with a tool: `worker.rollout.agent_command="python smolagents_agent.py"`.

The row has columns `problem` and `answer`. The last line that the program prints is the reward. smolagents rewrites
earlier turns before every call, so each of its steps is a branch of the sample.
"""

import json
import os

from smolagents import OpenAIModel, ToolCallingAgent, tool


@tool
def add(a: int, b: int) -> int:
    """Add two numbers.

    Args:
        a: The first number.
        b: The second number.
    """
    return a + b


row = json.loads(os.environ["WHET_ROW"])
model = OpenAIModel("policy", api_base=os.environ["OPENAI_BASE_URL"], api_key=os.environ["OPENAI_API_KEY"])
answer = ToolCallingAgent(tools=[add], model=model, max_steps=4, verbosity_level=0).run(row["problem"])
print(json.dumps({"reward": float(str(answer).strip() == str(row["answer"]))}))
