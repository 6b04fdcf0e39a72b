/* vocab_names.c: the tables of vocab_names.h. */
#include "ipc/vocab_names.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* Model families share a pre-tokenizer; the file names the family. The first of them is also the
 * pre-tokenizer's own name. */
static const struct {
    const char *name;
    enum vocab_pre pre;
    uint32_t flags;
} pres[] = {
    {"default", VOCAB_PRE_DEFAULT, 0},
    {"gpt-2", VOCAB_PRE_GPT2, 0},
    {"phi-2", VOCAB_PRE_GPT2, 0},
    {"mpt", VOCAB_PRE_GPT2, 0},
    {"olmo", VOCAB_PRE_GPT2, 0},
    {"jais", VOCAB_PRE_GPT2, 0},
    {"jina-de", VOCAB_PRE_GPT2, 0},
    {"jina-es", VOCAB_PRE_GPT2, 0},
    {"jina-v2-de", VOCAB_PRE_GPT2, 0},
    {"jina-v2-es", VOCAB_PRE_GPT2, 0},
    {"modern-bert", VOCAB_PRE_GPT2, 0},
    {"trillion", VOCAB_PRE_GPT2, 0},
    {"gigachat", VOCAB_PRE_GPT2, 0},
    {"mellum", VOCAB_PRE_GPT2, 0},
    {"a.x-4.0", VOCAB_PRE_GPT2, 0},
    {"exaone4", VOCAB_PRE_GPT2, 0},
    {"granite-docling", VOCAB_PRE_GPT2, 0},
    {"llama-bpe", VOCAB_PRE_LLAMA3, VOCAB_IGNORE_MERGES | VOCAB_ADD_BOS},
    {"llama3", VOCAB_PRE_LLAMA3, VOCAB_IGNORE_MERGES | VOCAB_ADD_BOS},
    {"llama-v3", VOCAB_PRE_LLAMA3, VOCAB_IGNORE_MERGES | VOCAB_ADD_BOS},
    {"falcon3", VOCAB_PRE_LLAMA3, VOCAB_IGNORE_MERGES | VOCAB_ADD_BOS},
    {"falcon-h1", VOCAB_PRE_LLAMA3, VOCAB_IGNORE_MERGES | VOCAB_ADD_BOS},
    {"pixtral", VOCAB_PRE_LLAMA3, VOCAB_IGNORE_MERGES | VOCAB_ADD_BOS},
    {"midm-2.0", VOCAB_PRE_LLAMA3, VOCAB_IGNORE_MERGES | VOCAB_ADD_BOS},
    {"lfm2", VOCAB_PRE_LLAMA3, VOCAB_IGNORE_MERGES | VOCAB_ADD_BOS},
    {"jina-v5-nano", VOCAB_PRE_LLAMA3, VOCAB_IGNORE_MERGES | VOCAB_ADD_BOS},
    {"glm4", VOCAB_PRE_LLAMA3, VOCAB_IGNORE_MERGES},
    {"glm5", VOCAB_PRE_LLAMA3, VOCAB_IGNORE_MERGES},
    {"chatglm-bpe", VOCAB_PRE_LLAMA3, 0},
    {"dbrx", VOCAB_PRE_LLAMA3, 0},
    {"smaug-bpe", VOCAB_PRE_LLAMA3, 0},
    {"qwen2", VOCAB_PRE_QWEN2, 0},
    {"deepseek-r1-qwen", VOCAB_PRE_QWEN2, 0},
    {"megrez", VOCAB_PRE_QWEN2, 0},
    {"stablelm2", VOCAB_PRE_QWEN2, 0},
    {"hunyuan", VOCAB_PRE_QWEN2, 0},
    {"grok-2", VOCAB_PRE_QWEN2, 0},
    {"kormo", VOCAB_PRE_QWEN2, 0},
    {"f2llmv2", VOCAB_PRE_QWEN2, 0},
    {"solar-open", VOCAB_PRE_QWEN2, 0},
    {"bailingmoe", VOCAB_PRE_QWEN2, 0},
    {"bailingmoe2", VOCAB_PRE_QWEN2, 0},
    {"llada-moe", VOCAB_PRE_QWEN2, 0},
    {"qwen35", VOCAB_PRE_QWEN35, 0},
    {"starcoder", VOCAB_PRE_STARCODER, 0},
    {"refact", VOCAB_PRE_STARCODER, 0},
    {"command-r", VOCAB_PRE_STARCODER, 0},
    {"smollm", VOCAB_PRE_STARCODER, 0},
    {"codeshell", VOCAB_PRE_STARCODER, 0},
    {"exaone", VOCAB_PRE_STARCODER, 0},
    {"minerva-7b", VOCAB_PRE_STARCODER, 0},
    {"mellum2", VOCAB_PRE_MELLUM2, 0},
    {"deepseek-llm", VOCAB_PRE_DEEPSEEK_LLM, 0},
    {"deepseek-coder", VOCAB_PRE_DEEPSEEK_CODER, 0},
    {"deepseek-v3", VOCAB_PRE_DEEPSEEK_V3, 0},
    {"hunyuan-dense", VOCAB_PRE_DEEPSEEK_V3, 0},
    {"joyai-llm", VOCAB_PRE_DEEPSEEK_V3, 0},
    {"hy_v4", VOCAB_PRE_DEEPSEEK_V3, 0},
    {"falcon", VOCAB_PRE_FALCON, 0},
    {"tekken", VOCAB_PRE_TEKKEN, VOCAB_IGNORE_MERGES | VOCAB_ADD_BOS},
    {"gpt-4o", VOCAB_PRE_GPT4O, 0},
    {"llama4", VOCAB_PRE_GPT4O, 0},
    {"kanana2", VOCAB_PRE_GPT4O, 0},
    {"talkie", VOCAB_PRE_GPT4O, 0},
    {"minimax-m2", VOCAB_PRE_GPT4O, 0},
    {"granite-embed-multi-97m", VOCAB_PRE_GPT4O, VOCAB_IGNORE_MERGES},
    {"seed-coder", VOCAB_PRE_SEED_CODER, 0},
    {"laguna", VOCAB_PRE_LAGUNA, 0},
    {"minicpm5", VOCAB_PRE_MINICPM5, VOCAB_IGNORE_MERGES},
    {"ufakzeka", VOCAB_PRE_UFAKZEKA, 0},
    {"jais-2", VOCAB_PRE_JAIS2, 0},
    {"exaone-moe", VOCAB_PRE_EXAONE_MOE, 0},
    {"bloom", VOCAB_PRE_BLOOM, 0},
    {"gpt3-finnish", VOCAB_PRE_BLOOM, 0},
    {"poro-chat", VOCAB_PRE_BLOOM, 0},
    {"viking", VOCAB_PRE_VIKING, 0},
    {"youtu", VOCAB_PRE_YOUTU, VOCAB_IGNORE_MERGES},
    {"spark2_5", VOCAB_PRE_SPARK, 0},
    {"afmoe", VOCAB_PRE_AFMOE, 0},
    {"kimi-k2", VOCAB_PRE_KIMI_K2, 0},
};

