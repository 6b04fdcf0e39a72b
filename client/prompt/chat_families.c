/* chat_families: see chat_families.h. */
#include "client/prompt/chat_families.h"

#include <stdio.h>
#include <string.h>

/* Messages in a row, each between two marks. */
#define EACH(body) "{% for m in messages %}" body "{% endfor %}"
#define PROMPT(text) "{% if add_generation_prompt %}" text "{% endif %}"

/* A system message goes into the user message that follows, before it, with `between` after it. */
#define WITH_SYSTEM(between, user, assistant)                                                      \
    "{% set ns = namespace(system='') %}" EACH(                                                    \
        "{% if m.role == 'system' %}{% set ns.system = m.content + '" between "' %}"               \
        "{% elif m.role == 'assistant' %}" assistant "{% else %}" user                             \
        "{% set ns.system = '' %}{% endif %}")

#define LLAMA2_SYSTEM "{{ '<<SYS>>\\n' + m.content + '\\n<</SYS>>\\n\\n' }}"
/* Llama 2: everything up to an answer stands in one pair of [INST] marks. */
#define LLAMA2(begin, content)                                                                     \
    "{% set ns = namespace(open=false, count=0) %}" EACH(                                          \
        "{% if m.role == 'assistant' %}{{ " content " }}</s>{% set ns.open = false %}{% else %}"   \
        "{% if not ns.open %}" begin "[INST] {% set ns.open = true %}"                             \
        "{% set ns.count = ns.count + 1 %}{% endif %}"                                             \
        "{% if m.role == 'system' %}" LLAMA2_SYSTEM "{% else %}{{ " content                        \
        " }} [/INST]{% endif %}{% endif %}")

