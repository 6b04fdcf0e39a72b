"""The pydantic-ai package: with_pydantic_ai.py chat|responses|messages"""

import sys

import pydantic_ai
import task
from pydantic_ai.models.anthropic import AnthropicModel
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.providers.anthropic import AnthropicProvider
from pydantic_ai.providers.openai import OpenAIProvider


def model(kind):
    if kind == "messages":
        return AnthropicModel("hearth", provider=AnthropicProvider(base_url=task.URL, api_key="none"))
    provider = OpenAIProvider(base_url=task.URL + "/v1", api_key="none")
    return (OpenAIChatModel if kind == "chat" else OpenAIResponsesModel)("hearth", provider=provider)


agent = pydantic_ai.Agent(model(sys.argv[1]), tools=[task.read_file, task.write_file])
print(agent.run_sync(task.QUESTION).output)
