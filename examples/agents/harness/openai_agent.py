"""A script with OpenAI's client and a tool: `worker.rollout.agent_command="python openai_agent.py"`.

The row has columns `problem` and `answer`. The last line that the program prints is the reward.
"""

import json
import os

from openai import OpenAI

NUMBER = {"type": "integer"}
ADD = {
    "type": "function",
    "function": {
        "name": "add",
        "description": "Add two numbers.",
        "parameters": {"type": "object", "properties": {"a": NUMBER, "b": NUMBER}, "required": ["a", "b"]},
    },
}

row = json.loads(os.environ["WHET_ROW"])
client = OpenAI()
messages = [{"role": "user", "content": row["problem"]}]
for _ in range(4):
    said = client.chat.completions.create(model="policy", messages=messages, tools=[ADD]).choices[0].message
    messages.append(said)
    if not said.tool_calls:
        break
    for call in said.tool_calls:
        try:
            result = str(sum(json.loads(call.function.arguments).values()))
        except (TypeError, ValueError, AttributeError) as error:
            result = f"wrong arguments: {error}"
        messages.append({"role": "tool", "tool_call_id": call.id, "content": result})
print(json.dumps({"reward": float((said.content or "").strip() == str(row["answer"]))}))
