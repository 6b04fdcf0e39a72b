"""The ollama package: with_ollama.py chat|stream"""

import sys

import ollama
import task

client = ollama.Client(host=task.URL)
assert client.list().models, "no model"
messages = [{"role": "user", "content": task.QUESTION}]
tools = [task.read_file, task.write_file]


def ask():
    if sys.argv[1] == "chat":
        message = client.chat("hearth", messages=messages, tools=tools).message
        return message.content or "", list(message.tool_calls or [])
    text, calls = "", []
    for part in client.chat("hearth", messages=messages, tools=tools, stream=True):
        text += part.message.content or ""
        calls += part.message.tool_calls or []
    return text, calls


while True:
    text, calls = ask()
    messages.append({"role": "assistant", "content": text, "tool_calls": calls})
    if not calls:
        break
    for call in calls:
        result = task.run(call.function.name, call.function.arguments)
        messages.append({"role": "tool", "tool_name": call.function.name, "content": result})
print(text)
