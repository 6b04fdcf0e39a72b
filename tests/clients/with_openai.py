"""The openai package: with_openai.py chat|stream|responses|responses-stream"""

import json
import sys

import openai
import task

client = openai.OpenAI(base_url=task.URL + "/v1", api_key="none", max_retries=0)
TOOLS = [{"type": "function", "function": f} for f in task.FUNCTIONS]
FLAT = [{"type": "function", "strict": False, **f} for f in task.FUNCTIONS]


def chat_message(messages):
    return client.chat.completions.create(model="hearth", messages=messages, tools=TOOLS).choices[0].message


def streamed_message(messages):
    with client.chat.completions.stream(model="hearth", messages=messages, tools=TOOLS) as stream:
        return stream.get_final_completion().choices[0].message


def chat(ask):
    messages = [{"role": "user", "content": task.QUESTION}]
    while (message := ask(messages)).tool_calls:
        messages.append(message.model_dump(exclude_none=True, exclude={"tool_calls": {"__all__": {"function": {"parsed_arguments"}}}}))
        for call in message.tool_calls:
            result = task.run(call.function.name, json.loads(call.function.arguments))
            messages.append({"role": "tool", "tool_call_id": call.id, "content": result})
    return message.content


def response(items):
    return client.responses.create(model="hearth", input=items, tools=FLAT, store=False)


def streamed_response(items):
    with client.responses.stream(model="hearth", input=items, tools=FLAT, store=False) as stream:
        return stream.get_final_response()


def responses(ask):
    items = [{"role": "user", "content": task.QUESTION}]
    while True:
        answer = ask(items)
        calls = [item for item in answer.output if item.type == "function_call"]
        if not calls:
            return answer.output_text
        items += [item.model_dump(exclude_none=True, exclude={"parsed_arguments"}) for item in answer.output]
        for call in calls:
            result = task.run(call.name, json.loads(call.arguments))
            items.append({"type": "function_call_output", "call_id": call.call_id, "output": result})


ways = {
    "chat": lambda: chat(chat_message),
    "stream": lambda: chat(streamed_message),
    "responses": lambda: responses(response),
    "responses-stream": lambda: responses(streamed_response),
}
print(ways[sys.argv[1]]())
