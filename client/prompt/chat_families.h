/* chat_families: the ways in which well-known families of models write a conversation, as Jinja
 * texts of hearth's own: for a model whose file brings no template, and by name. Constant tables;
 * any thread. */
#ifndef HEARTH_CLIENT_PROMPT_CHAT_FAMILIES_H
#define HEARTH_CLIENT_PROMPT_CHAT_FAMILIES_H

#include <stdbool.h>
#include <stddef.h>

struct chat_family {
    const char *name;
    const char *alias;    /* another name for it, or NULL */
    const char *signs[3]; /* texts that a model's own template of this family holds; unused: NULL */
    const char *source;   /* Jinja */
};

extern const struct chat_family chat_families[];
extern const size_t n_chat_families;

/* By name or alias; NULL: none. */
const struct chat_family *chat_family_find(const char *name, size_t bytes);

/* Which family a model's template is of; NULL: none that hearth knows. */
const struct chat_family *chat_family_recognise(const char *source, size_t bytes);

/* "chatml, llama2, ..." into text, as snprintf. */
int chat_family_names(char *text, size_t max);

#endif