const struct chat_family chat_families[] = {
    {.name = "phi4",
     .signs = {"<|im_start|>", "<|im_sep|>"},
     .source = EACH("<|im_start|>{{ m.role }}<|im_sep|>{{ m.content }}<|im_end|>")
         PROMPT("<|im_start|>assistant<|im_sep|>")},
    {.name = "chatml",
     .alias = "qwen",
     .signs = {"<|im_start|>"},
     .source = EACH("<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n")
         PROMPT("<|im_start|>assistant\n")},
    {.name = "mistral-v7",
     .signs = {"[INST]", "[SYSTEM_PROMPT]"},
     .source = EACH("{% if m.role == 'system' %}[SYSTEM_PROMPT] {{ m.content }}[/SYSTEM_PROMPT]"
                    "{% elif m.role == 'assistant' %} {{ m.content }}</s>"
                    "{% else %}[INST] {{ m.content }}[/INST]{% endif %}")},
    {.name = "mistral-v1",
     .signs = {"' [INST] ' + system_message"},
     .source = WITH_SYSTEM("\\n\\n", " [INST] {{ ns.system + m.content }} [/INST]",
                           " {{ m.content }}</s>")},
    {.name = "mistral-v3-tekken",
     .signs = {"[AVAILABLE_TOOLS]", "\"[INST]\""},
     .source =
         WITH_SYSTEM("\\n\\n", "[INST]{{ ns.system + m.content }}[/INST]", "{{ m.content }}</s>")},
    {.name = "mistral-v3",
     .alias = "mistral",
     .signs = {"[AVAILABLE_TOOLS]", "[INST]"},
     .source = WITH_SYSTEM("\\n\\n", "[INST] {{ ns.system + m.content }}[/INST]",
                           " {{ m.content | trim }}</s>")},
    {.name = "llama2-sys-bos",
     .signs = {"<<SYS>>", "bos_token + '[INST]"},
     .source = LLAMA2("{% if ns.count %}<s>{% endif %}", "m.content")},
    {.name = "llama2-sys-strip",
     .signs = {"[INST]", "<<SYS>>", "content.strip()"},
     .source = LLAMA2("", "m.content | trim")},
    {.name = "llama2-sys",
     .alias = "llama2",
     .signs = {"[INST]", "<<SYS>>"},
     .source = LLAMA2("", "m.content")},
    {.name = "llama2-nosys",
     .alias = "mistral-v0",
     .signs = {"[INST]"},
     .source =
         WITH_SYSTEM("\\n", "[INST] {{ ns.system + m.content }} [/INST]", "{{ m.content }}</s>")},
    {.name = "chatglm3",
     .signs = {"[gMASK]sop"},
     .source = "[gMASK]sop" EACH("<|{{ m.role }}|>\n {{ m.content }}") PROMPT("<|assistant|>")},
    {.name = "chatglm4",
     .alias = "glm4",
     .signs = {"[gMASK]<sop>"},
     .source = "[gMASK]<sop>" EACH("<|{{ m.role }}|>\n{{ m.content }}") PROMPT("<|assistant|>")},
    {.name = "phi3",
     .signs = {"<|assistant|>", "<|end|>"},
     .source = EACH("<|{{ m.role }}|>\n{{ m.content }}<|end|>\n") PROMPT("<|assistant|>\n")},
    {.name = "falcon3",
     .signs = {"<|assistant|>", "<|user|>", "</s>"},
     .source = EACH("<|{{ m.role }}|>\n{{ m.content }}\n") PROMPT("<|assistant|>\n")},
    {.name = "zephyr",
     .signs = {"<|user|>", "eos_token"},
     .source = EACH("<|{{ m.role }}|>\n{{ m.content + eos_token }}\n") PROMPT("<|assistant|>\n")},
    {.name = "glmedge",
     .signs = {"<|assistant|>", "<|user|>"},
     .source = EACH("<|{{ m.role }}|>\n{{ m.content }}") PROMPT("<|assistant|>")},
    {.name = "monarch",
     .signs = {"bos_token + message['role']"},
     .source = EACH("{% if not loop.first %}<s>{% endif %}{{ m.role }}\n{{ m.content }}</s>\n")
         PROMPT("<s>assistant\n")},
    {.name = "gemma",
     .alias = "gemma3",
     .signs = {"<start_of_turn>"},
     .source = WITH_SYSTEM("\\n\\n",
                           "<start_of_turn>user\n{{ ns.system + m.content | trim }}<end_of_turn>\n",
                           "<start_of_turn>model\n{{ m.content | trim }}<end_of_turn>\n")
         PROMPT("<start_of_turn>model\n")},
    {.name = "orion",
     .signs = {"\\n\\nAssistant: ' + eos_token"},
     .source = WITH_SYSTEM("\\n\\n", "Human: {{ ns.system + m.content }}\n\nAssistant: </s>",
                           "{{ m.content }}</s>")},
    {.name = "openchat",
     .signs = {"GPT4 Correct "},
     .source = EACH("{% if m.role != 'system' %}GPT4 Correct {{ m.role | title }}: {% endif %}"
                    "{{ m.content }}<|end_of_turn|>") PROMPT("GPT4 Correct Assistant:")},
    {.name = "vicuna-orca",
     .signs = {"USER: ", "ASSISTANT: ", "SYSTEM: "},
     .source =
         EACH("{% if m.role == 'assistant' %}ASSISTANT: {{ m.content }}</s>\n"
              "{% else %}{{ m.role | upper }}: {{ m.content }}\n{% endif %}") PROMPT("ASSISTANT:")},
    {.name = "vicuna",
     .signs = {"USER: ", "ASSISTANT: "},
     .source = EACH("{% if m.role == 'assistant' %}ASSISTANT: {{ m.content }}</s>\n"
                    "{% elif m.role == 'system' %}{{ m.content }}\n\n"
                    "{% else %}USER: {{ m.content }}\n{% endif %}") PROMPT("ASSISTANT:")},
    {.name = "deepseek",
     .signs = {"### Instruction:", "<|EOT|>"},
     .source = EACH("{% if m.role == 'system' %}{{ m.content }}"
                    "{% elif m.role == 'assistant' %}### Response:\n{{ m.content }}\n<|EOT|>\n"
                    "{% else %}### Instruction:\n{{ m.content }}\n{% endif %}")
         PROMPT("### Response:\n")},
    {.name = "command-r",
     .signs = {"<|START_OF_TURN_TOKEN|>", "<|USER_TOKEN|>"},
     .source = EACH(
         "<|START_OF_TURN_TOKEN|><|{{ 'SYSTEM' if m.role == 'system' else 'CHATBOT' if "
         "m.role == 'assistant' else 'USER' }}_TOKEN|>{{ m.content | trim }}<|END_OF_TURN_TOKEN|>")
         PROMPT("<|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>")},
    {.name = "llama3",
     .signs = {"<|start_header_id|>", "<|end_header_id|>"},
     .source = EACH("<|start_header_id|>{{ m.role }}<|end_header_id|>\n\n"
                    "{{ m.content | trim }}<|eot_id|>")
         PROMPT("<|start_header_id|>assistant<|end_header_id|>\n\n")},
    {.name = "llama4",
     .signs = {"<|header_start|>", "<|header_end|>"},
     .source = EACH("<|header_start|>{{ m.role }}<|header_end|>\n\n{{ m.content | trim }}<|eot|>")
         PROMPT("<|header_start|>assistant<|header_end|>\n\n")},
    {.name = "minicpm",
     .signs = {"<用户>"},
     .source = EACH("{% if m.role == 'user' %}<用户>{{ m.content | trim }}<AI>"
                    "{% else %}{{ m.content | trim }}{% endif %}")},
    {.name = "deepseek3",
     .signs = {"<｜Assistant｜>", "<｜User｜>", "<｜end▁of▁sentence｜>"},
     .source = EACH("{% if m.role == 'system' %}{{ m.content }}\n\n"
                    "{% elif m.role == 'assistant' %}<｜Assistant｜>{{ m.content }}"
                    "<｜end▁of▁sentence｜>{% else %}<｜User｜>{{ m.content }}{% endif %}")
         PROMPT("<｜Assistant｜>")},
    {.name = "deepseek2",
     .signs = {"'Assistant: ' + message['content'] + eos_token"},
     .source = EACH("{% if m.role == 'system' %}{{ m.content }}\n\n"
                    "{% elif m.role == 'assistant' %}Assistant: {{ m.content }}"
                    "<｜end▁of▁sentence｜>{% else %}User: {{ m.content }}\n\n{% endif %}")
         PROMPT("Assistant:")},
    {.name = "exaone3",
     .signs = {"[|system|]", "[|assistant|]", "[|endofturn|]"},
     .source = EACH("{% if m.role == 'system' %}[|system|]{{ m.content | trim }}[|endofturn|]\n"
                    "{% elif m.role == 'assistant' %}[|assistant|]{{ m.content | trim }}"
                    "[|endofturn|]\n{% else %}[|user|]{{ m.content | trim }}\n{% endif %}")
         PROMPT("[|assistant|]")},
    {.name = "rwkv-world",
     .signs = {"rwkv-world"},
     .source = EACH("{% if m.role == 'user' %}User: {{ m.content | trim }}\n\nAssistant:"
                    "{% else %}{{ m.content | trim }}\n\n{% endif %}")},
    {.name = "granite",
     .signs = {"<|start_of_role|>"},
     .source = EACH("<|start_of_role|>{{ 'assistant' if m.role == 'assistant_tool_call' else "
                    "m.role }}<|end_of_role|>{% if m.role == 'assistant_tool_call' %}<|tool_call|>"
                    "{% endif %}{{ m.content }}<|end_of_text|>\n")
         PROMPT("<|start_of_role|>assistant<|end_of_role|>\n")},
    {.name = "gigachat",
     .signs = {"message['role'] + additional_special_tokens[0]"},
     .source = EACH("{% if loop.first and m.role == 'system' %}<s>{{ m.content }}<|message_sep|>"
                    "{% else %}{% if loop.first %}<s>{% endif %}"
                    "{{ m.role }}<|role_sep|>{{ m.content }}<|message_sep|>"
                    "{% if m.role == 'user' %}available functions<|role_sep|>[]<|message_sep|>"
                    "{% endif %}{% endif %}") PROMPT("assistant<|role_sep|>")},
    {.name = "megrez",
     .signs = {"<|role_start|>"},
     .source = EACH("<|role_start|>{{ m.role }}<|role_end|>{{ m.content }}<|turn_end|>")
         PROMPT("<|role_start|>assistant<|role_end|>")},
};

