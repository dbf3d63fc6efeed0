"""A LangGraph agent with a tool, started for every sample: `worker.rollout.agent_command="python agent.py"`.

The row has columns `problem` (or `prompt`) and `answer`. The last line that the program prints is the reward.
"""

import json
import os

from langchain.agents import create_agent
from langchain_openai import ChatOpenAI


def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


row = json.loads(os.environ["WHET_ROW"])
agent = create_agent(ChatOpenAI(model="policy"), [add], system_prompt="Use the tool, then answer with a number.")
messages = agent.invoke({"messages": [{"role": "user", "content": row.get("problem") or row["prompt"]}]})["messages"]
print(json.dumps({"reward": float(messages[-1].content.strip() == str(row["answer"]))}))
