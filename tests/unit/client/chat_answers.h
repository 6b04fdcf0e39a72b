/* chat_answers: answers in each family's form, and what they say: {form, answer, said, reason,
 * thinks}. Thoughts are T(..), content is C(..), a call is its name and its arguments. */

/* hermes: Qwen 2.5 and 3, Hermes, Granite 4 */
{"hermes", "", "", NULL, false}, {"hermes", "Hello.\n", "C(Hello.\n)", NULL, false},
    {"hermes", "<tool_call>\n{\"name\": \"write\", \"arguments\": {\"path\": \"a\"}}\n</tool_call>",
     "write({\"path\": \"a\"})", NULL, false},
    {"hermes", "Sure.\n\n<tool_call>{\"name\":\"f\",\"arguments\":{}}</tool_call>\n",
     "C(Sure.)f({})", NULL, false},
    {"hermes",
     "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": [1, {\"b\": \"}\"}]}}\n</tool_call>\n"
     "<tool_call>\n{\"name\": \"g\", \"arguments\": {}}\n</tool_call>",
     "f({\"a\": [1, {\"b\": \"}\"}]})g({})", NULL, false},
    {"hermes",
     "<tool_call>{\"arguments\": {\"a\": \"\\\"</tool_call>\\u00e9\"}, \"name\": "
     "\"f\"}</tool_call>",
     "f({\"a\": \"\\\"</tool_call>\\u00e9\"})", NULL, false},
    {"hermes", "<tool_call>{\"name\": \"f\"}</tool_call>", "f({})", NULL, false},
    {"hermes", "<tool_call>{\"name\": \"f\", \"arguments\": null}</tool_call>", "f({})", NULL,
     false},
    {"hermes", "<tool_call>{\"name\": \"f\", \"arguments\": \"{\\\"a\\\": 1}\"}</tool_call>",
     "f({\"a\": 1})", NULL, false},
    {"hermes", "<tool_call>{\"name\": \"f\", \"arguments\": [1]}</tool_call>",
     "C(<tool_call>{\"name\": \"f\", \"arguments\": [1]}</tool_call>)", "not a JSON object", false},
    {"hermes",
     "<tool_call>{\"id\": 7, \"name\": \"f\", \"arguments\": {\"x\": -1.5e3}, \"z\": "
     "true}</tool_call>",
     "f({\"x\": -1.5e3})", NULL, false},
    {"hermes", "<tool_call>{\"name\": \"\", \"arguments\": {}}</tool_call> end",
     "C(<tool_call>{\"name\": \"\", \"arguments\": {}}</tool_call> end)", "no name", false},
    {"hermes", "a <tool_call> b", "C(a <tool_call> b)", "not a JSON object", false},
    {"hermes", "a <tool_call>", "C(a <tool_call>)", "ends inside", false},
    {"hermes", "a <tool_cal", "C(a <tool_cal)", NULL, false},
    {"hermes", "<tool_call>{\"name\": \"f\", \"arguments\": {}}}\n</tool_call>ok", "f({})C(ok)",
     NULL, false},
    {"hermes", "<tool_call>{\"name\": \"f\"}<tool_call>{\"name\": \"g\"}</tool_call>", "f({})g({})",
     NULL, false},
    {"hermes", "<tool_call>}{\"name\": \"f\"}</tool_call>",
     "C(<tool_call>}{\"name\": \"f\"}</tool_call>)", "not a JSON object", false},
    {"hermes", "<tool_call></tool_call>", "C(<tool_call></tool_call>)", "empty", false},
    {"hermes", "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": 1, }}</tool_call>",
     "f({\"a\": 1, )C(}}</tool_call>)", "not JSON", false},
    {"hermes", "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": \"b", "f({\"a\": \"b)",
     "ends inside", false},
    {"hermes", "<tool_call>{\"name\": \"f\" \"arguments\": {}}</tool_call>",
     "C(<tool_call>{\"name\": \"f\" \"arguments\": {}}</tool_call>)", "not JSON", false},
    {"hermes",
     "<tool_call>[{\"name\":\"f\",\"arguments\":{}}, "
     "{\"name\":\"g\",\"arguments\":{}}]</tool_call>ok",
     "f({})g({})C(ok)", NULL, false},
    {"hermes", "<think>\nHm.\n</think>\n\nYes.", "T(Hm.)C(Yes.)", NULL, false},
    {"hermes", "Hm.\n</think>\n\n<tool_call>{\"name\":\"f\",\"arguments\":{}}</tool_call>",
     "T(Hm.)f({})", NULL, true},
    {"hermes", "Hm, <tool_call> is how to call", "T(Hm, <tool_call> is how to call)", NULL, true},
    {"hermes",
     "Hm.\n<tool_call>{\"name\":\"write\",\"arguments\":{\"path\":\"a\"}}</tool_call>\nDone.",
     "T(Hm.)write({\"path\":\"a\"})C(Done.)", NULL, true},
    {"hermes", "Hm.\n<tool_call>{\"name\":\"write\"}</tool_call>\nNo. </think>\nDone.",
     "T(Hm.\n<tool_call>{\"name\":\"write\"}</tool_call>\nNo.)C(Done.)", NULL, true},
    {"hermes", "Say <tool_call>{\"name\":\"f\",\"arguments\":{}}</tool_call>?</think>No.",
     "T(Say <tool_call>{\"name\":\"f\",\"arguments\":{}}</tool_call>?)C(No.)", NULL, true},
    {"hermes", "Hm.<tool_call>{\"name\":\"write\",\"argu",
     "T(Hm.<tool_call>{\"name\":\"write\",\"argu)", NULL, true},
    {"hermes", "<think></think>Yes.", "C(Yes.)", NULL, false},
    {"hermes", "2 <think is no mark > 1", "C(2 <think is no mark > 1)", NULL, false},
    {"hermes", "{\"name\": \"f\", \"arguments\": {}}", "C({\"name\": \"f\", \"arguments\": {}})",
     NULL, false},
    {"hermes",
     "<tool_call>{\"arguments\": {\"id\": 12345678901234567890, \"a\": \"\\ud800\"}, \"name\": "
     "\"f\"}</tool_call>",
     "f({\"id\": 12345678901234567890, \"a\": \"\\ud800\"})", NULL, false},
    {"hermes",
     "<tool_call>{\"name\": \"f\", \"arguments\": \" {\\\"id\\\": 12345678901234567890} "
     "\"}</tool_call>",
     "f( {\"id\": 12345678901234567890} )", NULL, false},

    /* qwen3-coder: Qwen3-Coder, 3.5 and later, Nemotron 3, Step */
    {"qwen3-coder",
     "<tool_call><function=write><parameter=lines>5m</parameter><parameter=any>-1]</parameter>"
     "<parameter=tags>5</parameter></function></tool_call>",
     "write({\"lines\": \"5m\", \"any\": \"-1]\", \"tags\": 5})", NULL, false},
    {"qwen3-coder",
     "<tool_call>\n<function=write>\n<parameter=path>\n/a "
     "b\n</parameter>\n<parameter=lines>\n3\n</parameter>\n"
     "</function>\n</tool_call>",
     "write({\"path\": \"/a b\", \"lines\": 3})", NULL, false},
    {"qwen3-coder",
     "I "
     "write.\n<tool_call>\n<function=write>\n<parameter=text>\n\"quoted\"\n\tand\\n</par>\n\n</"
     "parameter>\n"
     "</function>\n</tool_call>",
     "C(I write.)write({\"text\": \"\\\"quoted\\\"\\n\\tand\\\\n</par>\\n\"})", NULL, false},
    {"qwen3-coder", "<tool_call>\n<function=f>\n</function>\n</tool_call>", "f({})", NULL, false},
    {"qwen3-coder",
     "<tool_call><function=f><parameter=a>7</parameter><parameter=b>true story</parameter>"
     "<parameter=c>[1, \"x\"]</parameter></function></tool_call>",
     "f({\"a\": 7, \"b\": \"true story\", \"c\": [1, \"x\"]})", NULL, false},
    {"qwen3-coder",
     "<tool_call>\n<function=write>\n<parameter=path>\n7\n</"
     "parameter>\n<parameter=tags>\n[\"a\"]\n</parameter>\n"
     "</tool_call>",
     "write({\"path\": \"7\", \"tags\": [\"a\"]})", NULL, false},
    {"qwen3-coder",
     "<tool_call>\n<function=f>\n</function>\n</tool_call>\n<tool_call>\n<function=g>\n</"
     "function>\n</tool_call>\n",
     "f({})g({})", NULL, false},
    {"qwen3-coder", "<tool_call>\n{\"name\": \"f\"}\n</tool_call>",
     "C(<tool_call>\n{\"name\": \"f\"}\n</tool_call>)", "does not begin", false},
    {"qwen3-coder", "<tool_call>\n<function=a b>\n</function>\n</tool_call>",
     "C(<tool_call>\n<function=a b>\n</function>\n</tool_call>)", "no name", false},
    {"qwen3-coder", "<tool_call>\n<function=write>\n<parameter=path>\nab", "write({\"path\": \"ab)",
     "ends inside", false},
    /* cut off in a mark */
    {"qwen3-coder", "<tool_call>\n<function=write>\n<param", "write({)C(<param)", "ends inside",
     false},
    {"qwen3-coder", "<tool_call>\n<function=write>\n<parameter=pa", "write({)C(pa)", "ends inside",
     false},
    {"qwen3-coder", "<tool_call>\n<func", "C(<tool_call>\n<func)", "ends inside", false},
    {"qwen3-coder", "<tool_call>\n<function=write>\n</function>\n</tool", "write({})C(</tool)",
     "ends inside", false},
    {"qwen3-coder", "<tool_call>\n<function=write>\n<param x", "write({)C(<param x)", "between",
     false},
    {"qwen3-coder", "<tool_call>\n<function=write>\nwhat</function></tool_call>",
     "write({)C(what</function></tool_call>)", "between", false},
    {"qwen3-coder", "<think>\na\n</think>\n<tool_call>\n<function=f>\n</function>\n</tool_call>",
     "T(a)f({})", NULL, false},

    {"qwen3-coder",
     "I write.\n<function=write>\n<parameter=lines>\n3\n</parameter>\n</function>\n</tool_call>",
     "C(I write.)write({\"lines\": 3})", NULL, false},
    {"qwen3-coder",
     "<function=write></function>\n<tool_call>\n<function=f>\n</function>\n</tool_call>\nOk.",
     "write({})f({})C(Ok.)", NULL, false},
    {"qwen3-coder", "<function=write></function> Ok.", "write({})C(Ok.)", NULL, false},
    {"qwen3-coder", "<function=f></function> is how.", "C(<function=f></function> is how.)",
     "none of the tools", false},
    {"qwen3-coder", "Hm.\n<function=write></function>", "T(Hm.)write({})", NULL, true},
    {"qwen3-coder",
     "<tool_call><function=write><parameter=text>\nnull\n</parameter><parameter=path>null</"
     "parameter>"
     "</function></tool_call>",
     "write({\"text\": null, \"path\": \"null\"})", NULL, false},
    {"qwen3-coder",
     "<tool_call><function=write><parameter=flag>\nTrue\n</parameter><parameter=any>None</"
     "parameter><parameter=lines>False</parameter><parameter=text>\nNone\n</parameter></function>"
     "</tool_call>",
     "write({\"flag\": true, \"any\": null, \"lines\": false, \"text\": null})", NULL, false},
    {"qwen3-coder",
     "<tool_call><function=write><parameter=path>\nTrue\n</parameter><parameter=text>True</"
     "parameter><parameter=word>True</parameter><parameter=flag>true</parameter><parameter=any>"
     "Truer</parameter><parameter=other>None of</parameter></function></tool_call>",
     "write({\"path\": \"True\", \"text\": \"True\", \"word\": \"True\", \"flag\": true, "
     "\"any\": \"Truer\", \"other\": \"None of\"})",
     NULL, false},
    {"minicpm",
     "<function name=\"write\"><param name=\"flag\">False</param><param name=\"path\">None</param>"
     "</function>",
     "write({\"flag\": false, \"path\": \"None\"})", NULL, false},
    {"qwen3-coder",
     "<tool_call><function=write><parameter=text>null\n\n</parameter></function></tool_call>",
     "write({\"text\": \"null\\n\"})", NULL, false},
    {"qwen3-coder", "<tool_call><function=write><parameter=text>\nnul", "write({\"text\": \"nul)",
     "ends inside", false},

    /* seed-oss */
    {"seed-oss",
     "<seed:think>hm</seed:think><seed:tool_call>\n<function=write>\n<parameter=path>a\n</"
     "parameter>\n</function>\n"
     "</seed:tool_call>",
     "T(hm)write({\"path\": \"a\\n\"})", NULL, false},

    /* glm */
    {"glm",
     "\n<tool_call>write\n<arg_key>path</arg_key>\n<arg_value>a</arg_value>\n<arg_key>lines</"
     "arg_key>\n"
     "<arg_value>3</arg_value>\n</tool_call>",
     "write({\"path\": \"a\", \"lines\": 3})", NULL, false},
    {"glm",
     "<tool_call>write<arg_key>path</arg_key><arg_value>a</arg_value></tool_call><tool_call>f</"
     "tool_call>",
     "write({\"path\": \"a\"})f({})", NULL, false},
    {"glm", "<tool_call>write<arg_key>path</arg_key>a</tool_call>",
     "write({\"path\": )C(a</tool_call>)", "no value", false},
    {"glm", "<tool_call>write<arg_key>lines</arg_key><arg_value>5</tool_call>",
     "write({\"lines\": 5</tool_call>)", "ends inside", false},
    {"glm", "<tool_call>write<arg_key>path</arg_key><arg_va", "write({\"path\": )C(<arg_va)",
     "ends inside", false},
    {"glm", "<tool_call></tool_call>", "C(<tool_call></tool_call>)", "empty", false},
    {"glm", "<tool_call>f<arg_key>" X300 "</arg_key><arg_value>1</arg_value></tool_call>",
     "f({)C(" X300 "</arg_key><arg_value>1</arg_value></tool_call>)", "no name", false},
    {"glm", "<tool_call>" X300 "<arg_key>", "C(<tool_call>" X300 "<arg_key>)", "no name", false},

    /* minimax, deepseek-dsml */
    {"minimax",
     "<minimax:tool_call>\n<invoke name=\"write\">\n<parameter "
     "name=\"path\">a</parameter>\n</invoke>\n"
     "<invoke name=\"f\">\n</invoke>\n</minimax:tool_call>",
     "write({\"path\": \"a\"})f({})", NULL, false},
    {"deepseek-v3.2",
     "<\xef\xbd\x9c"
     "DSML\xef\xbd\x9c"
     "function_calls>\n<\xef\xbd\x9c"
     "DSML\xef\xbd\x9c"
     "invoke name=\"f\">\n"
     "<\xef\xbd\x9c"
     "DSML\xef\xbd\x9c"
     "parameter name=\"a\" string=\"true\">7</\xef\xbd\x9c"
     "DSML\xef\xbd\x9c"
     "parameter>\n<\xef\xbd\x9c"
     "DSML\xef\xbd\x9c"
     "parameter name=\"b\" string=\"false\">7</\xef\xbd\x9c"
     "DSML\xef\xbd\x9c"
     "parameter>\n</\xef\xbd\x9c"
     "DSML\xef\xbd\x9c"
     "invoke>\n</\xef\xbd\x9c"
     "DSML\xef\xbd\x9c"
     "function_calls>",
     "f({\"a\": \"7\", \"b\": 7})", NULL, false},

    {"minicpm", "<function name=\"write\"><param name=\"path\">a</param></function> ok",
     "write({\"path\": \"a\"})C(ok)", NULL, false},
    {"minicpm",
     "<function name=\"write\"><param name=\"text\"><![CDATA[1 < 2 </param> ]]>\n]]></param><param "
     "name=\"lines\">2</param></function>",
     "write({\"text\": \"1 < 2 </param> ]]>\\n\", \"lines\": 2})", NULL, false},
    {"minicpm", "<function name=\"write\"><param name=\"text\"><![CDATA[a</param></function>",
     "write({\"text\": \"a</param></function>)", "ends inside", false},

    /* deepseek */
    {"deepseek",
     "Go.<\xef\xbd\x9ctool\xe2\x96\x81"
     "calls\xe2\x96\x81"
     "begin\xef\xbd\x9c><\xef\xbd\x9ctool\xe2\x96\x81"
     "call\xe2\x96\x81"
     "begin\xef\xbd\x9c>f<\xef\xbd\x9ctool\xe2\x96\x81"
     "sep\xef\xbd\x9c>{\"a\": 1}<\xef\xbd\x9ctool\xe2\x96\x81"
     "call\xe2\x96\x81"
     "end\xef\xbd\x9c><\xef\xbd\x9ctool\xe2\x96\x81"
     "calls\xe2\x96\x81"
     "end\xef\xbd\x9c>",
     "C(Go.)f({\"a\": 1})", NULL, false},
    {"deepseek-r1",
     "<\xef\xbd\x9ctool\xe2\x96\x81"
     "calls\xe2\x96\x81"
     "begin\xef\xbd\x9c><\xef\xbd\x9ctool\xe2\x96\x81"
     "call\xe2\x96\x81"
     "begin\xef\xbd\x9c>function<\xef\xbd\x9ctool\xe2\x96\x81"
     "sep\xef\xbd\x9c>f\n```json\n{\"a\": 1}\n```<\xef\xbd\x9ctool\xe2\x96\x81"
     "call\xe2\x96\x81"
     "end\xef\xbd\x9c><\xef\xbd\x9ctool\xe2\x96\x81"
     "calls\xe2\x96\x81"
     "end\xef\xbd\x9c>",
     "f({\"a\": 1})", NULL, false},

    {"deepseek",
     "<\xef\xbd\x9ctool\xe2\x96\x81"
     "calls\xe2\x96\x81"
     "begin\xef\xbd\x9c><\xef\xbd\x9ctool\xe2\x96\x81"
     "call\xe2\x96\x81"
     "begin\xef\xbd\x9c>f<\xef\xbd\x9ctool\xe2\x96\x81"
     "sep\xef\xbd\x9c>{}<\xef\xbd\x9ctool\xe2\x96\x81"
     "calls\xe2\x96\x81"
     "end\xef\xbd\x9c>.",
     "f({})C(.)", NULL, false},

    /* kimi */
    {"kimi",
     "<|tool_calls_section_begin|><|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>{"
     "\"a\":1}<|tool_call_end|>"
     "<|tool_call_begin|>functions.g:1<|tool_call_argument_begin|>{}<|tool_call_end|><|tool_calls_"
     "section_end|>",
     "f({\"a\":1})g({})", NULL, false},
    {"kimi",
     "<|tool_call_begin|>functions.write:0<|tool_call_argument_begin|>{\"path\":\"a\"}"
     "<|tool_call_begin|>functions.g:1<|tool_call_argument_begin|>{}",
     "write({\"path\":\"a\"})C(<|tool_call_begin|>functions.g:1<|tool_call_argument_begin|>{})",
     "none of the tools", false},
    {"kimi",
     "<|tool_calls_section_begin|><|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>{}"
     "<|tool_call_begin|>functions.g:1<|tool_call_argument_begin|>{}<|tool_calls_section_end|>",
     "f({})g({})", NULL, false},

    {"kimi",
     "<|tool_calls_section_begin|><|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>{}"
     "<|tool_call_e",
     "f({})C(<|tool_call_e)", "ends inside", false},

    /* mistral */
    {"mistral", "[TOOL_CALLS]f[ARGS]{\"a\": \"b\"}[TOOL_CALLS]g[ARGS]{}", "f({\"a\": \"b\"})g({})",
     NULL, false},
    {"mistral", "Sure. [TOOL_CALLS]f[CALL_ID]abc123def[ARGS]{}", "C(Sure.)f({})", NULL, false},
    {"mistral", "[THINK]hm[/THINK]Yes.", "T(hm)C(Yes.)", NULL, false},
    {"mistral", "[TOOL_CALLS]f{\"a\": 1}", "C([TOOL_CALLS]f{\"a\": 1})", "ends inside", false},
    {"mistral", "[TOOL_CALLS]f[ARGS][1]", "f()C([1])", "not a JSON object", false},
    {"mistral-list",
     "[TOOL_CALLS] [{\"name\": \"f\", \"arguments\": {\"a\": 1}, \"id\": \"abcdefghi\"}]",
     "f({\"a\": 1})", NULL, false},

    /* gemma */
    {"gemma", "<|tool_call>call:write{path:<|\"|>a, {b}<|\"|>,lines:3}<tool_call|>",
     "write({\"path\": \"a, {b}\", \"lines\": 3})", NULL, false},
    {"gemma",
     "<|tool_call>call:f{a:[1,<|\"|>x<|\"|>,{b:true}],c:{<|\"|>d e<|\"|>:null}}<tool_call|>",
     "f({\"a\": [1, \"x\", {\"b\": true}], \"c\": {\"d e\": null}})", NULL, false},
    {"gemma", "<|tool_call>call:f{a:<|\"|><tool_call|>}<|\"|>}<tool_call|>ok",
     "f({\"a\": \"<tool_call|>}\"})C(ok)", NULL, false},
    {"gemma", "<|tool_call>call:f{\"a:\": \"b, }\\u00e9\", c: None}<tool_call|>",
     "f({\"a:\": \"b, }\xc3\xa9\", \"c\": null})", NULL, false},
    {"gemma", "<|tool_call>call:f{\"a: 1}<tool_call|>", "C(<|tool_call>call:f{\"a: 1}<tool_call|>)",
     "not as", false},
    {"gemma", "<|tool_call>call:f{a:<|\"|>x}<tool_call|>ok",
     "C(<|tool_call>call:f{a:<|\"|>x}<tool_call|>ok)", "ends inside", false},
    {"gemma", "<|tool_call>\n call:f{}<tool_call|>", "f({})", NULL, false},
    {"gemma", "<|tool_call>call:f{a:0.1}<tool_call|>", "f({\"a\": 0.1})", NULL, false},
    {"gemma", "<|tool_call>call:f{}<tool_call|><|tool_call>call:g{}<tool_call|>", "f({})g({})",
     NULL, false},
    {"gemma", "<|tool_call>call:f{a:}<tool_call|>", "C(<|tool_call>call:f{a:}<tool_call|>)",
     "not as", false},
    {"gemma", "<|tool_call>call:f{a:1", "C(<|tool_call>call:f{a:1)", "ends inside", false},
    {"gemma", "<|channel>thought\nhm\n<channel|>Yes.", "T(hm)C(Yes.)", NULL, false},
    {"gemma", "<|channel>thought<channel|>Yes. <channel|>No.<channel|>", "C(Yes. No.)", NULL,
     false},
    {"gemma", "<|channel><|channel>thought\nhm<channel|>Yes.", "T(hm)C(Yes.)", NULL, false},
    {"gemma", "Yes. <|channel>though, <|channel>", "C(Yes. though, )", NULL, false},
    {"gemma", "Yes. <|channel>thought hm", "C(Yes.)T(hm)", NULL, false},
    {"gemma", "<|channel>thought\nhm <|tool_call>call:write{lines:1}<tool_call|>",
     "T(hm)write({\"lines\": 1})", NULL, false},

    /* lfm2: LFM2, LFM2.5 */
    {"lfm2", "<|tool_call_start|>[get_weather(city=\"Paris\", days=3), g()]<|tool_call_end|>",
     "get_weather({\"city\": \"Paris\", \"days\": 3})g({})", NULL, false},
    {"lfm2", "<|tool_call_start|>[f(a='Paris')]<|tool_call_end|>", "f({\"a\": \"Paris\"})", NULL,
     false},
    {"lfm2", "<|tool_call_start|>[f()]<|tool_call_end|>", "f({})", NULL, false},
    {"lfm2", "<|tool_call_start|>[ f ( a = 1 , b = 2 , ) ]<|tool_call_end|>",
     "f({\"a\": 1, \"b\": 2})", NULL, false},
    {"lfm2",
     "<|tool_call_start|>[Calendar.create_event(title='x', ids=[1, 2,], meta={'a': True, \"b\": "
     "[None, {}]})]<|tool_call_end|>",
     "Calendar.create_event({\"title\": \"x\", \"ids\": [1, 2], \"meta\": {\"a\": true, \"b\": "
     "[null, {}]}})",
     NULL, false},
    {"lfm2",
     "<|tool_call_start|>[f(a=True, b=False, c=None, d=true, e=false, f=null)]<|tool_call_end|>",
     "f({\"a\": true, \"b\": false, \"c\": null, \"d\": true, \"e\": false, \"f\": null})", NULL,
     false},
    {"lfm2",
     "<|tool_call_start|>[f(a=0, b=-1.50, c=+3, d=1_000, e=.5, f=5., g=1e9, h=2E-3, "
     "i=123456789012345678901234567890)]<|tool_call_end|>",
     "f({\"a\": 0, \"b\": -1.50, \"c\": 3, \"d\": 1000, \"e\": 0.5, \"f\": 5.0, \"g\": 1e9, \"h\": "
     "2e-3, \"i\": 123456789012345678901234567890})",
     NULL, false},
    {"lfm2",
     "<|tool_call_start|>[f(a=\"say \\\"it\\\"\", b='it\\'s', c=\"it's\", d='say "
     "\"it\"')]<|tool_call_end|>",
     "f({\"a\": \"say \\\"it\\\"\", \"b\": \"it's\", \"c\": \"it's\", \"d\": \"say \\\"it\\\"\"})",
     NULL, false},
    {"lfm2", "<|tool_call_start|>[f(a=\"one\\ntwo\\tthree\\\\n\\r\\b\\f\")]<|tool_call_end|>",
     "f({\"a\": \"one\\ntwo\\tthree\\\\n\\r\\b\\f\"})", NULL, false},
    {"lfm2", "<|tool_call_start|>[f(a='one\ntwo\tthree')]<|tool_call_end|>",
     "f({\"a\": \"one\\ntwo\\tthree\"})", NULL, false},
    {"lfm2",
     "<|tool_call_start|>[f(a=\"\\u00e9\\xe9\\U0001F600\\ud83d\\ude00\\101\\0\")]<|tool_call_end|>",
     "f({\"a\": \"\303\251\303\251\360\237\230\200\360\237\230\200A\\u0000\"})", NULL, false},
    {"lfm2",
     "<|tool_call_start|>[f(a=\"\\ud83d\", b=\"\\ude00x\", c=\"\\ud83d\\u0041\", "
     "d=\"\\UFFFFFFFF\")]<|tool_call_end|>",
     "f({\"a\": \"\357\277\275\", \"b\": \"\357\277\275x\", \"c\": \"\357\277\275A\", \"d\": "
     "\"\357\277\275\"})",
     NULL, false},
    {"lfm2",
     "<|tool_call_start|>[f(a=\"C:\\Users\\new\", b=\"\\d+\\/\", c=\"\\xz\")]<|tool_call_end|>",
     "f({\"a\": \"C:\\\\Users\\new\", \"b\": \"\\\\d+\\\\/\", \"c\": \"\\\\xz\"})", NULL, false},
    {"lfm2", "<|tool_call_start|>[f(a=\"one\\\ntwo\")]<|tool_call_end|>", "f({\"a\": \"onetwo\"})",
     NULL, false},
    {"lfm2",
     "<|tool_call_start|>[f(a=\"\303\251 \346\274\242\345\255\227 "
     "\360\237\230\200\")]<|tool_call_end|>",
     "f({\"a\": \"\303\251 \346\274\242\345\255\227 \360\237\230\200\"})", NULL, false},
    {"lfm2", "<|tool_call_start|>[f(a='')]<|tool_call_end|>", "f({\"a\": \"\"})", NULL, false},
    {"lfm2", "<|tool_call_start|>[f(a=\"\", b='', c=[''])]<|tool_call_end|>",
     "f({\"a\": \"\", \"b\": \"\", \"c\": [\"\"]})", NULL, false},
    {"lfm2", "<|tool_call_start|>[f(a=\"\"\"say \"it\"\nand '''\"\"\", b='''''')]<|tool_call_end|>",
     "f({\"a\": \"say \\\"it\\\"\\nand '''\", \"b\": \"\"})", NULL, false},
    {"lfm2", "<|tool_call_start|>[f(a='it's so', b='say 'it' now')]<|tool_call_end|>",
     "f({\"a\": \"it's so\", \"b\": \"say 'it' now\"})", NULL, false},
    {"lfm2", "<|tool_call_start|>[f(a=')]}<|tool_call_end|>', b=1)]<|tool_call_end|>",
     "f({\"a\": \")]}<|tool_call_end|>\", \"b\": 1})", NULL, false},
    {"lfm2", "<|tool_call_start|>[f(a=\"[g(b=1)]\")]<|tool_call_end|>", "f({\"a\": \"[g(b=1)]\"})",
     NULL, false},
    {"lfm2", "<|tool_call_start|>[f(gr\303\266\303\237e=1, a-b=2, a.b=3)]<|tool_call_end|>",
     "f({\"gr\303\266\303\237e\": 1, \"a-b\": 2, \"a.b\": 3})", NULL, false},
    {"lfm2", "<|tool_call_start|>[f(**{\"a b\": 1, \"c\": 2}, d=3, **{}, e=4)]<|tool_call_end|>",
     "f({\"a b\": 1, \"c\": 2, \"d\": 3, \"e\": 4})", NULL, false},
    {"lfm2", "<|tool_call_start|>[f(**{})]<|tool_call_end|>", "f({})", NULL, false},
    {"lfm2", "<|tool_call_start|>[f(a={'x': {'y': [[1], ['z']]}})]<|tool_call_end|>",
     "f({\"a\": {\"x\": {\"y\": [[1], [\"z\"]]}}})", NULL, false},
    {"lfm2", "<|tool_call_start|>[f(a=1); g(b=2), h()]<|tool_call_end|>",
     "f({\"a\": 1})g({\"b\": 2})h({})", NULL, false},
    {"lfm2", "<|tool_call_start|>[f(a=1), f(a=1)]<|tool_call_end|>", "f({\"a\": 1})f({\"a\": 1})",
     NULL, false},
    {"lfm2", "Let me look.\n<|tool_call_start|>[f(a=1)]<|tool_call_end|>\nDone.",
     "C(Let me look.)f({\"a\": 1})C(Done.)", NULL, false},
    {"lfm2",
     "<|tool_call_start|>\n[f(a=1)]\n<|tool_call_end|>\n<|tool_call_start|>[g()]<|tool_call_end|>",
     "f({\"a\": 1})g({})", NULL, false},
    {"lfm2", "<|tool_call_start|>f(a=1)<|tool_call_end|>", "f({\"a\": 1})", NULL, false},
    {"lfm2", "<|tool_call_start|>[f(a=1)]<|tool_call_start|>[g()]<|tool_call_end|>",
     "f({\"a\": 1})g({})", NULL, false},
    {"lfm2", "<|tool_call_start|>[f(a=1)]", "f({\"a\": 1})", NULL, false},
    {"lfm2", "<|tool_call_start|>[f(a=1), ", "f({\"a\": 1})", NULL, false},
    {"lfm2", "<think>hm</think><|tool_call_start|>[write(path='a')]<|tool_call_end|>",
     "T(hm)write({\"path\": \"a\"})", NULL, false},
    {"lfm2", "hm <|tool_call_start|>[write(path='a')]<|tool_call_end|>",
     "T(hm)write({\"path\": \"a\"})", NULL, true},
    {"lfm2", "hm <|tool_call_start|>[f(a=1)]<|tool_call_end|> so</think>Yes.",
     "T(hm <|tool_call_start|>[f(a=1)]<|tool_call_end|> so)C(Yes.)", NULL, true},
    {"lfm2", "Use [link](url) and f(a=1).", "C(Use [link](url) and f(a=1).)", NULL, false},
    {"lfm2", "<|tool_call_start|>[write('a', None, 3)]<|tool_call_end|>",
     "write({\"path\": \"a\", \"text\": null, \"lines\": 3})", NULL, false},
    {"lfm2", "<|tool_call_start|>[write('a', lines=3)]<|tool_call_end|>",
     "write({\"path\": \"a\", \"lines\": 3})", NULL, false},
    {"lfm2", "<|tool_call_start|>[f(1)]<|tool_call_end|>",
     "C(<|tool_call_start|>[f(1)]<|tool_call_end|>)", "does not say which", false},
    {"lfm2", "<|tool_call_start|>[put('w')]<|tool_call_end|>",
     "C(<|tool_call_start|>[put('w')]<|tool_call_end|>)", "does not say which", false},
    {"lfm2", "<|tool_call_start|>[write(1, 2, 3, 4, 5, 6, 7, 8)]<|tool_call_end|>",
     "C(<|tool_call_start|>[write(1, 2, 3, 4, 5, 6, 7, 8)]<|tool_call_end|>)", "does not say which",
     false},
    {"lfm2", "<|tool_call_start|>[write('a', path='b')]<|tool_call_end|>",
     "C(<|tool_call_start|>[write('a', path='b')]<|tool_call_end|>)", "as Python writes them",
     false},
    {"lfm2", "<|tool_call_start|>[write(lines=1, 'a')]<|tool_call_end|>",
     "C(<|tool_call_start|>[write(lines=1, 'a')]<|tool_call_end|>)", "as Python writes them",
     false},
    {"lfm2", "<|tool_call_start|>[f(a=)]<|tool_call_end|>",
     "C(<|tool_call_start|>[f(a=)]<|tool_call_end|>)", "as Python writes them", false},
    {"lfm2", "<|tool_call_start|>[f(a=1 b=2)]<|tool_call_end|>",
     "C(<|tool_call_start|>[f(a=1 b=2)]<|tool_call_end|>)", "as Python writes them", false},
    {"lfm2", "<|tool_call_start|>[f(a=x)]<|tool_call_end|>",
     "C(<|tool_call_start|>[f(a=x)]<|tool_call_end|>)", "as Python writes them", false},
    {"lfm2", "<|tool_call_start|>[f(a=Truely)]<|tool_call_end|>",
     "C(<|tool_call_start|>[f(a=Truely)]<|tool_call_end|>)", "as Python writes them", false},
    {"lfm2", "<|tool_call_start|>[f(a=007)]<|tool_call_end|>",
     "C(<|tool_call_start|>[f(a=007)]<|tool_call_end|>)", "as Python writes them", false},
    {"lfm2", "<|tool_call_start|>[f(a=-)]<|tool_call_end|>",
     "C(<|tool_call_start|>[f(a=-)]<|tool_call_end|>)", "as Python writes them", false},
    {"lfm2", "<|tool_call_start|>[f(a=1e)]<|tool_call_end|>",
     "C(<|tool_call_start|>[f(a=1e)]<|tool_call_end|>)", "as Python writes them", false},
    {"lfm2", "<|tool_call_start|>[f(a==1)]<|tool_call_end|>",
     "C(<|tool_call_start|>[f(a==1)]<|tool_call_end|>)", "as Python writes them", false},
    {"lfm2", "<|tool_call_start|>[f(a={1: 2})]<|tool_call_end|>",
     "C(<|tool_call_start|>[f(a={1: 2})]<|tool_call_end|>)", "as Python writes them", false},
    {"lfm2", "<|tool_call_start|>[f(a=[1)]<|tool_call_end|>",
     "C(<|tool_call_start|>[f(a=[1)]<|tool_call_end|>)", "as Python writes them", false},
    {"lfm2", "<|tool_call_start|>[f(a=(1, 2))]<|tool_call_end|>",
     "C(<|tool_call_start|>[f(a=(1, 2))]<|tool_call_end|>)", "as Python writes them", false},
    {"lfm2", "<|tool_call_start|>[f(a=[,])]<|tool_call_end|>",
     "C(<|tool_call_start|>[f(a=[,])]<|tool_call_end|>)", "as Python writes them", false},
    {"lfm2", "<|tool_call_start|>[f(,)]<|tool_call_end|>",
     "C(<|tool_call_start|>[f(,)]<|tool_call_end|>)", "as Python writes them", false},
    {"lfm2", "<|tool_call_start|>[f(**a)]<|tool_call_end|>",
     "C(<|tool_call_start|>[f(**a)]<|tool_call_end|>)", "as Python writes them", false},
    {"lfm2", "<|tool_call_start|>[f(a='x' 'y')]<|tool_call_end|>",
     "C(<|tool_call_start|>[f(a='x' 'y')]<|tool_call_end|>)", "as Python writes them", false},
    {"lfm2", "<|tool_call_start|>[f(a=1.2.3)]<|tool_call_end|>",
     "C(<|tool_call_start|>[f(a=1.2.3)]<|tool_call_end|>)", "as Python writes them", false},
    {"lfm2", "<|tool_call_start|>[f(a={'b'})]<|tool_call_end|>",
     "C(<|tool_call_start|>[f(a={'b'})]<|tool_call_end|>)", "as Python writes them", false},
    {"lfm2", "<|tool_call_start|>[f(a='x]<|tool_call_end|>",
     "C(<|tool_call_start|>[f(a='x]<|tool_call_end|>)", "as Python writes them", false},
    {"lfm2", "<|tool_call_start|>[f(a=<b>)]<|tool_call_end|>",
     "C(<|tool_call_start|>[f(a=<b>)]<|tool_call_end|>)", "as Python writes them", false},
    {"lfm2", "<|tool_call_start|>[]<|tool_call_end|>", "C(<|tool_call_start|>[]<|tool_call_end|>)",
     "empty", false},
    {"lfm2", "<|tool_call_start|>[f]<|tool_call_end|>",
     "C(<|tool_call_start|>[f]<|tool_call_end|>)", "does not begin", false},
    {"lfm2", "<|tool_call_start|>[\"f\"]<|tool_call_end|>",
     "C(<|tool_call_start|>[\"f\"]<|tool_call_end|>)", "does not begin", false},
    {"lfm2", "<|tool_call_start|>[f g(a=1)]<|tool_call_end|>",
     "C(<|tool_call_start|>[f g(a=1)]<|tool_call_end|>)", "no name", false},
    {"lfm2", "<|tool_call_start|>[(a=1)]<|tool_call_end|>",
     "C(<|tool_call_start|>[(a=1)]<|tool_call_end|>)", "no name", false},
    {"lfm2", "<|tool_call_start|>[{\"name\": \"f\"}]<|tool_call_end|>",
     "C(<|tool_call_start|>[{\"name\": \"f\"}]<|tool_call_end|>)", "does not begin", false},
    {"lfm2", "<|tool_call_start|>[f(a=1), g(b=)]<|tool_call_end|>",
     "f({\"a\": 1})C(g(b=)]<|tool_call_end|>)", "as Python writes them", false},
    {"lfm2", "<|tool_call_start|>[f(a=1)] so <|tool_call_end|>",
     "f({\"a\": 1})C(so <|tool_call_end|>)", "does not begin", false},
    {"lfm2", "<|tool_call_start|>", "C(<|tool_call_start|>)", "ends inside", false},
    {"lfm2", "<|tool_call_start|>[", "C(<|tool_call_start|>[)", "ends inside", false},
    {"lfm2", "<|tool_call_start|>[f", "C(<|tool_call_start|>[f)", "ends inside", false},
    {"lfm2", "<|tool_call_start|>[f(", "C(<|tool_call_start|>[f()", "ends inside", false},
    {"lfm2", "<|tool_call_start|>[f(a", "C(<|tool_call_start|>[f(a)", "ends inside", false},
    {"lfm2", "<|tool_call_start|>[f(a=", "C(<|tool_call_start|>[f(a=)", "ends inside", false},
    {"lfm2", "<|tool_call_start|>[f(a='b", "C(<|tool_call_start|>[f(a='b)", "ends inside", false},
    {"lfm2", "<|tool_call_start|>[f(a='b'", "C(<|tool_call_start|>[f(a='b')", "ends inside", false},
    {"lfm2", "<|tool_call_start|>[f(a='b',", "C(<|tool_call_start|>[f(a='b',)", "ends inside",
     false},
    {"lfm2", "<|tool_call_start|>[f(a='b\\", "C(<|tool_call_start|>[f(a='b\\)", "ends inside",
     false},
    {"lfm2", "<|tool_call_start|><|tool_call_e", "C(<|tool_call_start|><|tool_call_e)",
     "ends inside", false},
    {"lfm2", "<|tool_call_start|>[f(), g(a=", "f({})C(g(a=)", "ends inside", false},
    {"lfm2", "a <|tool_call_sta", "C(a <|tool_call_sta)", NULL, false},
    {"lfm2", "<|tool_call_start|>[xxxy]", "C(<|tool_call_start|>[xxxy])", "does not begin", false},

    /* harmony: gpt-oss */
    {"harmony",
     " to=functions.f<|message|>[1]<|call|><|start|>assistant to=functions.g<|message|><|call|>"
     "<|start|>assistant to=functions.h<|message|>{}<|call|>",
     "f([1])g({})h({})", "not a JSON object", false},
    {"harmony",
     "<|channel|>analysis<|message|>hm<|end|><|start|>assistant<|channel|>final<|message|>Yes.",
     "T(hm)C(Yes.)", NULL, false},
    {"harmony",
     "<|channel|>analysis<|message|>hm<|end|><|start|>assistant<|channel|>commentary "
     "to=functions.f "
     "<|constrain|>json<|message|>{\"a\": 1}<|call|>",
     "T(hm)f({\"a\": 1})", NULL, false},
    {"harmony", " to=functions.f<|channel|>commentary json<|message|>{}", "f({})", NULL, false},
    {"harmony",
     "<|channel|>commentary<|message|>I look.<|end|><|start|>assistant "
     "to=functions.f<|channel|>commentary"
     "<|message|>{} ",
     "C(I look.)f({} )", NULL, false},
    {"harmony", "<|channel|>commentary to=functions.f<|message|>{\"a\": ", "f({\"a\": )",
     "ends inside", false},
    {"harmony", "<|channel|>commentary to=functions.f<|message|> <|call|>", "f( {})", NULL, false},
    {"harmony", "<|channel|>commentary to=functions.f<|message|>", "f()", "ends inside", false},
    {"harmony", "<|channel|>commentary to=functions.f<|message|>a<|call|>", "f(a)",
     "not a JSON object", false},
    {"harmony", "<|channel|>commentary to=functions.f<|message|>[1, 2]<|call|>", "f([1, 2])",
     "not a JSON object", false},
    {"harmony",
     "<|channel|>commentary to=assistant<|channel|>analysis<|message|>hm<|end|><|start|>assistant "
     "to=user<|channel|>final<|message|>Yes.",
     "T(hm)C(Yes.)", NULL, false},
    {"harmony", "Yes.", "C(Yes.)", NULL, false},
    {"harmony", "<|channel|>" X300 X300 "<|end|>Yes.", "C(<|channel|>" X300 X300 "Yes.)",
     "no end of its header", false},
    {"harmony", "<|start|>" X300 X300 "<|message|>Yes.", "C(<|start|>" X300 X300 "<|message|>Yes.)",
     "no end of its header", false},

    /* lists of objects */
    {"granite",
     "<|tool_call|>[{\"name\": \"f\", \"arguments\": {\"a\": 1}}, {\"name\": \"g\", \"arguments\": "
     "{}}]",
     "f({\"a\": 1})g({})", NULL, false},
    {"nemotron", "<TOOLCALL>[{\"name\": \"f\", \"arguments\": {}}]</TOOLCALL>", "f({})", NULL,
     false},
    {"tool_calls",
     "<tool_calls>\n{\"name\": \"f\", \"arguments\": {}}\n{\"name\": \"g\", \"arguments\": "
     "{}}\n</tool_calls>",
     "f({})g({})", NULL, false},
    {"command-r",
     "<|START_ACTION|>[\n    {\"tool_call_id\": \"0\", \"tool_name\": \"f\", \"parameters\": "
     "{\"a\": 1}}\n]<|END_ACTION|>",
     "f({\"a\": 1})", NULL, false},

    /* llama3 */
    {"llama3", "{\"name\": \"write\", \"parameters\": {\"a\": 1}}", "write({\"a\": 1})", NULL,
     false},
    {"llama3", " { \"type\" : \"function\", \"name\": \"write\", \"parameters\": {}}", "write({})",
     NULL, false},
    {"llama3", "{\"type\": \"functional\", \"name\": \"write\"}",
     "C({\"type\": \"functional\", \"name\": \"write\"})", NULL, false},
    {"llama3", "{\"name\": \"Ann\", \"age\": 3}", "C({\"name\": \"Ann\", \"age\": 3})",
     "none of the tools", false},
    {"llama3", "{\"name\": \"write\", \"parameters\": {}}; {\"name\": \"write\"}\nDone.",
     "write({})write({})C(Done.)", NULL, false},
    {"llama3", "<|python_tag|>{\"type\": \"function\", \"name\": \"f\", \"parameters\": {}}",
     "f({})", NULL, false},
    {"llama3", "{\"a\": 1}", "C({\"a\": 1})", NULL, false},
    {"llama3", " {\"name\": 7}", "C({\"name\": 7})", "no name", false},
    {"llama3", "Call {\"name\": \"f\", \"parameters\": {}}",
     "C(Call {\"name\": \"f\", \"parameters\": {}})", NULL, false},

    /* functionary */
    {"functionary", "<function=f>{\"a\": 1}</function>", "f({\"a\": 1})", NULL, false},
    {"functionary", "<function=f>{\"a\": 1}</function> and <function=g>{}</function>",
     "f({\"a\": 1})C(and)g({})", NULL, false},
