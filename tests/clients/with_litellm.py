"""The litellm package: with_litellm.py openai|anthropic|ollama_chat"""

import json
import sys

import litellm
import task

where = {"openai": task.URL + "/v1"}.get(sys.argv[1], task.URL)
tools = [{"type": "function", "function": f} for f in task.FUNCTIONS]
messages = [{"role": "user", "content": task.QUESTION}]
while True:
    answer = litellm.completion(
        f"{sys.argv[1]}/hearth", messages=messages, tools=tools, api_base=where, api_key="none", num_retries=0
    )
    message = answer.choices[0].message
    messages.append(message.model_dump(exclude_none=True))
    if not message.tool_calls:
        break
    for call in message.tool_calls:
        result = task.run(call.function.name, json.loads(call.function.arguments))
        messages.append({"role": "tool", "tool_call_id": call.id, "name": call.function.name, "content": result})
print(message.content)
