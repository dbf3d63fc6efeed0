"""A script with Anthropic's client and a tool: `worker.rollout.agent_command="python anthropic_agent.py"`.

The row has columns `problem` and `answer`. The last line that the program prints is the reward.
"""

import json
import os

from anthropic import Anthropic

NUMBER = {"type": "integer"}
SCHEMA = {"type": "object", "properties": {"a": NUMBER, "b": NUMBER}, "required": ["a", "b"]}
ADD = {"name": "add", "description": "Add two numbers.", "input_schema": SCHEMA}

row = json.loads(os.environ["WHET_ROW"])
client = Anthropic()
messages = [{"role": "user", "content": row["problem"]}]
for _ in range(4):
    said = client.messages.create(model="policy", max_tokens=256, messages=messages, tools=[ADD])
    messages.append({"role": "assistant", "content": said.content})
    results = []
    for block in said.content:
        if block.type == "tool_use":
            try:
                result = str(sum(block.input.values()))
            except TypeError as error:
                result = f"wrong arguments: {error}"
            results.append({"type": "tool_result", "tool_use_id": block.id, "content": result})
    if not results:
        break
    messages.append({"role": "user", "content": results})
text = "".join(block.text for block in said.content if block.type == "text")
print(json.dumps({"reward": float(text.strip() == str(row["answer"]))}))