const char *vocab_pre_name(enum vocab_pre pre)
{
    for (size_t i = 0; i < sizeof(pres) / sizeof(pres[0]); i++)
        if (pres[i].pre == pre)
            return pres[i].name;
    return "unknown";
}

struct vocab_shown vocab_names_show(struct vocab_string name)
{
    struct vocab_shown shown = {{0}};
    for (size_t i = 0; i < name.bytes && i + 1 < sizeof(shown.text); i++)
        shown.text[i] = name.data[i] >= 0x20 && name.data[i] <= 0x7e ? name.data[i] : '?';
    return shown;
}

int vocab_names_find_pre(struct vocab_string name, enum vocab_pre *ret_pre, uint32_t *ret_flags,
                         char *err, size_t err_bytes)
{
    if (name.bytes == 0) /* files from before the key existed */
        name = (struct vocab_string){"default", strlen("default")};
    for (size_t i = 0; i < sizeof(pres) / sizeof(pres[0]); i++) {
        if (strlen(pres[i].name) != name.bytes || memcmp(pres[i].name, name.data, name.bytes) != 0)
            continue;
        *ret_pre = pres[i].pre;
        *ret_flags = pres[i].flags;
        return 0;
    }
    snprintf(err, err_bytes, "pre-tokenizer '%s' is not known to hearth",
             vocab_names_show(name).text);
    return -ENOENT;
}

/* DeepSeek's names contain U+FF5C and U+2581, CodeLlama's U+2581. */
#define BAR "\xef\xbd\x9c"
#define LOW "\xe2\x96\x81"
#define NAME(text, role, end)                                                                      \
    {                                                                                              \
        text, sizeof(text) - 1, role, end, HARMONY_NONE                                            \
    }
#define MARK(text, which)                                                                          \
    {                                                                                              \
        text, sizeof(text) - 1, VOCAB_ROLE_COUNT, false, which                                     \
    }

