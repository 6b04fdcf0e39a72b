"""The openai-agents package: with_agents.py chat|responses"""

import sys

import agents
import openai
import task

agents.set_tracing_disabled(True)
client = openai.AsyncOpenAI(base_url=task.URL + "/v1", api_key="none", max_retries=0)
model = {"chat": agents.OpenAIChatCompletionsModel, "responses": agents.OpenAIResponsesModel}[sys.argv[1]]
tools = [agents.function_tool(task.read_file), agents.function_tool(task.write_file)]
agent = agents.Agent(name="one", instructions="Be brief.", tools=tools, model=model("hearth", client))
print(agents.Runner.run_sync(agent, task.QUESTION).final_output)
