/* words_match: the matchers that pre-tokenizers are made of. Each is one regular expression, tried
 * at one place of a piece of text; words.c runs them over a text.
 *
 * A matcher looks at letters c[at, end) (and, where said, back to c[begin]) and returns where its
 * match at `at` ends, or `at` for none. A piece ends at `end` as a text does: `(?!\S)` and `$` hold
 * there. Pure; any thread. */
#ifndef HEARTH_CLIENT_TOKENIZER_WORDS_MATCH_H
#define HEARTH_CLIENT_TOKENIZER_WORDS_MATCH_H

#include <stddef.h>
#include <stdint.h>

typedef size_t words_matcher(const uint32_t *c, size_t begin, size_t at, size_t end);

words_matcher words_match_gpt2, words_match_llama3, words_match_qwen2, words_match_qwen35;
words_matcher words_match_tekken, words_match_gpt4o, words_match_deepseek_v3;
words_matcher words_match_seed_coder, words_match_ufakzeka, words_match_jais2;
words_matcher words_match_exaone_moe, words_match_bloom, words_match_youtu, words_match_spark;
words_matcher words_match_kimi_k2;
words_matcher words_match_line;             /* [^\n]+|\n+ */
words_matcher words_match_newline;          /* [\r\n] */
words_matcher words_match_digit;            /* \p{N} */
words_matcher words_match_digits;           /* \p{N}+ */
words_matcher words_match_three_digits;     /* \p{N}{1,3} */
words_matcher words_match_digit_groups;     /* of a piece of digits: threes, counted from its end */
words_matcher words_match_ascii_triple;     /* [0-9][0-9][0-9] */
words_matcher words_match_letters;          /* \s?\p{L}+ */
words_matcher words_match_punctuation;      /* \s?\p{P}+ */
words_matcher words_match_signs;            /* [\p{P}$+<=>^~|`]+ */
words_matcher words_match_plain_signs;      /* the same without the backquote */
words_matcher words_match_cased_letters;    /* \s?[...]+, alphabets with upper and lower case */
words_matcher words_match_wide_punctuation; /* \s?[!-/:-~...]+ */
words_matcher words_match_last_space;       /* \s+$ */
words_matcher words_match_cjk;              /* [U+0800-U+9FA5 U+AC00-U+D7FF]+ */
words_matcher words_match_kana;             /* [U+4E00-U+9FA5 U+3040-U+30FF]+ */
words_matcher words_match_youtu_scripts;    /* runs of Hangul, wide signs, Bopomofo, kana */
words_matcher words_match_asian;            /* [scripts written without spaces, and Hangul]+ */

#endif