const size_t n_chat_families = sizeof(chat_families) / sizeof(chat_families[0]);

static bool is_name(const char *name, const char *text, size_t bytes)
{
    return name && strlen(name) == bytes && memcmp(name, text, bytes) == 0;
}

const struct chat_family *chat_family_find(const char *name, size_t bytes)
{
    for (size_t i = 0; i < n_chat_families; i++)
        if (is_name(chat_families[i].name, name, bytes) ||
            is_name(chat_families[i].alias, name, bytes))
            return &chat_families[i];
    return NULL;
}

const struct chat_family *chat_family_recognise(const char *source, size_t bytes)
{
    for (size_t i = 0; i < n_chat_families; i++) {
        const struct chat_family *f = &chat_families[i];
        bool all = true;
        for (int k = 0; all && k < 3 && f->signs[k]; k++)
            all = memmem(source, bytes, f->signs[k], strlen(f->signs[k])) != NULL;
        if (all)
            return f;
    }
    return NULL;
}

int chat_family_names(char *text, size_t max)
{
    int at = 0;
    for (size_t i = 0; i < n_chat_families; i++) {
        const struct chat_family *f = &chat_families[i];
        size_t used = (size_t)at < max ? (size_t)at : max;
        at += snprintf(text + used, max - used, "%s%s%s%s", i ? ", " : "", f->name,
                       f->alias ? ", " : "", f->alias ? f->alias : "");
    }
    return at;
}