const struct vocab_name vocab_names[] = {
    NAME("<|eot_id|>", VOCAB_EOT, true),
    NAME("<|im_end|>", VOCAB_EOT, true),
    {"<|end|>", 7, VOCAB_EOT, true, HARMONY_END},
    NAME("<end_of_turn>", VOCAB_EOT, true),
    NAME("<turn|>", VOCAB_EOT, true),
    NAME("<|tool_response>", VOCAB_ROLE_COUNT, true),
    NAME("<|endoftext|>", VOCAB_EOT, true),
    NAME("<EOT>", VOCAB_EOT, true),
    NAME("_<EOT>", VOCAB_EOT, true),
    NAME(LOW "<EOT>", VOCAB_EOT, true),
    NAME("<|EOT|>", VOCAB_ROLE_COUNT, true),
    NAME("<" BAR "end" LOW "of" LOW "sentence" BAR ">", VOCAB_EOT, true),
    NAME("<end_of_utterance>", VOCAB_EOT, true),
    NAME("<|end_of_text|>", VOCAB_EOT, true),
    NAME("<|eom_id|>", VOCAB_EOM, true),
    NAME("<|fim_prefix|>", VOCAB_FIM_PREFIX, false),
    NAME("<fim_prefix>", VOCAB_FIM_PREFIX, false),
    NAME("<fim-prefix>", VOCAB_FIM_PREFIX, false),
    NAME("<" BAR "fim" LOW "begin" BAR ">", VOCAB_FIM_PREFIX, false),
    NAME("<PRE>", VOCAB_FIM_PREFIX, false),
    NAME(LOW "<PRE>", VOCAB_FIM_PREFIX, false),
    NAME("<|code_prefix|>", VOCAB_FIM_PREFIX, false),
    NAME("[PREFIX]", VOCAB_FIM_PREFIX, false),
    NAME("<[fim-prefix]>", VOCAB_FIM_PREFIX, false),
    NAME("<|fim_suffix|>", VOCAB_FIM_SUFFIX, false),
    NAME("<fim_suffix>", VOCAB_FIM_SUFFIX, false),
    NAME("<fim-suffix>", VOCAB_FIM_SUFFIX, false),
    NAME("<" BAR "fim" LOW "hole" BAR ">", VOCAB_FIM_SUFFIX, false),
    NAME("<SUF>", VOCAB_FIM_SUFFIX, false),
    NAME(LOW "<SUF>", VOCAB_FIM_SUFFIX, false),
    NAME("<|code_suffix|>", VOCAB_FIM_SUFFIX, false),
    NAME("[SUFFIX]", VOCAB_FIM_SUFFIX, false),
    NAME("<[fim-suffix]>", VOCAB_FIM_SUFFIX, false),
    NAME("<|fim_middle|>", VOCAB_FIM_MIDDLE, false),
    NAME("<fim_middle>", VOCAB_FIM_MIDDLE, false),
    NAME("<fim-middle>", VOCAB_FIM_MIDDLE, false),
    NAME("<" BAR "fim" LOW "end" BAR ">", VOCAB_FIM_MIDDLE, false),
    NAME("<MID>", VOCAB_FIM_MIDDLE, false),
    NAME(LOW "<MID>", VOCAB_FIM_MIDDLE, false),
    NAME("<|code_middle|>", VOCAB_FIM_MIDDLE, false),
    NAME("[MIDDLE]", VOCAB_FIM_MIDDLE, false),
    NAME("<[fim-middle]>", VOCAB_FIM_MIDDLE, false),
    NAME("<|fim_pad|>", VOCAB_FIM_PAD, true),
    NAME("<fim_pad>", VOCAB_FIM_PAD, true),
    NAME("<fim-pad>", VOCAB_FIM_PAD, true),
    NAME("<PAD>", VOCAB_FIM_PAD, true),
    NAME("<|fim_repo|>", VOCAB_FIM_REPO, true),
    NAME("<|repo_name|>", VOCAB_FIM_REPO, true),
    NAME("<repo_name>", VOCAB_FIM_REPO, true),
    NAME("<fim-repo>", VOCAB_FIM_REPO, true),
    NAME("<REPO>", VOCAB_FIM_REPO, true),
    NAME("<reponame>", VOCAB_FIM_REPO, true),
    NAME("<|file_sep|>", VOCAB_FIM_FILE, true),
    NAME("<file_sep>", VOCAB_FIM_FILE, true),
    MARK("<|return|>", HARMONY_RETURN),
    MARK("<|call|>", HARMONY_CALL),
    MARK("<|start|>", HARMONY_START),
    MARK("<|channel|>", HARMONY_CHANNEL),
    MARK("<|message|>", HARMONY_MESSAGE),
    MARK("<|constrain|>", HARMONY_CONSTRAIN),
};
const uint32_t vocab_names_count = sizeof(vocab_names) / sizeof(vocab_names[0]);
