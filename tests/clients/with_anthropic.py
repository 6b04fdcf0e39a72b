"""The anthropic package: with_anthropic.py messages|stream"""

import sys

import anthropic
import task

client = anthropic.Anthropic(base_url=task.URL, api_key="none", max_retries=0)
TOOLS = [
    {"name": f["name"], "description": f["description"], "input_schema": f["parameters"]} for f in task.FUNCTIONS
]


def ask(messages):
    more = {"model": "hearth", "max_tokens": 1000, "messages": messages, "tools": TOOLS, "system": "Be brief."}
    if sys.argv[1] == "messages":
        return client.messages.create(**more)
    with client.messages.stream(**more) as stream:
        return stream.get_final_message()


messages = [{"role": "user", "content": task.QUESTION}]
count = client.messages.count_tokens(model="hearth", messages=messages, tools=TOOLS, system="Be brief.").input_tokens
first = ask(messages)
used = first.usage.input_tokens + (first.usage.cache_read_input_tokens or 0) + (first.usage.cache_creation_input_tokens or 0)
assert count == used, (count, first.usage)
answer = first
while answer.stop_reason == "tool_use":
    results = [
        {"type": "tool_result", "tool_use_id": block.id, "content": task.run(block.name, block.input)}
        for block in answer.content
        if block.type == "tool_use"
    ]
    messages += [{"role": "assistant", "content": answer.content}, {"role": "user", "content": results}]
    answer = ask(messages)
print(answer.content[0].text)
